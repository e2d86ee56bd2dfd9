// Acceptance of drafted tokens that are samples themselves: speculative sampling (Leviathan et al. 2023,
// arXiv 2211.17192; Chen et al. 2023, arXiv 2302.01318).
#pragma once

#include "decide.h"
#include "distribution.h"

#include <functional>
#include <vector>

namespace dflash {

// What acceptance asks for; row i is the target's after the anchor and i drafted tokens.
struct Drawing {
    std::function<Distribution(int)> target; // p of row i
    std::function<Token(int)> choose;        // the target's own draw from row i
    std::function<double(int)> stays;        // uniform in (0, 1), one for each row
    std::function<double(int)> replacement;  // likewise, and independent of it
    // The token to write for one drawn from row i, another one where that is forbidden. Empty: the token.
    // `choose` settles its own.
    std::function<Token(int, Token)> settle = {};
};

// Drafted token i, a sample of q[i], stays with probability min(1, p / q); the first that does not is
// replaced by a sample of max(0, p - q), and where all stay the target's own draw follows. Then every token
// is a sample of p. A row without a q counts as certain. bonus -1: the target has nothing to choose.
Accepted accept_drawn(const std::vector<Token> & drafted, const std::vector<Distribution> & q,
                      const Drawing & drawing);

} // namespace dflash
