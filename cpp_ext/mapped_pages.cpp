#include "mapped_pages.h"

#include "ggml-backend.h"
#include "huge_pages.h"
#include "llama_ext.h"

#include <algorithm>
#include <map>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace dflash {

#if defined(__linux__)

void drop_copied_pages(const llama_model * model) {
    std::map<ggml_backend_buffer_t, std::vector<Region>> tensors;
    for (const auto & entry : llama_internal_get_tensor_map(model)) {
        ggml_backend_buffer_t buffer = entry.second->buffer;
        if (buffer && ggml_backend_buffer_is_host(buffer)) {
            const auto from = reinterpret_cast<std::uintptr_t>(entry.second->data);
            tensors[buffer].push_back({from, from + ggml_nbytes(entry.second)});
        }
    }
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    for (auto & [buffer, used] : tensors) {
        if (std::string(ggml_backend_buffer_name(buffer)) != "CPU_Mapped") {
            continue; // memory of its own, which would be lost
        }
        std::sort(used.begin(), used.end(),
                  [](const Region & one, const Region & other) { return one.from < other.from; });
        const auto base = reinterpret_cast<std::uintptr_t>(ggml_backend_buffer_get_base(buffer));
        for (const Region & gap : added(used, {{base, base + ggml_backend_buffer_get_size(buffer)}})) {
            const std::uintptr_t from = (gap.from + page - 1) / page * page;
            const std::uintptr_t to = gap.to / page * page;
            if (from < to) {
                madvise(reinterpret_cast<void *>(from), to - from, MADV_DONTNEED);
            }
        }
    }
}

#else

void drop_copied_pages(const llama_model * /*model*/) {}

#endif

} // namespace dflash
