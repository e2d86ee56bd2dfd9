#include "softmax.h"

#include "decide.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace dflash {

namespace {

constexpr int lanes = 16;
constexpr int chunk = 1024; // a multiple of lanes

// exp(x) for x <= 0 without a branch or a call, so that loops over it vectorise: 2^k times a polynomial on
// [-ln 2 / 2, ln 2 / 2] (the coefficients of Cephes' expf). Below -87, and for NaN, 0.
inline float exp_of(float x) {
    const float clipped = x > -87.0f ? x : -87.0f;
    constexpr float shift = 12582912.0f; // 1.5 * 2^23: adding it rounds to a whole number
    const float k = (clipped * 1.44269504f + shift) - shift;
    const float r = (clipped - k * 0.693359375f) + k * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    const std::int32_t bits = (static_cast<std::int32_t>(k) + 127) << 23;
    float power;
    std::memcpy(&power, &bits, sizeof(power));
    return x > -87.0f ? p * power : 0.0f;
}

} // namespace

double ExpSum::log_share(float value, double temperature) const {
    return (static_cast<double>(value) - top) / temperature - std::log(sum);
}

ExpSum exp_sum(const float * values, int n, double temperature) {
    const float top = largest(values, n);
    if (!std::isfinite(top)) {
        return {top, 0};
    }
    const float inverse = static_cast<float>(1 / temperature);
    double sum = 0;
    for (int start = 0; start < n; start += chunk) {
        const int count = std::min(chunk, n - start);
        float sums[lanes] = {};
        int i = 0;
        for (; i + lanes <= count; i += lanes) {
            for (int k = 0; k < lanes; ++k) {
                sums[k] += exp_of((values[start + i + k] - top) * inverse);
            }
        }
        for (; i < count; ++i) {
            sums[0] += exp_of((values[start + i] - top) * inverse);
        }
        for (const float part : sums) {
            sum += part;
        }
    }
    return {top, sum};
}

void exponentials(const float * values, int n, float top, double temperature, float scale, float * out) {
    const float inverse = static_cast<float>(1 / temperature);
    for (int i = 0; i < n; ++i) {
        out[i] = scale * exp_of((values[i] - top) * inverse);
    }
}

} // namespace dflash
