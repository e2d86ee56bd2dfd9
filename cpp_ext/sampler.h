// Chooses a token from logits. What is random is a pure function of (seed, position, token), so that a seed
// gives one text whatever is drafted, however wide the blocks are and whoever else is served; and draft and
// target see the same noise, so that they agree more often than two independent draws would.
#pragma once

#include "decide.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace dflash {

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

    bool changes_logits() const;
};

// Gumbel noise of a token at a position of the text: argmax(logit / temperature + noise) is a sample from the
// softmax (Gumbel-max trick; Maddison et al. 2014).
double gumbel(std::uint64_t seed, std::int32_t position, Token token);

class Sampler {
  public:
    Sampler() = default; // greedy
    Sampler(Sampling sampling, const std::vector<Token> & prompt)
        : sampling_(std::move(sampling)), text_(prompt) {}

    // The token at `position` given the logits of all n tokens; `after` stands behind the accepted text.
    // -1 if no logit is a number.
    Token choose(const float * logits, int n, std::int32_t position, const Token * after, int n_after) const;

    // Whether it is the most likely token, whatever the text and the position.
    bool takes_the_best() const { return sampling_.temperature <= 0 && !sampling_.changes_logits(); }

    // The text has grown.
    void accept(const std::vector<Token> & tokens);

  private:
    std::vector<float> changed(const float * logits, int n, const Token * after, int n_after) const;

    Sampling sampling_;
    std::vector<Token> text_;
};

} // namespace dflash
