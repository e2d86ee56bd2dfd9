// Large pages for what is computed with: weights that were copied into memory, and a context's buffers.
#pragma once

#include "llama.h"

#include <cstdint>
#include <string>
#include <vector>

namespace dflash {

// Ask the system to keep a model's host buffers in large pages, now rather than when it finds time. A model
// that fits the caches is read faster than 4 KiB pages can be looked up. Does nothing where there are none:
// it changes no result.
void use_huge_pages(const llama_model * model);

// Addresses, the last one exclusive.
struct Region {
    std::uintptr_t from = 0;
    std::uintptr_t to = 0;
};

// The private, writable regions without a file in a Linux process's table of them (/proc/self/maps).
std::vector<Region> anonymous_regions(const std::string & table);

// What lies in `now` and not in `before`; both in order of addresses.
std::vector<Region> added(const std::vector<Region> & before, const std::vector<Region> & now);

// The memory that is taken between the making of this and `use`: llama.cpp does not tell where a context's
// buffers lie.
class NewMemory {
  public:
    NewMemory();
    void use_huge_pages() const;

  private:
    std::vector<Region> before_;
};

} // namespace dflash
