#include "huge_pages.h"

#include "ggml-backend.h"
#include "llama_ext.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace dflash {

#if defined(__linux__)

namespace {

constexpr std::uintptr_t page = std::uintptr_t{2} << 20;
constexpr int collapse = 25; // MADV_COLLAPSE, which older headers lack; kernels before 6.1 refuse it

// at_once: else as the system finds time, or when a page is first used.
void advise(const Region & region, bool at_once) {
    const std::uintptr_t from = (region.from + page - 1) / page * page;
    const std::uintptr_t to = region.to / page * page;
    if (from < to && madvise(reinterpret_cast<void *>(from), to - from, MADV_HUGEPAGE) == 0 && at_once) {
        madvise(reinterpret_cast<void *>(from), to - from, collapse);
    }
}

std::vector<Region> regions_of_this_process() {
    std::ifstream table("/proc/self/maps");
    return anonymous_regions({std::istreambuf_iterator<char>(table), {}});
}

} // namespace

void use_huge_pages(const llama_model * model) {
    std::set<ggml_backend_buffer_t> buffers;
    for (const auto & entry : llama_internal_get_tensor_map(model)) {
        ggml_backend_buffer_t buffer = entry.second->buffer;
        if (buffer && ggml_backend_buffer_is_host(buffer) && buffers.insert(buffer).second) {
            const auto base = reinterpret_cast<std::uintptr_t>(ggml_backend_buffer_get_base(buffer));
            advise({base, base + ggml_backend_buffer_get_size(buffer)}, true);
        }
    }
}

NewMemory::NewMemory() : before_(regions_of_this_process()) {}

void NewMemory::use_huge_pages() const {
    constexpr std::uintptr_t most_at_once = std::uintptr_t{256} << 20; // some 50 ms of copying
    const std::vector<Region> regions = added(before_, regions_of_this_process());
    std::uintptr_t size = 0;
    for (const Region & region : regions) {
        size += region.to - region.from;
    }
    for (const Region & region : regions) {
        advise(region, size <= most_at_once);
    }
}

#else

void use_huge_pages(const llama_model * /*model*/) {}
NewMemory::NewMemory() {}
void NewMemory::use_huge_pages() const {}

#endif

std::vector<Region> anonymous_regions(const std::string & table) {
    std::vector<Region> regions;
    std::istringstream lines(table);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream fields(line);
        Region region;
        char dash = 0;
        std::string rights;
        std::string offset;
        std::string device;
        std::string inode;
        fields >> std::hex >> region.from >> dash >> region.to >> rights >> offset >> device >> inode;
        std::string name; // of a file; or such as [heap], [stack]
        fields >> name;
        if (rights == "rw-p" && inode == "0" && name != "[stack]") {
            regions.push_back(region);
        }
    }
    return regions;
}

std::vector<Region> added(const std::vector<Region> & before, const std::vector<Region> & now) {
    std::vector<Region> found;
    for (const Region & region : now) {
        std::uintptr_t from = region.from;
        for (const Region & old : before) {
            if (old.to <= from || old.from >= region.to) {
                continue;
            }
            if (old.from > from) {
                found.push_back({from, old.from});
            }
            from = std::max(from, old.to);
        }
        if (from < region.to) {
            found.push_back({from, region.to});
        }
    }
    return found;
}

} // namespace dflash
