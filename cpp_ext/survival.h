// How likely drafted tokens are to be accepted, learnt from outcomes. Pure: no clock, no randomness.
#pragma once

#include <array>
#include <vector>

namespace dflash {

// Estimates P(position i is accepted | all before it were), by position and by the draft's own confidence.
// That means nothing by itself: what share of the tokens with such a confidence was accepted is counted. Old
// outcomes fade, so that a change of subject is noticed.
class Survival {
  public:
    // One block: the confidence in its drafted tokens (empty: unknown), how many of them were put to the test
    // and how many were accepted.
    void saw(const std::vector<float> & confidence, int tested, int accepted);

    // A round is over: what was seen before it counts a little less.
    void fade();

    // Conditional chance of a position from 0 on, as it stands on average.
    double chance(int position) const;
    // The same for a token drafted with this confidence.
    double chance(int position, float confidence) const;

    // Outcomes seen, faded ones counted as what is left of them.
    double evidence() const { return all_.tested; }

    // Outcomes by position for `remember`, as pairs (tested, accepted).
    std::vector<std::pair<double, double>> outcomes() const;
    // Begin with outcomes of an earlier run, scaled down to at most `weight` tested ones a position. Throws
    // std::invalid_argument for more accepted than tested, or what is no number.
    void remember(const std::vector<std::pair<double, double>> & outcomes, double weight);

  private:
    struct Count {
        double tested = 0;
        double accepted = 0;
        // the share accepted, as if `weight` outcomes with the share `prior` had been seen before
        double share(double prior, double weight) const {
            return (accepted + weight * prior) / (tested + weight);
        }
    };
    static constexpr int n_buckets = 12;

    static int bucket(float confidence);

    Count all_;
    std::vector<Count> positions_;
    std::array<Count, n_buckets> by_confidence_{};
};

} // namespace dflash
