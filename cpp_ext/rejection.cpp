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
        const bool stays = drawing.stays(i) * drawn.of(token) < p.of(token);
        const Token other = stays ? token : p.residual(drawn, drawing.replacement(i));
        if (other < 0) { // nothing is left where p and q are the same but for rounding
            return {i, drawing.choose(i)};
        }
        const Token settled = drawing.settle ? drawing.settle(i, other) : other;
        if (!stays || settled != token) {
            return {i, settled};
        }
    }
    return {n, drawing.choose(n)};
}

} // namespace dflash
