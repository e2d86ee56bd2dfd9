// Drafters without a model: a script for tests, a simulation for benchmarks.
#pragma once

#include "drafter.h"

#include <map>
#include <memory>
#include <random>
#include <set>

namespace dflash {

// Proposes the first k tokens of a known continuation, then wrong ones; k cycles through a list, round by
// round. A sequence without a script gets no drafts.
class ScriptedDrafter : public Drafter {
  public:
    explicit ScriptedDrafter(int n_vocab) : n_vocab_(n_vocab) {}

    // tokens: the sequence from position 0 on, prompt included. counts: k per round, cycled.
    void script(llama_seq_id seq, std::vector<Token> tokens, std::vector<int> counts);
    // Throw in the given round (from 0) of the sequence, as a drafter that breaks would.
    void fail_at(llama_seq_id seq, int round);
    // Throw once more than so many further rows are injected.
    void fail_behind(int rows) { rows_left_ = rows; }

    void inject(const Target & /*target*/, const std::vector<FeatureRows> & rows) override;
    void inject_kept(const std::vector<Kept> & kept) override;
    void draft(std::vector<DraftRequest> & requests) override;
    void resume(llama_seq_id seq, llama_pos pos) override { injected_[seq] = pos; }
    void forget(llama_seq_id seq) override;
    void release(llama_seq_id seq) override;

    // Context rows seen of a sequence so far: all it was given, in order.
    int injected(llama_seq_id seq) const;

  private:
    void see(llama_seq_id seq, llama_pos pos, int count);

    struct Plan {
        std::vector<Token> tokens;
        std::vector<int> counts;
        int round = 0;
        int fail_at = -1;
    };

    int n_vocab_;
    std::map<llama_seq_id, Plan> plans_;
    std::map<llama_seq_id, int> injected_;
    std::set<llama_seq_id> forgotten_;
    std::optional<int> rows_left_;
};

// Draws the number of accepted tokens from a survival curve. Around a real drafter it pays that one's cost
// and discards its tokens; alone it costs nothing. The text is not the target's: for timing only.
class SimulatedDrafter : public Drafter {
  public:
    // survival[i]: probability that drafted positions 0..i are all accepted; must not increase.
    SimulatedDrafter(std::vector<double> survival, std::uint64_t seed, std::shared_ptr<Drafter> inner);

    int window() const override { return inner_ ? inner_->window() : 0; }
    void inject(const Target & target, const std::vector<FeatureRows> & rows) override;
    void inject_kept(const std::vector<Kept> & kept) override;
    void draft(std::vector<DraftRequest> & requests) override;
    void resume(llama_seq_id seq, llama_pos pos) override;
    Context * cache() override { return inner_ ? inner_->cache() : nullptr; }
    void rehearse(std::vector<DraftRequest> & requests) override;
    void forget(llama_seq_id seq) override;
    void release(llama_seq_id seq) override;
    std::optional<int> forced_accept(llama_seq_id seq, int drafted) override;

  private:
    std::vector<double> survival_;
    std::mt19937_64 random_;
    std::shared_ptr<Drafter> inner_;
};

} // namespace dflash
