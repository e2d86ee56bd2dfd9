#include "rejection.h"

namespace dflash {

Accepted accept_drawn(const std::vector<Token> & drafted, const std::vector<Distribution> & q,
                      const Drawing & drawing) {
    const int n = static_cast<int>(drafted.size());
    for (int i = 0; i < n; ++i) {
        const Token token = drafted[static_cast<size_t>(i)];
        const Distribution p = drawing.target(i);
        if (p.empty()) {
            return {i, -1};
        }
        const Distribution certain =
            static_cast<size_t>(i) < q.size() ? Distribution() : Distribution::certain(token);
        const Distribution & drawn = certain.empty() ? q[static_cast<size_t>(i)] : certain;
        if (drawing.stays(i) * drawn.of(token) < p.of(token)) {
            continue;
        }
        const Token other = p.residual(drawn, drawing.replacement(i));
        // nothing is left where p and q are the same but for rounding
        return {i, other >= 0 ? other : drawing.choose(i)};
    }
    return {n, drawing.choose(n)};
}

} // namespace dflash
