// The target's context: it prefills, verifies, publishes features and rolls back.
#pragma once

#include "context.h"

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

class Target {
  public:
    // taps: layers whose inputs are published after each decode; empty without a drafter.
    Target(std::shared_ptr<Context> context, std::vector<int> taps);

    Context & context() const { return *context_; }
    const std::shared_ptr<Context> & shared() const { return context_; }
    int n_taps() const { return static_cast<int>(taps_.size()); }
    int n_embd() const { return context_->model().n_embd(); }

    // Layer input of tap k of the last decode: rows in batch order, n_embd floats each.
    const float * features(int tap) const;

  private:
    std::shared_ptr<Context> context_;
    std::vector<int> taps_;
};

} // namespace dflash
