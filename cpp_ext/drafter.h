// What a round needs of a drafter. The model behind it may be real, a script (tests) or a simulation
// (benchmarks); the round does not know which.
#pragma once

#include "feature_ring.h"
#include "sampler.h"
#include "target.h"

#include <optional>
#include <vector>

namespace dflash {

// One sequence's turn to draft: `count` tokens that follow `anchor`, which stands at position `pos`.
struct DraftRequest {
    llama_seq_id seq;
    llama_pos pos;
    Token anchor;
    int count;
    std::vector<Token> drafted = {}; // result: at most `count`
    // result: how likely each is to be accepted if all before it are, as far as the drafter knows; empty: it
    // does not say
    std::vector<float> confidence = {};
    // result: what each was drawn with, where that is known; may point into the drafter's logits and is valid
    // until its next decode
    std::vector<Distribution> q = {};
    Sampler * sampler = nullptr; // chooses among the draft's logits as it will among the target's
    bool rated = false;          // whether confidence is asked for
};

class Drafter {
  public:
    virtual ~Drafter() = default;

    // Context rows that the target has just processed, in order, without a gap per sequence.
    virtual void inject(const Target & target, const std::vector<FeatureRows> & rows) = 0;

    // The same for rows that were kept back.
    struct Kept {
        llama_seq_id seq;
        const FeatureRing * ring; // all of it
    };
    virtual void inject_kept(const std::vector<Kept> & kept) = 0;

    // Newest context rows of a sequence that it keeps; 0: all. Rows that will be older need not be injected.
    virtual int window() const { return 0; }

    // Fill `drafted` of every request. Throws std::runtime_error if drafting fails.
    virtual void draft(std::vector<DraftRequest> & requests) = 0;

    // A sequence goes on from `pos` although it was not injected row by row; 0: anew.
    virtual void resume(llama_seq_id /*seq*/, llama_pos /*pos*/) {}

    // Where injected rows are kept; null: nowhere.
    virtual Context * cache() { return nullptr; }

    // Do what `draft` does but choose no tokens: for measurements. Free of cost without a model.
    virtual void rehearse(std::vector<DraftRequest> & /*requests*/) {}

    // Forget the rows of a sequence that goes on; its next ones may begin at any position.
    virtual void forget(llama_seq_id seq) = 0;

    // A sequence has ended, its rows are to be forgotten; its id may be used again.
    virtual void release(llama_seq_id seq) = 0;

    // Simulations only: the number of drafted tokens to take as accepted, whatever the target chose.
    virtual std::optional<int> forced_accept(llama_seq_id /*seq*/, int /*drafted*/) { return std::nullopt; }
};

} // namespace dflash
