#include "memory_trial.h"

#include "ggml-backend.h"
#include "llama_ext.h"
#include "log.h"

#include <algorithm>
#include <fstream>
#include <stdexcept>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace dflash {

namespace {

std::string place_of(ggml_backend_buffer_type_t type) {
    ggml_backend_dev_t device = ggml_backend_buft_get_device(type);
    if (device == nullptr || ggml_backend_buft_is_host(type)) {
        return "host";
    }
    const enum ggml_backend_dev_type kind = ggml_backend_dev_type(device);
    const bool on_device = kind == GGML_BACKEND_DEVICE_TYPE_GPU || kind == GGML_BACKEND_DEVICE_TYPE_IGPU;
    return on_device ? ggml_backend_dev_name(device) : "host"; // such as weights repacked for the CPU
}

BufferUse & at(std::vector<BufferUse> & uses, const std::string & place) {
    const auto found =
        std::find_if(uses.begin(), uses.end(), [&](const BufferUse & use) { return use.place == place; });
    return found == uses.end() ? uses.emplace_back(BufferUse{place}) : *found;
}

std::shared_ptr<Model> header(const std::string & path, ModelParams params) {
    params.no_alloc = true;
    return std::make_shared<Model>(path, params);
}

} // namespace

std::int64_t own_memory() {
#if defined(__GLIBC__)
    malloc_trim(0);
#endif
    std::ifstream status("/proc/self/status");
    for (std::string name; status >> name;) {
        if (name == "RssAnon:") {
            std::int64_t kib = -1;
            status >> kib;
            return kib < 0 ? -1 : kib * 1024;
        }
    }
    return -1;
}

std::vector<BufferUse> buffers_of(const Context & context) {
    std::vector<BufferUse> uses;
    for (const auto & [type, bytes] : llama_get_memory_breakdown(context.get())) {
        BufferUse & use = at(uses, place_of(type));
        use.weights += bytes.model;
        use.mapped += context.model().mapped() && type == ggml_backend_cpu_buffer_type() ? bytes.model : 0;
        use.caches += bytes.context;
        use.compute += bytes.compute;
    }
    return uses;
}

namespace {

// What has been allocated and not freed, whether it was written to or not; -1 where nothing tells.
std::int64_t allocated() {
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
    const struct mallinfo2 info = mallinfo2();
    return static_cast<std::int64_t>(info.uordblks + info.hblkhd);
#else
    return -1;
#endif
}

std::int64_t grown(std::int64_t before) {
    return before < 0 ? -1 : std::max<std::int64_t>(allocated() - before, 0);
}

// Of a context's notes for splitting graphs between devices only the beginnings are ever written to: room for
// 30 copies of inputs before and behind every node, and four arrays of as many ids. Those come zeroed, which
// writes to them or not, as the allocator happens to have the memory. Half is
// counted. (ggml_backend_sched_new)
std::int64_t never_written(size_t nodes) {
    if (nodes == 0) {
        return 0;
    }
    const size_t copies = 60 * nodes;
    const size_t room = copies * sizeof(ggml_tensor) + ggml_graph_overhead_custom(nodes, false);
    const size_t ids = 4 * sizeof(int) * (nodes + copies);
    return static_cast<std::int64_t>(room + ids / 2);
}

// A used cell is in a set of cells and in its sequence's map of positions: a node of 48 bytes in each.
std::uint64_t growth(const Context & context) {
    constexpr std::uint64_t nodes = 96;
    const std::uint64_t caches = llama_model_n_swa(context.model().get()) > 0 ? 2 : 1;
    return nodes * caches * llama_n_ctx(context.get());
}

// llama.cpp keeps the last graph with outputs and the last one without, each with room for the most nodes.
std::uint64_t graphs_of_last_context() {
    const size_t nodes = last_graph_nodes();
    return nodes == 0 ? 0 : 2 * (ggml_tensor_overhead() * nodes + ggml_graph_overhead_custom(nodes, false));
}

// What the context made last takes, of which llama.cpp allocated all since `before`. states: bytes of its
// caches that it allocated too.
ContextUse use_of(const Context & context, std::int64_t before, std::int64_t states) {
    const std::int64_t books = grown(before) - never_written(last_graph_nodes()) - states;
    return {buffers_of(context), before < 0 ? -1 : std::max<std::int64_t>(books, 0), growth(context),
            graphs_of_last_context()};
}

} // namespace

MemoryTrial::MemoryTrial(const std::string & target, const ModelParams & params) {
    const std::int64_t before = allocated();
    target_ = header(target, params);
    headers_ = grown(before);
    state_ = measure_state();
}

void MemoryTrial::open_draft(const std::string & draft, const ModelParams & params) {
    const std::int64_t before = allocated();
    draft_ = header(draft, params);
    headers_ = headers_ < 0 ? -1 : headers_ + grown(before);
}

std::vector<BufferUse> MemoryTrial::measure_state() const {
    if (!target_->has_state()) {
        return {};
    }
    ContextParams params;
    params.n_ctx = 512;
    params.unified = true;
    std::vector<BufferUse> one = buffers_of(Context(target_, params));
    // the same cache of keys and values, one state more
    params.n_ctx = 256;
    params.n_seq = params.n_outputs = 2;
    std::vector<BufferUse> state;
    for (const BufferUse & two : buffers_of(Context(target_, params))) {
        state.push_back({two.place, 0, 0, two.caches - at(one, two.place).caches, 0});
    }
    return state;
}

bool MemoryTrial::keeps_snapshots() const {
    ContextParams params;
    params.n_ctx = 256;
    params.n_rollback = 1;
    return target_->has_state() && Context(target_, params).n_rollback() == 1;
}

ContextUse MemoryTrial::target(const ContextParams & params) const {
    const std::int64_t before = allocated();
    const Context context(target_, params);
    std::int64_t states = 0; // they are really there
    for (const BufferUse & use : state_) {
        if (use.place == "host") {
            states += static_cast<std::int64_t>(use.caches) * params.n_seq * (1 + context.n_rollback());
        }
    }
    return use_of(context, before, states);
}

ContextUse MemoryTrial::draft(const ContextParams & params) const {
    if (!draft_) {
        throw std::logic_error("this trial has no drafter");
    }
    ContextParams small; // what the draft borrows is the model's
    small.n_ctx = 256;
    const auto parent = std::make_shared<Context>(target_, small);
    const std::int64_t before = allocated();
    const Context context(draft_, params, parent);
    return use_of(context, before, 0);
}

} // namespace dflash
