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
    bool remote;
    size_t memory_free; // of remote devices 0, which are not asked
    size_t memory_total;
};

// Whether devices of a backend of this name are on other machines. A device's own name and kind do not tell:
// llama.cpp numbers remote devices like any others ("RPC0") and takes each of them for a GPU.
bool is_remote(const std::string & backend);

std::vector<Device> devices();

} // namespace dflash
