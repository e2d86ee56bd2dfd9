// Tensor types and row conversion for the converter, by llama.cpp's own code.
#pragma once

#include <pybind11/pybind11.h>

namespace dflash {

// Add quantized_types() and convert_rows() to the module.
void bind_quantize(pybind11::module_ & module);

} // namespace dflash
