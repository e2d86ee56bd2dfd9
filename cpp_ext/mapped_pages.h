// Pages of a mapped file that nothing is computed with.
#pragma once

#include "llama.h"

namespace dflash {

// Give back what a model's tensors left in the mapping of its file when llama.cpp copied them elsewhere, to a
// GPU or repacked for the CPU: it keeps all from the first tensor to the last that stayed. The file is still
// there to be read, so that it changes no result; does nothing where the system has no such call.
void drop_copied_pages(const llama_model * model);

} // namespace dflash
