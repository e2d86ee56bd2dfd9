// Softmax over a whole vocabulary, fast enough for every row of a block.
#pragma once

namespace dflash {

// sum = the sum of exp((x - top) / temperature) over n values, top = the largest. NaN counts as nothing; no
// comparable value at all, or an infinite one, gives sum 0.
struct ExpSum {
    float top;
    double sum;

    // Log of the softmax's probability of a value.
    double log_share(float value, double temperature = 1) const;
};

ExpSum exp_sum(const float * values, int n, double temperature = 1);

// out[i] = scale * exp((values[i] - top) / temperature), to seven digits; NaN gives 0.
void exponentials(const float * values, int n, float top, double temperature, float scale, float * out);

} // namespace dflash
