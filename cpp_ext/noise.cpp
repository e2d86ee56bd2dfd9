#include "noise.h"

namespace dflash {

const std::array<double, 40> noise_bounds = [] {
    std::array<double, 40> made{};
    for (size_t i = 0; i < made.size(); ++i) {
        made[i] = std::exp(-std::exp(-static_cast<double>(i))) * (1 - 1e-12);
    }
    return made;
}();

std::uint64_t stream_of(std::uint64_t seed, std::int32_t position, Purpose purpose) {
    const std::uint64_t text =
        mixed(mixed(seed + 0x9e3779b97f4a7c15ULL) ^ static_cast<std::uint64_t>(position));
    return purpose == Purpose::token ? text : mixed(text + static_cast<std::uint64_t>(purpose));
}

double gumbel(std::uint64_t seed, std::int32_t position, Token token) {
    return -std::log(-std::log(uniform(stream_of(seed, position), token)));
}

} // namespace dflash
