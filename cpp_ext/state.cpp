#include "state.h"

#include "log.h"

#include <algorithm>
#include <stdexcept>

namespace dflash {

namespace {

llama_state_seq_flags flags(Part part) {
    return part == Part::all ? LLAMA_STATE_SEQ_FLAGS_NONE : LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY;
}

} // namespace

bool moves_on(const Context & context) {
    const int window = llama_model_n_swa(context.model().get());
    // deepseek4's caches compress what is behind, which llama.cpp does not count as a recurrent state
    return context.model().has_state() || context.model().arch() == "deepseek4" ||
           (window > 0 && context.params().n_ctx > window);
}

int held(const Context & context, llama_seq_id seq) {
    return llama_memory_seq_pos_max(llama_get_memory(context.get()), seq) + 1;
}

int least_cut(const Context & context, llama_seq_id seq) {
    const int count = held(context, seq);
    const llama_pos first = llama_memory_seq_pos_min(llama_get_memory(context.get()), seq);
    if (count <= 1 || first < 0) {
        return count;
    }
    // llama.cpp may have given the cells of a window's masked positions away, lowest first; recurrent states
    // report their last position as their first
    const int window = std::max(1, llama_model_n_swa(context.model().get()));
    return first == 0 ? 0 : std::min(count, first + window);
}

void save_state(const Context & context, llama_seq_id seq, Part part, Bytes & to) {
    clear_errors();
    to.resize(llama_state_seq_get_size_ext(context.get(), seq, flags(part)));
    const size_t written =
        llama_state_seq_get_data_ext(context.get(), to.data(), to.size(), seq, flags(part));
    if (to.empty() || written != to.size()) {
        throw std::runtime_error("llama.cpp cannot write the state of sequence " + std::to_string(seq) +
                                 ": " + last_errors());
    }
}

Bytes save_state(const Context & context, llama_seq_id seq, Part part) {
    Bytes bytes;
    save_state(context, seq, part, bytes);
    return bytes;
}

bool load_state(Context & context, llama_seq_id seq, const Bytes & bytes, Part part) {
    if (bytes.empty() || seq < 0 || seq >= context.params().n_seq) {
        return false;
    }
    context.fill_below({seq});
    return llama_state_seq_set_data_ext(context.get(), bytes.data(), bytes.size(), seq, flags(part)) ==
           bytes.size();
}

bool cut_back(Context & context, llama_seq_id seq, int count) {
    return llama_memory_seq_rm(llama_get_memory(context.get()), seq, count, -1) &&
           held(context, seq) == count;
}

} // namespace dflash
