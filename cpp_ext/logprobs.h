// Log-probabilities of a text's tokens, by the model itself: the softmax of its logits at temperature 1,
// before penalties, biases, filters and grammars.
#pragma once

#include "decide.h"

#include <utility>
#include <vector>

namespace dflash {

struct Logprobs {
    float own;                                // natural log, of the token that was written
    std::vector<std::pair<Token, float>> top; // the most likely tokens, best first
};

// Of `token` and the `count` most likely ones in a row of n logits; -inf where the row holds no numbers.
Logprobs logprobs(const float * logits, int n, Token token, int count);

} // namespace dflash
