#include "prefix.h"

#include <algorithm>

namespace dflash {

size_t Point::bytes() const {
    return (target ? target->size() : 0) + (draft ? draft->size() : 0);
}

size_t Kept::bytes() const {
    size_t sum = target.size() + draft.size() + waiting.bytes();
    for (const Point & point : points) {
        sum += point.bytes();
    }
    return sum;
}

int common_prefix(const std::vector<Token> & a, const std::vector<Token> & b) {
    const size_t most = std::min(a.size(), b.size());
    const auto end = a.begin() + static_cast<std::ptrdiff_t>(most);
    return static_cast<int>(std::mismatch(a.begin(), end, b.begin()).first - a.begin());
}

int reusable(const std::vector<Token> & prompt, const std::vector<Token> & tokens,
             const std::vector<int> & points, int least_cut, int limit) {
    const int most = std::min({common_prefix(prompt, tokens), static_cast<int>(prompt.size()) - 1, limit});
    if (most >= least_cut) {
        return std::max(most, 0);
    }
    int best = 0;
    for (const int count : points) {
        if (count <= most) {
            best = std::max(best, count);
        }
    }
    return best;
}

int reusable(const std::vector<Token> & prompt, const Kept & kept, bool drafts) {
    std::vector<int> counts;
    for (const Point & point : kept.points) {
        counts.push_back(point.count);
    }
    const int limit = drafts ? kept.covered() : static_cast<int>(kept.tokens.size());
    return reusable(prompt, kept.tokens, counts, kept.least_cut, limit);
}

} // namespace dflash
