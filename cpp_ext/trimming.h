// Which part of drafted blocks is worth verifying, and what drafting blocks of a width brings on average if
// only that part is. Pure.
#pragma once

#include "costs.h"

#include <functional>
#include <vector>

namespace dflash {

// Expected tokens of one block by the rows that are verified: [0] for 1 row, which is the anchor's, and so
// on.
using Expected = std::vector<double>;

struct Trimmed {
    int width = 1;
    double tokens = 0;
    double cost = 0; // nanoseconds, the draft's left out
};

// The width, the same for all blocks, at which tokens less price x cost is most. price: tokens that a
// nanosecond is worth. cost: of a verify of some width that brings so many tokens.
Trimmed best_trim(const std::vector<const Expected *> & blocks, const std::vector<int> & widths, double price,
                  const std::function<double(int width, double tokens)> & cost);

// Tokens per nanosecond of rounds that draft for `sequences` blocks at a time and verify the best part of
// them, on average over the blocks given: the fixed point of Dinkelbach's method (1967).
double trimmed_rate(const std::vector<Expected> & blocks, int sequences, const std::vector<int> & widths,
                    double draft_cost, const std::function<double(int width, double tokens)> & cost);

} // namespace dflash
