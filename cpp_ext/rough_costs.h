// Costs that were measured while other programs took the cores. Pure.
#pragma once

#include "costs.h"

namespace dflash {

// What can be believed of such a calibration. Others only make times longer, and some of a few by ten times
// or more, so that a width that pays would never be tried: no time is left longer than that of a wider round,
// or than what such a round costs about, reckoned from one row. Leaves the order of points as it is.
Calibration believable(Calibration measured);

} // namespace dflash
