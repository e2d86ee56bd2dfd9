#include "rough_costs.h"

#include <algorithm>
#include <cmath>

namespace dflash {

namespace {

constexpr double of_verify =
    0.3; // at most, of a draft or an injection: a drafter is much smaller than its target
constexpr double most_of_slots = 0.6; // of a verify

// A verify of some rows in verifies of one. Rows share the reading of weights, not the computing: on CPUs 2
// to 16 rows of a sequence were measured to cost between half and twice this.
double guessed(int sequences, int rows) {
    return sequences * std::pow(rows, 0.6);
}

void cut(double & ns, double most) {
    ns = std::min(ns, most);
}

} // namespace

Calibration believable(Calibration measured) {
    std::vector<CostPoint> & points = measured.points;
    for (CostPoint & point : points) {
        for (const CostPoint & other : points) {
            if (other.sequences == point.sequences && other.width > point.width) {
                cut(point.verify, other.verify);
                if (point.width > 1) {
                    cut(point.draft, other.draft);
                }
            }
        }
    }
    double row = INFINITY;
    for (const CostPoint & point : points) {
        if (point.sequences == 1 && point.width == 1) {
            row = point.verify;
        }
    }
    for (CostPoint & point : points) {
        const double most = row * guessed(point.sequences, point.width);
        cut(point.verify, most);
        cut(point.draft, of_verify * most);
        cut(point.inject, of_verify * row * guessed(1, point.injected));
    }
    for (SlotCost & slot : measured.slots) {
        cut(slot.ns, most_of_slots * row * guessed(slot.sequences, slot.width) / std::max(1, measured.depth));
    }
    cut(measured.rebuild, row);
    return measured;
}

} // namespace dflash
