// How much a draft's distribution q is sharpened before it meets the noise that it shares with the target,
// learnt from outcomes. Pure: no clock, no randomness.
//
// A drafted token is argmax(s log q + noise) and kept where that is the target's argmax(log p + noise); the
// text is the target's whatever s is. With q = p, s = 1 keeps every token. But a drafter that does not see
// the tokens before it in its block averages over them, and one that learnt from greedy text knows nothing of
// the target's temperature: q is flatter than p, and noise only makes the draft miss what the target is sure
// of. Then s = infinity, the draft's best token, keeps most. Which it is depends on pair, text and
// temperature. What every s would have drafted can be told afterwards without trying it, as the noise is the
// position's: all are judged by the same tokens, those that were reached.
#pragma once

#include "decide.h"

#include <array>
#include <cstdint>
#include <vector>

namespace dflash {

constexpr size_t n_sharpness = 4;
// The values of s that are compared; the last takes the draft's best token.
extern const std::array<double, n_sharpness> sharpness_choices;

// That of rejection sampling, where a text depends on what is drafted: a seed's must not on what was learnt
// before. Rejection forgives a q that is too flat or too sharp more than shared noise does.
constexpr double rejection_sharpness = 1.5;

// The token that each of them drafts in one place.
using Picks = std::array<Token, n_sharpness>;

class Sharpness {
  public:
    // Index of the choice that drafts best at a temperature, as far as is known.
    size_t best(double temperature) const;

    // Whether all choices should be compared in the next block, which takes a pass over the vocabulary for
    // each.
    bool compares(double temperature) const;

    // A block is over: the picks of its places, from the first on (empty: they were not compared), and the
    // tokens that the target has written there.
    void saw(double temperature, const std::vector<Picks> & picks, const std::vector<Token> & written);

    // Places compared at a temperature and hits of each choice, older ones counted as what is left of them.
    double compared(double temperature) const { return counts_[band(temperature)].places; }
    std::array<double, n_sharpness> hits(double temperature) const { return counts_[band(temperature)].hits; }

  private:
    struct Counts {
        double places = 0;
        std::array<double, n_sharpness> hits{};
        std::uint64_t blocks = 0;
    };
    static constexpr size_t n_bands = 6;

    // What is learnt at one temperature holds for those near it.
    static size_t band(double temperature);

    std::array<Counts, n_bands> counts_{};
};

} // namespace dflash
