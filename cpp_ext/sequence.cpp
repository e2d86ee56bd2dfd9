#include "sequence.h"

#include <algorithm>

namespace dflash {

std::vector<Token> first_two(const std::vector<Token> & tokens) {
    return {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(std::min<size_t>(2, tokens.size()))};
}

void Shifts::see(const std::vector<Token> & drafted, const std::vector<Token> & written) {
    const Token first = written.front();
    early += awaited_ >= 0 && awaited_ == first ? 1 : 0;
    awaited_ = -1;
    if (drafted.size() < 2) {
        return;
    }
    ++blocks;
    if (drafted[0] == first) {
        ++right;
        return;
    }
    late += drafted[1] == first ? 1 : 0;
    awaited_ = drafted[0];
}

void Counters::count_round(int drafted_now, int accepted_now, int emitted_now) {
    ++rounds;
    emitted += emitted_now;
    accepted += accepted_now;
    drafted += drafted_now;
    drafting_rounds += drafted_now > 0 ? 1 : 0;
    const auto grow = [](std::vector<int> & counts, int n) {
        if (static_cast<int>(counts.size()) < n) {
            counts.resize(static_cast<size_t>(n), 0);
        }
        for (int i = 0; i < n; ++i) {
            ++counts[static_cast<size_t>(i)];
        }
    };
    grow(drafted_at, drafted_now);
    accepted_at.resize(drafted_at.size(), 0);
    grow(accepted_at, accepted_now);
}

} // namespace dflash
