// What the caches of a sequence, the target's and the draft's, hold together: saved, loaded and taken back.
#pragma once

#include "drafter.h"
#include "prefix.h"
#include "target.h"

namespace dflash {

class SequenceCaches {
  public:
    // drafter may be null.
    SequenceCaches(std::shared_ptr<Target> target, std::shared_ptr<Drafter> drafter)
        : target_(std::move(target)), drafter_(std::move(drafter)) {}

    Context & target() const { return target_->context(); }
    bool has_draft() const { return draft() != nullptr; }
    Drafter * drafter() const { return drafter_.get(); }
    void without_draft() { drafter_.reset(); }

    // Whether going back needs points.
    bool move_on() const;
    // A point where a sequence stands, after `count` tokens. Throws std::runtime_error if llama.cpp does not
    // give its states.
    Point point(llama_seq_id id, int count, std::uint64_t used) const;

    // Note how far back a text in the caches of a sequence can be taken, and what the draft has seen of it.
    void refresh(llama_seq_id id, Kept & kept) const;
    // Add the states of a sequence to its text. Throws std::runtime_error if llama.cpp does not give them.
    void save(llama_seq_id id, Kept & kept) const;

    // Make a sequence hold the first `count` tokens of a text with states. False if it cannot be had.
    bool load(llama_seq_id id, const Kept & kept, int count);
    // Take a sequence back to `count` tokens, at one of its points if need be. False if it cannot be.
    bool go_back(llama_seq_id id, const std::vector<Point> & points, int count);
    // The same after a decode that was given up behind `count` tokens, to where the caches are known to hold
    // what they should: returns how many tokens that leaves, -1 if none can be told.
    int recover(llama_seq_id id, const std::vector<Point> & points, int count);

    void empty(llama_seq_id id);

  private:
    Context * draft() const { return drafter_ ? drafter_->cache() : nullptr; }
    void take_back_draft(llama_seq_id id, const Point & point);

    std::shared_ptr<Target> target_;
    std::shared_ptr<Drafter> drafter_;
};

} // namespace dflash
