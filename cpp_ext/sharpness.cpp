#include "sharpness.h"

#include <algorithm>
#include <cmath>

namespace dflash {

namespace {

constexpr size_t first_choice = 2;
constexpr double head_start = 2;    // hits that another choice must be ahead of it
constexpr double kept = 0.999;      // what a place leaves of those before
constexpr std::uint64_t seldom = 4; // rounds of which one compares: at 248,320 tokens it takes 0.7 ms
constexpr std::array<double, 5> band_ends = {0.25, 0.5, 0.75, 1.05, 1.5}; // of temperatures

} // namespace

const std::array<double, n_sharpness> sharpness_choices = {1, 1.5, 3, INFINITY};

size_t Sharpness::band(double temperature) {
    static_assert(n_bands == band_ends.size() + 1);
    const auto end = std::upper_bound(band_ends.begin(), band_ends.end(), temperature);
    return static_cast<size_t>(end - band_ends.begin());
}

size_t Sharpness::best(double temperature) const {
    std::array<double, n_sharpness> hits = counts_[band(temperature)].hits;
    hits[first_choice] += head_start;
    return static_cast<size_t>(std::max_element(hits.begin(), hits.end()) - hits.begin());
}

void Sharpness::saw(double temperature, const Picks & picks, Token written) {
    Counts & counts = counts_[band(temperature)];
    counts.places = counts.places * kept + 1;
    for (size_t choice = 0; choice < n_sharpness; ++choice) {
        counts.hits[choice] = counts.hits[choice] * kept + (picks[choice] == written ? 1 : 0);
    }
}

int compared_place(std::uint64_t round, size_t index, size_t sequences, size_t reached) {
    const std::uint64_t turn = round / seldom;
    if (round % seldom != 0 || turn % sequences != index) {
        return -1;
    }
    return static_cast<int>(turn / sequences % reached);
}

} // namespace dflash
