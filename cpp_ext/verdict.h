// What a verify says: the tokens of the text that follow the anchor. No handles, no clock.
#pragma once

#include "drafter.h"

#include <functional>
#include <string>
#include <unordered_set>
#include <vector>

namespace dflash {

struct Verdict {
    std::vector<Token> tokens; // accepted drafts, then the target's own token
    int accepted = 0;
    std::string
        problem; // why the target's own token is missing, by the request's fault; empty if it is there
};

// logits(i): the target's after the anchor and i drafted tokens, n_vocab of them. No row past the first
// difference is looked at, nor one past a stop token. forced: take so many drafts, whatever the target says.
// Throws std::runtime_error if the logits are not numbers.
Verdict judge(Sampler & sampler, const DraftRequest & request, int n_vocab,
              const std::function<const float *(int)> & logits, const std::unordered_set<Token> & stops,
              std::optional<int> forced);

} // namespace dflash
