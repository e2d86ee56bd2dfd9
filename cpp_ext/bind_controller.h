// How costs cross from Python.
#pragma once

#include "controller.h"

#include <tuple>
#include <utility>
#include <vector>

namespace dflash {

// sequences, width, nanoseconds of draft, verify and inject, injected rows
using CostRow = std::tuple<int, int, double, double, double, int>;
// sequences, width, nanoseconds of one more snapshot
using SlotRow = std::tuple<int, int, double>;
// width, nanoseconds of draft and verify, tokens per nanosecond
using Estimate = std::tuple<int, double, double, double>;

Calibration calibration(const std::vector<CostRow> & points, int depth, const std::vector<SlotRow> & slots,
                        double rebuild, double shift, bool rough);
std::vector<Estimate> estimates(const Controller & controller, int widest, int sequences, int depth);

} // namespace dflash
