// Candidates for a token: the filters of llama.cpp's samplers over the logits of a row.
#pragma once

#include "decide.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace dflash {

enum class DraftSampling {
    gumbel,   // draft and target choose with the same noise; accepted where they agree
    rejection // drafted tokens are samples of the draft's distribution, accepted by min(1, p / q)
};

// Filters in llama.cpp's order: penalties and biases, top_k, typical, top_p, min_p, temperature.
struct Sampling {
    float temperature = 0; // 0: the most likely token after penalties and biases
    int top_k = 0;         // most likely tokens kept; 0: all
    float typical = 1;     // locally typical sampling (Meister et al. 2022); 1: off
    float top_p = 1;       // nucleus (Holtzman et al. 2019); 1: off
    float min_p = 0;       // least probability as a share of the largest; 0: off
    float repeat = 1;      // logits of recent tokens are divided (if positive) or multiplied by this
    float frequency = 0;   // subtracted per occurrence among the recent tokens
    float presence = 0;    // subtracted once if among them
    int last_n = 64;       // how many tokens are recent, the prompt's included; -1: all
    std::vector<std::pair<Token, float>> bias;
    std::uint64_t seed = 0;
    DraftSampling draft = DraftSampling::gumbel;

    bool changes_logits() const;
    bool narrows() const; // some filter may drop tokens
};

struct Candidate {
    Token token;
    float logit;
};

// Best first; on equal logits the lower id.
bool before(const Candidate & a, const Candidate & b);

// The `count` largest, in order; NaN and -inf are left out.
std::vector<Candidate> largest(const float * logits, int n, size_t count);

// What top_k, typical, top_p and min_p leave of n tokens, best first; at least one if any logit is a number.
std::vector<Candidate> filtered(const float * logits, int n, const Sampling & sampling);

} // namespace dflash
