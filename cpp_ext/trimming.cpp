#include "trimming.h"

#include <algorithm>
#include <limits>

namespace dflash {

Trimmed best_trim(const std::vector<const Expected *> & blocks, const std::vector<int> & widths, double price,
                  const std::function<double(int width, double tokens)> & cost) {
    Trimmed best;
    double most = -std::numeric_limits<double>::infinity();
    for (const int width : widths) {
        double tokens = 0;
        for (const Expected * of_one : blocks) {
            tokens += (*of_one)[std::min(of_one->size(), static_cast<size_t>(width)) - 1];
        }
        const double ns = cost(width, tokens);
        const double worth = tokens - price * ns;
        if (worth > most) {
            most = worth;
            best = {width, tokens, ns};
        }
    }
    return best;
}

double trimmed_rate(const std::vector<Expected> & blocks, int sequences, const std::vector<int> & widths,
                    double draft_cost, const std::function<double(int width, double tokens)> & cost) {
    constexpr int most_steps = 8;
    double rate = 0;
    const size_t together = static_cast<size_t>(sequences);
    const size_t rounds = std::max<size_t>(1, blocks.size() / together);
    for (int step = 0; step < most_steps; ++step) {
        double tokens = 0;
        double ns = 0;
        for (size_t round = 0; round < rounds; ++round) {
            std::vector<const Expected *> group;
            for (size_t i = 0; i < together; ++i) {
                group.push_back(&blocks[(round * together + i) % blocks.size()]);
            }
            const Trimmed trimmed = best_trim(group, widths, rate, cost);
            tokens += trimmed.tokens;
            ns += trimmed.cost + draft_cost;
        }
        const double better = tokens / ns;
        if (better <= rate * (1 + 1e-3)) {
            return std::max(better, rate);
        }
        rate = better;
    }
    return rate;
}

} // namespace dflash
