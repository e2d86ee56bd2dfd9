// Large pages for weights that were copied into memory.
#pragma once

#include "llama.h"

namespace dflash {

// Ask the system to keep a model's host buffers in large pages, now rather than when it finds time. A model
// that fits the caches is read faster than 4 KiB pages can be looked up. Does nothing where there are none:
// it changes no result.
void use_huge_pages(const llama_model * model);

} // namespace dflash
