#include "costs.h"

#include "rough_costs.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace dflash {

namespace {

constexpr double drift_step = 0.2;
constexpr double cell_step = 0.02;
constexpr double most_contrast = 0.7; // in log: the longer of two times was disturbed
constexpr double first_step = 0.3;    // where the model is a guess: rough, or from other numbers of sequences
constexpr int few = 4;                // times
constexpr double most_off = 3; // a round that took this many times longer was disturbed by something else

using Curve = std::vector<std::pair<double, double>>;

// Piecewise linear, with the first and last slopes beyond the ends; never below a tenth of the nearest point.
double at(const Curve & curve, double x) {
    if (curve.size() == 1) {
        return curve[0].second * std::max(1.0, x / std::max(curve[0].first, 1.0));
    }
    size_t right = 1;
    while (right + 1 < curve.size() && curve[right].first < x) {
        ++right;
    }
    const auto & [x0, y0] = curve[right - 1];
    const auto & [x1, y1] = curve[right];
    const double y = y0 + (y1 - y0) * (x - x0) / (x1 - x0);
    return std::max(y, 0.1 * std::min(y0, y1));
}

bool is_time(double ns) {
    return std::isfinite(ns) && ns >= 0;
}

} // namespace

CostTable::CostTable(Calibration calibration, int widest)
    : calibration_(std::move(calibration)), widest_(std::max(widest, 1)) {
    std::vector<CostPoint> & points = calibration_.points;
    std::sort(points.begin(), points.end(), [](const CostPoint & a, const CostPoint & b) {
        return std::make_pair(a.sequences, a.width) < std::make_pair(b.sequences, b.width);
    });
    bool sound = !points.empty() && calibration_.depth >= 0 && points[0].sequences == 1 &&
                 points[0].width == 1 && is_time(calibration_.rebuild) && is_time(calibration_.shift);
    for (const CostPoint & point : points) {
        sound = sound && point.verify > 0 && is_time(point.verify) && is_time(point.draft) &&
                is_time(point.inject) && point.injected >= 1 && point.width >= 1;
    }
    for (const SlotCost & slot : calibration_.slots) {
        sound = sound && slot.sequences >= 1 && slot.width >= 1 && is_time(slot.ns);
    }
    if (!sound) {
        throw std::invalid_argument("a calibration needs times of one sequence with one row, and no negative "
                                    "ones");
    }
    if (calibration_.rough) {
        calibration_ = believable(std::move(calibration_));
    }
    std::sort(calibration_.slots.begin(), calibration_.slots.end(),
              [](const SlotCost & a, const SlotCost & b) {
                  return std::make_pair(a.sequences, a.width) < std::make_pair(b.sequences, b.width);
              });
    for (const CostPoint & point : points) {
        if (grid_.empty() || grid_.back() != point.sequences) {
            grid_.push_back(point.sequences);
        }
        if (point.inject > 0 && (inject_.empty() || point.injected > inject_.back().first)) {
            inject_.emplace_back(point.injected, point.inject);
        }
    }
}

// Between measured widths in proportion, beyond them as at the nearest.
double CostTable::slot(int sequences, int width) const {
    std::map<int, Curve> by_sequences;
    for (const SlotCost & slot : calibration_.slots) {
        by_sequences[slot.sequences].emplace_back(slot.width, slot.ns);
    }
    Curve curve;
    for (const auto & [measured, of_these] : by_sequences) {
        const double x = std::clamp<double>(width, of_these.front().first, of_these.back().first);
        curve.emplace_back(measured, of_these.size() == 1 ? of_these.front().second : at(of_these, x));
    }
    return curve.empty() ? 0 : at(curve, sequences);
}

// Without corrections, drift and snapshots.
double CostTable::model(bool verify, int sequences, int width) const {
    const auto curve_of = [&](int measured) {
        Curve curve;
        for (const CostPoint & point : calibration_.points) {
            if (point.sequences == measured && (verify || point.width > 1)) {
                const double snapshots = slot(measured, point.width) * calibration_.depth;
                curve.emplace_back(point.width, verify ? std::max(point.verify - snapshots, point.verify / 10)
                                                       : point.draft);
            }
        }
        return curve;
    };
    const auto next = std::lower_bound(grid_.begin(), grid_.end(), sequences);
    if (next == grid_.end() || *next != sequences) {
        const int below = next == grid_.begin() ? grid_.front() : *(next - 1);
        const Curve low = curve_of(below);
        if (low.empty()) {
            return 0;
        }
        if (next == grid_.end()) {
            // more sequences than were measured: as much as one would cost with as many rows
            return at(low, static_cast<double>(width) * sequences / below);
        }
        const Curve high = curve_of(*next);
        const double share = static_cast<double>(sequences - below) / (*next - below);
        const double far =
            high.empty() ? at(low, static_cast<double>(width) * *next / below) : at(high, width);
        return at(low, width) * (1 - share) + far * share;
    }
    const Curve curve = curve_of(sequences);
    return curve.empty() ? 0 : at(curve, width);
}

const CostTable::Row & CostTable::row(int sequences) const {
    const auto [entry, fresh] = rows_.try_emplace(sequences);
    Row & row = entry->second;
    if (fresh) {
        for (int width = 1; width <= widest_; ++width) {
            row.slot.push_back(slot(sequences, width));
            row.verify.push_back(model(true, sequences, width));
            row.draft.push_back(width > 1 ? model(false, sequences, width) : 0);
        }
    }
    return row;
}

// Numbers of sequences up to the next power of two are alike: each alone is met too seldom to learn from.
CostTable::Corrections & CostTable::corrections(int sequences) const {
    int octave = 0;
    while ((2 << octave) <= sequences) {
        ++octave;
    }
    Corrections & found = corrections_[octave];
    found.verify.resize(static_cast<size_t>(widest_));
    found.draft.resize(static_cast<size_t>(widest_));
    return found;
}

double CostTable::verify(int sequences, int width, int depth) const {
    const Row & known = row(sequences);
    const size_t i = static_cast<size_t>(width - 1);
    return (known.verify[i] + known.slot[i] * depth) * corrections(sequences).verify[i].factor * drift_;
}

double CostTable::draft(int sequences, int width) const {
    const size_t i = static_cast<size_t>(width - 1);
    return row(sequences).draft[i] * corrections(sequences).draft[i].factor * drift_;
}

double CostTable::inject(int rows) const {
    return inject_.empty() ? 0 : at(inject_, rows) * drift_;
}

void CostTable::saw(Corrections & of, Correction & correction, int sequences, double ns, double expected) {
    if (!(expected > 0) || !is_time(ns)) {
        return;
    }
    const double ratio = std::clamp(ns / expected, 1 / most_off, most_off);
    const bool measured = !calibration_.rough && std::binary_search(grid_.begin(), grid_.end(), sequences);
    double error = std::log(ratio * drift_);
    const bool one_row = &correction == &of.verify[0];
    if (one_row) {
        of.of_row = error;
    }
    if (calibration_.rough && !one_row && of.of_row && correction.seen < few) {
        // nothing is known of it but a guess: its times are, by those of one row, what it costs
        const double step = (error - *of.of_row) / ++correction.seen;
        correction.factor *= std::exp(step);
        error -= step;
    } else if (last_ && last_ != &correction) {
        const double step = measured ? cell_step : std::max(cell_step, first_step / (1 + correction.seen));
        const double contrast = std::clamp(error - last_error_, -most_contrast, most_contrast);
        correction.factor *= std::exp(step * contrast);
        last_->factor *= std::exp(-step * contrast);
        error -= step * contrast;
        ++correction.seen;
    }
    drift_ *= std::pow(ratio, drift_step);
    last_ = &correction;
    last_error_ = error;
}

void CostTable::saw_verify(int sequences, int width, int depth, double ns) {
    Corrections & of = corrections(sequences);
    saw(of, of.verify[static_cast<size_t>(width - 1)], sequences, ns, verify(sequences, width, depth));
}

void CostTable::saw_draft(int sequences, int width, double ns) {
    Corrections & of = corrections(sequences);
    saw(of, of.draft[static_cast<size_t>(width - 1)], sequences, ns, draft(sequences, width));
}

void CostTable::saw_shift(double ns) {
    if (is_time(ns)) {
        calibration_.shift = ns / drift_;
    }
}

} // namespace dflash
