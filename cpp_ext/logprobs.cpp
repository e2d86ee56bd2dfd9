#include "logprobs.h"

#include "filters.h"
#include "softmax.h"

#include <cmath>

namespace dflash {

Logprobs logprobs(const float * logits, int n, Token token, int count) {
    const ExpSum sum = exp_sum(logits, n);
    const auto of = [&](float logit) {
        return logit > -INFINITY && sum.sum > 0 ? static_cast<float>(sum.log_share(logit)) : -INFINITY;
    };
    Logprobs found{of(logits[token]), {}};
    if (count > 0) {
        for (const Candidate & candidate : largest(logits, n, static_cast<size_t>(count))) {
            found.top.emplace_back(candidate.token, of(candidate.logit));
        }
    }
    return found;
}

} // namespace dflash
