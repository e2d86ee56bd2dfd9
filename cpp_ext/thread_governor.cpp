#include "thread_governor.h"

#include <algorithm>
#include <cmath>

namespace dflash {

namespace {

constexpr double window = 0.05; // seconds to judge by; a hindered decode alone takes longer
constexpr double wanted = 0.8;  // share of the cores that a decode gets where nobody else wants them
constexpr long few = 2;         // threads that sleep for want of work get little too, but are not taken off
constexpr double first_pause = 0.1;  // most company is gone soon
constexpr double longest_pause = 30; // reached by doubling: a vain try costs a hindered decode or more

} // namespace

void ThreadGovernor::saw(const DecodeFacts & facts, double now) {
    wall_ += facts.wall;
    cpu_ += facts.cpu;
    due_ += facts.wall * facts.threads;
    preempted_ += facts.preempted;
    if (wall_ < window) {
        return;
    }
    const int got = static_cast<int>(std::floor(cpu_ / wall_ + 0.1)); // cores, on average
    const bool hindered = threads_ > 1 && preempted_ >= few && cpu_ < wanted * due_;
    if (hindered) {
        threads_ = std::clamp(got, 1, threads_ - 1);
        pause_ = std::clamp(2 * pause_, first_pause, longest_pause);
        retry_at_ = now + pause_;
    } else if (threads_ == most_) {
        pause_ = std::max(0.0, pause_ - wall_); // as it goes well, trust comes back
    } else if (now >= retry_at_) {
        threads_ = most_;
    }
    wall_ = cpu_ = due_ = 0;
    preempted_ = 0;
}

} // namespace dflash
