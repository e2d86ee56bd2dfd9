// The target's context: it prefills, verifies, publishes features and rolls back.
#pragma once

#include "context.h"

#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace dflash {

// Whether llama.cpp's graph of this architecture (its GGUF name) can publish its layers' inputs.
bool publishes_features(const std::string & architecture);

// A run of rows of the target's last decode, whose layer inputs are features of one sequence.
struct FeatureRows {
    llama_seq_id seq;
    llama_pos pos; // of the first row
    int row;       // in the last decode
    int count;
};

// The part of a run that a draft needs which keeps `window` rows (0: all) of a text that will have `end`
// rows.
FeatureRows newest(FeatureRows rows, llama_pos end, int window);

class Target {
  public:
    // taps: layers whose inputs are published after each decode; empty without a drafter.
    Target(std::shared_ptr<Context> context, std::vector<int> taps);

    bool lost() const { return !context_; }
    // Throws std::runtime_error if it was lost in `reshape`.
    Context & context() const;
    int n_taps() const { return static_cast<int>(taps_.size()); }
    int n_embd() const { return context_->model().n_embd(); }
    int n_features() const { return n_taps() * n_embd(); } // floats of a row

    // Layer input of tap k of the last decode: rows in batch order, n_embd floats each.
    const float * features(int tap) const;
    // All taps of one row of the last decode, n_features floats.
    void copy_features(int row, float * to) const;

    // Whether decodes give out features from now on; they do at first.
    void publish(bool features);
    bool publishes() const { return publishes_; }

    // Remake the context with another number of snapshots, which every decode pays for; sequences stay as
    // they are. Call between rounds; logits and features of the last decode are lost. Throws
    // std::runtime_error, in llama.cpp's words, if the new context cannot be had: the old one is back then.
    // Throws std::bad_alloc, with nothing changed, if the sequences' states cannot be held meanwhile. If not
    // even the old context can be had again, all later use throws.
    void reshape(int n_rollback);
    // For tests: as if memory sufficed for a new context of at most so many snapshots, below 0 for none.
    void pretend_room(int snapshots) { room_ = snapshots; }

  private:
    std::shared_ptr<Context> context_;
    std::vector<int> taps_;
    bool publishes_ = false;
    int room_ = std::numeric_limits<int>::max();
    mutable std::vector<const float *> rows_; // by tap; asking llama.cpp takes longer than copying a row
    mutable std::uint64_t rows_of_ = 0;       // the decode that they are of
};

} // namespace dflash
