#include "huge_pages.h"

#include "ggml-backend.h"
#include "llama_ext.h"

#include <cstdint>
#include <set>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace dflash {

#if defined(__linux__)

namespace {

constexpr std::uintptr_t page = std::uintptr_t{2} << 20;
constexpr int collapse = 25; // MADV_COLLAPSE, which older headers lack; kernels before 6.1 refuse it

void advise(void * base, std::size_t size) {
    const std::uintptr_t start = reinterpret_cast<std::uintptr_t>(base);
    const std::uintptr_t from = (start + page - 1) / page * page;
    const std::uintptr_t to = (start + size) / page * page;
    if (from < to && madvise(reinterpret_cast<void *>(from), to - from, MADV_HUGEPAGE) == 0) {
        madvise(reinterpret_cast<void *>(from), to - from, collapse);
    }
}

} // namespace

void use_huge_pages(const llama_model * model) {
    std::set<ggml_backend_buffer_t> buffers;
    for (const auto & entry : llama_internal_get_tensor_map(model)) {
        ggml_backend_buffer_t buffer = entry.second->buffer;
        if (buffer && ggml_backend_buffer_is_host(buffer) && buffers.insert(buffer).second) {
            advise(ggml_backend_buffer_get_base(buffer), ggml_backend_buffer_get_size(buffer));
        }
    }
}

#else

void use_huge_pages(const llama_model * /*model*/) {}

#endif

} // namespace dflash
