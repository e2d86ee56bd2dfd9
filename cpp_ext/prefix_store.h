// Texts that have been read or written stay for requests that begin alike: in the caches of sequences that
// nobody uses now, and, when such a sequence is needed, in host memory within a budget.
#pragma once

#include "sequence_caches.h"

#include <list>
#include <map>

namespace dflash {

class PrefixStore {
  public:
    // drafter may be null. budget: bytes of host memory for states; 0: nothing is kept anywhere.
    PrefixStore(std::shared_ptr<Target> target, std::shared_ptr<Drafter> drafter, size_t budget);

    bool on() const { return budget_ > 0; }
    // Host memory that kept states take.
    size_t bytes() const;
    size_t budget() const { return budget_; }

    // Make sequence `id` ready for a prompt, taking over what is kept of it. Returns how many of its tokens
    // the caches hold now; the sequence counts as in use until it is parked. drafts: it will draft at once,
    // so that only what the draft can go on from counts. waiting: features that it lacks, if they were kept.
    int begin(llama_seq_id id, const std::vector<Token> & prompt, bool drafts, FeatureRing & waiting);

    // The caches of a sequence in use have taken in a token.
    void grow(llama_seq_id id, Token token);

    // Whether a point after `count` tokens of a sequence in use would save enough later.
    bool wants(llama_seq_id id, int count) const;
    // Keep one; the caches must hold exactly the tokens it has grown to.
    void mark(llama_seq_id id);

    // The sequence has ended, its caches stay. waiting: features that the draft has not been given.
    void park(llama_seq_id id, FeatureRing waiting);
    // The decode in progress was given up after `count` tokens: take the caches back to a place that they are
    // known to hold. Returns how many tokens that leaves.
    int recover(llama_seq_id id, int count);
    // Its caches cannot be relied on: they are emptied when it ends.
    void spoil(llama_seq_id id);
    // The draft has failed for good: only the target's states count from now on.
    void without_draft() { caches_.without_draft(); }
    // Forget all that is not in use.
    void clear();

    // The kept text that shares most tokens with `tokens`, as it goes to a file. Throws std::invalid_argument
    // if none shares any.
    Kept copied(const std::vector<Token> & tokens) const;
    // Take in such a text. Throws std::invalid_argument if llama.cpp refuses its states or no sequence is
    // free to try them in.
    void adopt(Kept kept);

  private:
    struct Slot {
        Kept kept; // without states
        bool in_use = false;
        bool sound = true;
    };
    struct Source {
        int saves = 0;
        llama_seq_id slot = -1;
        std::list<Kept>::iterator host;
    };

    Kept & refreshed(llama_seq_id id);
    Source best_source(llama_seq_id id, const std::vector<Token> & prompt, bool drafts);
    Kept copied(llama_seq_id id) const;
    void displace(llama_seq_id id);
    void fit();

    SequenceCaches caches_;
    size_t budget_;
    std::uint64_t uses_ = 0;
    std::map<llama_seq_id, Slot> slots_;
    std::list<Kept> host_;
};

} // namespace dflash
