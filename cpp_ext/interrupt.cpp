#include "interrupt.h"

#include "stopwatch.h"

namespace dflash {

void Interrupt::set() {
    std::int64_t unset = 0;
    since_.compare_exchange_strong(unset, now_ns(), std::memory_order_acq_rel);
}

bool Interrupt::due() {
    if (countdown_ > 0 && --countdown_ == 0) {
        since_ = now_ns() - patience;
    }
    const std::int64_t since = since_.load(std::memory_order_acquire);
    return since != 0 && now_ns() - since >= patience;
}

} // namespace dflash
