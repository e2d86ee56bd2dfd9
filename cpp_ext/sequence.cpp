#include "sequence.h"

namespace dflash {

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
