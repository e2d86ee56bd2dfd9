#include "sharpness.h"

#include <algorithm>
#include <cmath>

namespace dflash {

namespace {

constexpr size_t first_choice = 2;
constexpr double head_start = 2;    // hits that another choice must be ahead of it
constexpr double kept = 0.998;      // what a block that is compared leaves of those before
constexpr double enough = 400;      // places after which choices are compared more seldom:
constexpr std::uint64_t seldom = 8; // in one of so many blocks
constexpr std::array<double, 5> band_ends = {0.25, 0.5, 0.75, 1.05, 1.5}; // of temperatures

} // namespace

const std::array<double, n_sharpness> sharpness_choices = {1, 1.5, 3, INFINITY};

size_t Sharpness::band(double temperature) {
    const auto end = std::upper_bound(band_ends.begin(), band_ends.end(), temperature);
    return static_cast<size_t>(end - band_ends.begin());
}

size_t Sharpness::best(double temperature) const {
    std::array<double, n_sharpness> hits = counts_[band(temperature)].hits;
    hits[first_choice] += head_start;
    return static_cast<size_t>(std::max_element(hits.begin(), hits.end()) - hits.begin());
}

bool Sharpness::compares(double temperature) const {
    const Counts & counts = counts_[band(temperature)];
    return counts.places < enough || counts.blocks % seldom == 0;
}

void Sharpness::saw(double temperature, const std::vector<Picks> & picks,
                    const std::vector<Token> & written) {
    Counts & counts = counts_[band(temperature)];
    ++counts.blocks;
    const size_t places = std::min(picks.size(), written.size());
    if (places == 0) {
        return;
    }
    counts.places *= kept;
    for (double & hits : counts.hits) {
        hits *= kept;
    }
    counts.places += static_cast<double>(places);
    for (size_t i = 0; i < places; ++i) {
        for (size_t choice = 0; choice < n_sharpness; ++choice) {
            counts.hits[choice] += picks[i][choice] == written[i] ? 1 : 0;
        }
    }
}

} // namespace dflash
