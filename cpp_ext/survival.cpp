#include "survival.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace dflash {

namespace {

constexpr double kept = 0.98;                // what fading leaves: about 50 rounds count
constexpr double kept_of_confidence = 0.995; // what a confidence means changes less with the subject
constexpr double first_guess = 0.85; // published drafters accept 0.90 to 0.93 of the first tokens, less later
constexpr double guess_weight = 2;
constexpr double pool_weight = 4;

// Upper ends of the buckets. The best of two logits whose difference is d has the confidence 1 / (1 +
// exp(-d)).
constexpr std::array<float, 11> bucket_ends = {0.2f,  0.4f,  0.53f, 0.56f,   0.62f,  0.73f,
                                               0.82f, 0.92f, 0.98f, 0.9975f, 0.9999f};

} // namespace

int Survival::bucket(float confidence) {
    const auto end = std::upper_bound(bucket_ends.begin(), bucket_ends.end(), confidence);
    return static_cast<int>(end - bucket_ends.begin());
}

void Survival::saw(const std::vector<float> & confidence, int tested, int accepted) {
    // Behind the first token that was not accepted nothing was put to the test.
    const int outcomes = std::min(tested, accepted + 1);
    if (static_cast<int>(positions_.size()) < outcomes) {
        positions_.resize(static_cast<size_t>(outcomes));
    }
    for (int i = 0; i < outcomes; ++i) {
        const double hit = i < accepted ? 1 : 0;
        const auto count = [hit](Count & into) {
            into.tested += 1;
            into.accepted += hit;
        };
        count(all_);
        count(positions_[static_cast<size_t>(i)]);
        if (i < static_cast<int>(confidence.size())) {
            count(by_confidence_[static_cast<size_t>(bucket(confidence[static_cast<size_t>(i)]))]);
        }
    }
}

void Survival::fade() {
    const auto less = [](Count & count, double share) {
        count.tested *= share;
        count.accepted *= share;
    };
    less(all_, kept);
    for (Count & count : positions_) {
        less(count, kept);
    }
    for (Count & count : by_confidence_) {
        less(count, kept_of_confidence);
    }
}

double Survival::chance(int position) const {
    const double pooled = all_.share(first_guess, guess_weight);
    if (position >= static_cast<int>(positions_.size())) {
        return pooled;
    }
    return positions_[static_cast<size_t>(position)].share(pooled, pool_weight);
}

double Survival::chance(int position, float confidence) const {
    // until it is known what a confidence means: no more than it says
    const double guess = std::min<double>(confidence, chance(position));
    return by_confidence_[static_cast<size_t>(bucket(confidence))].share(guess, pool_weight);
}

std::vector<std::pair<double, double>> Survival::outcomes() const {
    std::vector<std::pair<double, double>> counts;
    for (const Count & count : positions_) {
        counts.emplace_back(count.tested, count.accepted);
    }
    return counts;
}

void Survival::remember(const std::vector<std::pair<double, double>> & outcomes, double weight) {
    positions_.clear();
    all_ = {};
    for (const auto & [tested, accepted] : outcomes) {
        if (!(std::isfinite(tested) && accepted >= 0 && accepted <= tested)) {
            throw std::invalid_argument("outcomes of drafts are " + std::to_string(accepted) +
                                        " accepted of " + std::to_string(tested) +
                                        " tested; expected 0 to as many");
        }
        const double scale = tested > weight ? weight / tested : 1;
        positions_.push_back({tested * scale, accepted * scale});
        all_.tested += tested * scale;
        all_.accepted += accepted * scale;
    }
}

} // namespace dflash
