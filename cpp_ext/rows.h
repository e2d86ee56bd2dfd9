// Rows of floats into any ggml type, by ggml's own code, on several threads.
#pragma once

#include "ggml.h"

#include <cstdint>

namespace dflash {

// Sizes and types must have been checked: ggml ends the process over wrong ones. The buffers hold
// rows * ggml_row_size() bytes and need no alignment. `importance` is null or weighs each of the columns.
struct RowJob {
    const char * source;
    char * target;
    ggml_type source_type;
    ggml_type target_type;
    int64_t rows;
    int64_t columns;
    const float * importance = nullptr;
};

struct RowResult {
    int64_t overflows = 0;   // values that became infinite in f16
    int64_t not_finite = -1; // a row near which a source value is infinite or not a number
    int64_t bad_row = -1;    // a row near which a value is too large for the target type
};

// The target is whole only if both rows of the result are -1. The bytes do not depend on `threads`, at least
// 1. Throws std::bad_alloc.
RowResult convert_rows(const RowJob & job, int threads);

} // namespace dflash
