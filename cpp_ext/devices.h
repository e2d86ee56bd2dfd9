// What this build of llama.cpp can run on.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace dflash {

struct Device {
    std::string name;
    std::string description;
    std::string backend;
    std::string kind; // "cpu", "gpu", "igpu", "accelerator"
    size_t memory_free;
    size_t memory_total;
};

std::vector<Device> devices();

} // namespace dflash
