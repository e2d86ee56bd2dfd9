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

namespace dflash {

constexpr size_t n_sharpness = 4;
// The values of s that are compared, rising from 1; the last takes the draft's best token.
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

    // What was picked in a place that was reached, and what the target wrote there.
    void saw(double temperature, const Picks & picks, Token written);

    // Places seen at a temperature and hits of each choice, older ones counted as what is left of them.
    double places(double temperature) const { return counts_[band(temperature)].places; }
    std::array<double, n_sharpness> hits(double temperature) const { return counts_[band(temperature)].hits; }

  private:
    struct Counts {
        double places = 0;
        std::array<double, n_sharpness> hits{};
    };
    static constexpr size_t n_bands = 6;

    // What is learnt at one temperature holds for those near it.
    static size_t band(double temperature);

    std::array<Counts, n_bands> counts_{};
};

// The place of a block in which the choices are compared, or -1. That takes a pass over the vocabulary, so it
// is done in few rounds, for one of their sequences, each in its turn; index: which of them. reached: how
// many tokens its last block brought, at least 1; more are seldom of use.
int compared_place(std::uint64_t round, size_t index, size_t sequences, size_t reached);

} // namespace dflash
