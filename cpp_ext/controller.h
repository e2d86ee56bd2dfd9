// Chooses, round by round, how many rows to draft and to verify, so that text comes as fast as it can: never
// slower than without a drafter but by what finding out costs. Pure: it is told times and outcomes.
#pragma once

#include "costs.h"
#include "survival.h"
#include "trimming.h"

#include <cstdint>
#include <deque>
#include <vector>

namespace dflash {

// What a round is to do.
struct Order {
    int width = 1;        // rows of a block to draft; 1: no draft
    int probe = 0;        // rows of a block to draft for one sequence, only to see later whether it was right
    int depth = -1;       // remake the target with so many snapshots first; -1: leave it
    bool features = true; // whether the target is to give out its layers' inputs
};

// What came of it; nanoseconds, 0 for what was not done.
struct RoundFacts {
    int sequences = 1;
    int drafted_width = 1;
    int width = 1;        // verified
    bool rebuilt = false; // the verify had another shape than the last
    std::int64_t draft = 0;
    std::int64_t verify = 0;
    std::int64_t total = 0;
};

class Controller {
  public:
    // How the target goes back after a rejection: for nothing; by snapshots, of which it needs as many as a
    // block has rows less one, and every decode pays for them; or by decoding what was accepted once more.
    enum class Return { free, snapshots, replay };

    // widest: the most rows of a block. depth: snapshots at present. outcomes: of an earlier run, may be
    // empty.
    Controller(CostTable costs, int widest, Return way, int depth,
               const std::vector<std::pair<double, double>> & outcomes = {});

    // Snapshots to begin with.
    int first_depth();

    // sequences: those that take part. most: rows that fit all of them. probing: a probe's outcome is
    // awaited.
    Order order(int sequences, int most, bool probing);

    // How much of the drafted blocks to verify, the same width for all, given the confidence in their tokens.
    int trim(const std::vector<std::vector<float>> & confidence, int drafted_width) const;

    // Whether the last order was to draft.
    bool drafts() const { return last_drafted_ > 1; }

    // A request has come: what it wants may be easier to draft than what was seen last.
    void wake();

    // A block was verified, or a probe's tokens have turned out to be what was written, or not.
    void saw_block(const std::vector<float> & confidence, int tested, int accepted);
    void saw_probe(const std::vector<float> & confidence, int tested, int accepted);
    void saw_round(const RoundFacts & facts);
    void saw_probe_cost(std::int64_t ns);
    void saw_shift(int depth, std::int64_t ns);
    // There was no memory for more snapshots than there are; no more are asked for from now on.
    void could_not_shift();

    int depth() const { return depth_; }
    const Survival & survival() const { return survival_; }
    const CostTable & costs() const { return costs_; }

    // Expected tokens per nanosecond of rounds of `sequences` that draft `width` rows and verify the best
    // part of them.
    double rate(int sequences, int width, int depth) const;

  private:
    static constexpr int probe_rows = 8;

    // Rates by sequences and drafted width, reckoned anew every few rounds.
    struct Rates {
        int sequences = 0;
        int depth = -1;
        int age = 0;
        std::vector<double> ideal; // each width with the snapshots it needs; by the index of `drafts_`
        std::vector<double> here;  // with those there are; 0: too few
    };

    const Rates & rates(int sequences);
    // A verify with what must follow it: the injection, and a replay where the target goes back by one.
    double verify_cost(int sequences, int width, double verify, double tokens) const;
    // What the last blocks let expect, as wide as they can be.
    std::vector<Expected> typical() const;
    double rate(const std::vector<Expected> & blocks, int sequences, int width, int depth) const;
    Expected expected(const std::vector<float> & confidence, int rows) const;
    int needed(int width) const;
    bool proven() const;
    double budget() const;
    void try_out(Order & order, int most);
    void look_out(Order & order, int sequences, int most, bool probing);
    void remember(const std::vector<float> & confidence);

    CostTable costs_;
    Survival survival_;
    std::vector<int> drafts_;               // widths to draft, 1 among them
    std::deque<std::vector<float>> blocks_; // confidence in the tokens of the last ones drafted
    Rates rates_;
    Return way_;
    int depth_;
    int deepest_;          // snapshots that can be had
    int last_drafted_ = 1; // width
    int last_verified_ = 1;
    int last_sequences_ = 0;
    double gap_ = 0;       // share of the time that the present depth loses
    double regret_ = 0;    // nanoseconds lost so
    double allowance_ = 0; // nanoseconds that probes may take
    double worth_ = 0.5;   // share of the last requests that were drafted for
    int rounds_since_wake_ = 0;
    bool drafted_since_wake_ = false;
    int since_probe_ = probe_rows; // rounds
    int misses_ = 0;               // probes in a row after which drafting still did not pay
    int asleep_ = 0;               // rounds until features are wanted again
    int waking_ = 0;               // rounds until there are enough of them for a probe
    int trial_ = 1;                // width by which rough costs are first set right
    int trials_ = 0;               // rounds of that so far
};

} // namespace dflash
