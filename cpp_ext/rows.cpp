#include "rows.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace dflash {

namespace {

// Values a thread takes at a time: their f32 copies stay in the second-level cache.
constexpr int64_t values_per_step = 1 << 15;

void to_f32(const RowJob & job, const char * source, float * values, int64_t count) {
    switch (job.source_type) {
    case GGML_TYPE_F16:
        ggml_fp16_to_fp32_row(reinterpret_cast<const ggml_fp16_t *>(source), values, count);
        break;
    case GGML_TYPE_BF16:
        ggml_bf16_to_fp32_row(reinterpret_cast<const ggml_bf16_t *>(source), values, count);
        break;
    case GGML_TYPE_F32:
        // copied even though f32 already: the buffer need not be aligned for float
        std::memcpy(values, source, static_cast<size_t>(count) * sizeof(float));
        break;
    default:
        ggml_get_type_traits(job.source_type)->to_float(source, values, count);
    }
}

// The largest magnitude among `count` values, as the bits of one without its sign: these order as the
// magnitudes do, infinities and NaNs last.
template <typename Bits> Bits largest(const char * values, int64_t count) {
    constexpr Bits no_sign = static_cast<Bits>(~(Bits(1) << (8 * sizeof(Bits) - 1)));
    Bits result = 0;
    for (int64_t i = 0; i < count; ++i) {
        Bits bits;
        std::memcpy(&bits, values + i * sizeof(Bits), sizeof(Bits));
        result = std::max(result, static_cast<Bits>(bits & no_sign));
    }
    return result;
}

bool all_finite(ggml_type type, const char * values, int64_t count) {
    switch (type) {
    case GGML_TYPE_F16:
        return largest<uint16_t>(values, count) < 0x7c00;
    case GGML_TYPE_BF16:
        return largest<uint16_t>(values, count) < 0x7f80;
    default:
        return largest<uint32_t>(values, count) < 0x7f800000;
    }
}

// f16 values that became infinite; their sources are finite
int64_t count_infinities(const char * target, int64_t count) {
    int64_t infinities = 0;
    for (int64_t i = 0; i < count; ++i) {
        uint16_t bits;
        std::memcpy(&bits, target + i * 2, sizeof(bits));
        infinities += (bits & 0x7fff) == 0x7c00;
    }
    return infinities;
}

// Whether quantised rows are sound. llama.cpp's own check prints what it finds, so where it could find
// something, because a block's f16 scale may be infinite, the values are looked at instead.
bool holds(const RowJob & job, std::vector<float> & values, const char * target, int64_t rows) {
    constexpr uint32_t bits_of_60000 = 0x476a6000;
    const int64_t count = rows * job.columns;
    char * bytes = reinterpret_cast<char *>(values.data());
    if (largest<uint32_t>(bytes, count) <= bits_of_60000) {
        return ggml_validate_row_data(job.target_type, target,
                                      rows * ggml_row_size(job.target_type, job.columns));
    }
    ggml_get_type_traits(job.target_type)->to_float(target, values.data(), count);
    return all_finite(GGML_TYPE_F32, bytes, count);
}

constexpr int64_t none = -1;

struct Outcome {
    std::atomic<int64_t> next{0};
    std::atomic<int64_t> overflows{0};
    std::atomic<int64_t> bad_row{none};    // near it a value does not fit the target type
    std::atomic<int64_t> not_finite{none}; // near it a source value is infinite or not a number
    std::atomic<bool> out_of_memory{false};
};

void work(const RowJob & job, Outcome & outcome) {
    const int64_t step = std::max<int64_t>(1, values_per_step / job.columns);
    const size_t source_row = ggml_row_size(job.source_type, job.columns);
    const size_t target_row = ggml_row_size(job.target_type, job.columns);
    std::vector<float> values(static_cast<size_t>(step * job.columns));
    while (outcome.bad_row == none && outcome.not_finite == none) {
        const int64_t first = outcome.next.fetch_add(step);
        if (first >= job.rows) {
            return;
        }
        const int64_t rows = std::min(step, job.rows - first);
        const int64_t count = rows * job.columns;
        char * target = job.target + first * target_row;
        const char * source = job.source + first * source_row;
        const bool quantized = ggml_is_quantized(job.source_type);
        if (quantized) {
            to_f32(job, source, values.data(), count);
        }
        // a NaN would end up as some number
        if (!(quantized ? all_finite(GGML_TYPE_F32, reinterpret_cast<char *>(values.data()), count)
                        : all_finite(job.source_type, source, count))) {
            outcome.not_finite = first;
            return;
        }
        if (job.source_type == job.target_type) {
            std::memcpy(target, source, rows * source_row);
            continue;
        }
        if (!quantized) {
            to_f32(job, source, values.data(), count);
        }
        ggml_quantize_chunk(job.target_type, values.data(), target, 0, rows, job.columns, job.importance);
        if (job.target_type == GGML_TYPE_F16) {
            outcome.overflows += count_infinities(target, count);
        } else if (ggml_is_quantized(job.target_type) && !holds(job, values, target, rows)) {
            outcome.bad_row = first;
        }
    }
}

// An exception that left a helper thread would end the process.
void work_safely(const RowJob & job, Outcome & outcome) noexcept {
    try {
        work(job, outcome);
    } catch (const std::exception &) {
        outcome.out_of_memory = true;
        outcome.next = job.rows;
    }
}

} // namespace

RowResult convert_rows(const RowJob & job, int threads) {
    Outcome outcome;
    const int64_t step = std::max<int64_t>(1, values_per_step / job.columns);
    const int64_t useful = std::min<int64_t>(threads, (job.rows + step - 1) / step);
    std::vector<std::thread> helpers;
    helpers.reserve(static_cast<size_t>(useful));
    for (int64_t i = 1; i < useful; ++i) {
        try {
            helpers.emplace_back(work_safely, std::cref(job), std::ref(outcome));
        } catch (const std::system_error &) {
            break; // no more threads to be had: the ones there are do it all
        }
    }
    work_safely(job, outcome);
    for (std::thread & helper : helpers) {
        helper.join();
    }
    if (outcome.out_of_memory) {
        throw std::bad_alloc();
    }
    return {outcome.overflows, outcome.not_finite, outcome.bad_row};
}

} // namespace dflash
