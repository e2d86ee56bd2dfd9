#include "context.h"

#include "huge_pages.h"
#include "log.h"
#include "state.h"
#include "stopwatch.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include <sys/resource.h>

namespace dflash {

void TokenBatch::add(Token token, llama_pos pos, llama_seq_id seq, bool want_logits) {
    token_.push_back(token);
    pos_.push_back(pos);
    seq_.push_back(seq);
    logits_.push_back(want_logits ? 1 : 0);
}

void TokenBatch::clear() {
    token_.clear();
    pos_.clear();
    seq_.clear();
    logits_.clear();
}

namespace {

// What the process has had of the cores so far: seconds, and how often a thread was taken off one.
struct Usage {
    double cpu;
    long preempted;
};

Usage usage() {
    rusage all{};
    getrusage(RUSAGE_SELF, &all);
    const auto seconds = [](const timeval & time) {
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    };
    return {seconds(all.ru_utime) + seconds(all.ru_stime), all.ru_nivcsw};
}

// One sequence per row, in the pointer-to-array form that llama_batch wants.
void point_at(std::vector<llama_seq_id> & seq, std::vector<int32_t> & n_seq,
              std::vector<llama_seq_id *> & pointers) {
    n_seq.assign(seq.size(), 1);
    pointers.resize(seq.size() + 1);
    for (size_t i = 0; i < seq.size(); ++i) {
        pointers[i] = &seq[i];
    }
    pointers.back() = nullptr;
}

} // namespace

llama_batch TokenBatch::view() {
    point_at(seq_, n_seq_, seq_ptr_);
    return {size(), token_.data(), nullptr, pos_.data(), n_seq_.data(), seq_ptr_.data(), logits_.data()};
}

float * FeatureBatch::add(llama_pos pos, llama_seq_id seq) {
    row_pos_.push_back(pos);
    seq_.push_back(seq);
    features_.resize(features_.size() + width_);
    return features_.data() + features_.size() - width_;
}

void FeatureBatch::clear() {
    features_.clear();
    row_pos_.clear();
    seq_.clear();
}

llama_batch FeatureBatch::view() {
    pos_ = row_pos_;
    if (mrope_) {
        // section-major: all rows' temporal positions, then height, width, and an unused zero
        for (int section = 1; section < 3; ++section) {
            pos_.insert(pos_.end(), row_pos_.begin(), row_pos_.end());
        }
        pos_.resize(4 * row_pos_.size(), 0);
    }
    logits_.assign(seq_.size(), 0);
    point_at(seq_, n_seq_, seq_ptr_);
    return {size(), nullptr, features_.data(), pos_.data(), n_seq_.data(), seq_ptr_.data(), logits_.data()};
}

namespace {

// llama.cpp rounds each sequence's share up and counts in 32 bits.
constexpr std::int64_t most_positions = std::numeric_limits<std::int32_t>::max();

void check(const ContextParams & params) {
    const auto require = [](bool holds, const char * name, int found, const std::string & expected) {
        if (!holds) {
            throw std::invalid_argument(std::string("a context's ") + name + " is " + std::to_string(found) +
                                        ", expected " + expected);
        }
    };
    require(params.n_ctx >= 1, "n_ctx", params.n_ctx, "at least 1");
    const int most = static_cast<int>(llama_max_parallel_sequences());
    require(params.n_seq >= 1 && params.n_seq <= most, "n_seq", params.n_seq, "1 to " + std::to_string(most));
    require(static_cast<std::int64_t>(params.n_ctx) <= most_positions / params.n_seq, "n_ctx", params.n_ctx,
            "at most " + std::to_string(most_positions) + " of all sequences together");
    for (const auto & [name, threads] :
         {std::pair{"n_threads", params.n_threads}, std::pair{"n_threads_batch", params.n_threads_batch}}) {
        require(threads >= 1 && threads <= GGML_MAX_N_THREADS, name, threads,
                "1 to " + std::to_string(GGML_MAX_N_THREADS));
    }
    require(params.n_batch >= 1, "n_batch", params.n_batch, "at least 1");
    require(params.n_ubatch >= 1, "n_ubatch", params.n_ubatch, "at least 1");
    require(params.n_outputs >= params.n_seq, "n_outputs", params.n_outputs,
            "at least n_seq (" + std::to_string(params.n_seq) + ")");
    require(params.window >= 0 && params.window <= params.n_ctx, "window", params.window,
            "0 to n_ctx (" + std::to_string(params.n_ctx) + ")");
    require(params.n_rollback >= 0, "n_rollback", params.n_rollback, "at least 0");
    require(params.n_rollback == 0 || std::min(params.n_batch, params.n_ubatch) - 1 > params.n_rollback,
            "n_rollback", params.n_rollback, "at most n_ubatch - 2");
}

// Positions to ask for, per sequence. llama.cpp cuts n_batch and n_ubatch to the context before it rounds
// that up to 256, and a small context would leave n_ubatch without the room that snapshots need.
uint32_t rounded(const ContextParams & params) {
    const uint32_t least = static_cast<uint32_t>(std::max(params.n_ctx, params.n_rollback + 2));
    return (least + 255) / 256 * 256;
}

constexpr int decode_aborted = 2; // of llama_decode

// ggml_backend_sched_eval_callback
bool watched(ggml_tensor * node, bool ask, void * user) {
    bool pause = !ask; // false behind a node would stop the graph
    for (const auto & watch : *static_cast<std::vector<std::shared_ptr<GraphWatch>> *>(user)) {
        if (ask) {
            pause |= watch->see(node);
        } else {
            watch->computed(node);
        }
    }
    return pause;
}

} // namespace

Context::Context(std::shared_ptr<Model> model, const ContextParams & params, std::shared_ptr<Context> parent,
                 std::vector<std::shared_ptr<GraphWatch>> watches)
    : model_(std::move(model)), parent_(std::move(parent)), watches_(std::move(watches)), params_(params),
      governor_(std::max(params.n_threads, params.n_threads_batch)), context_(nullptr, llama_free) {
    check(params);
    llama_context_params raw = llama_context_default_params();
    raw.n_ctx = rounded(params) * static_cast<uint32_t>(params.n_seq);
    raw.n_batch = static_cast<uint32_t>(params.n_batch);
    raw.n_ubatch = static_cast<uint32_t>(params.n_ubatch);
    raw.n_seq_max = static_cast<uint32_t>(params.n_seq);
    raw.n_rs_seq = static_cast<uint32_t>(params.n_rollback);
    raw.n_outputs_max = static_cast<uint32_t>(params.n_outputs);
    raw.n_threads = params.n_threads;
    raw.n_threads_batch = params.n_threads_batch;
    raw.kv_unified = params.unified;
    raw.type_k = params.type_k;
    raw.type_v = params.type_v;
    raw.flash_attn_type = params.flash_attn;
    if (!watches_.empty()) {
        raw.cb_eval = watched;
        raw.cb_eval_user_data = &watches_;
    }
    raw.abort_callback = asked_to_stop;
    raw.abort_callback_data = this;
    raw.ctx_other = parent_ ? parent_->get() : nullptr;
    clear_errors();
    const NewMemory memory;
    context_.reset(llama_init_from_model(model_->get(), raw));
    if (!context_) {
        throw std::runtime_error("llama.cpp could not make a context: " + last_errors());
    }
    memory.use_huge_pages();
}

bool Context::asked_to_stop(void * context) {
    Interrupt * lone = static_cast<Context *>(context)->lone_;
    return lone && lone->due();
}

void Context::govern(const ThreadGovernor & governor) {
    if (governor.threads() != governor_.threads()) {
        llama_set_n_threads(get(), std::min(params_.n_threads, governor.threads()),
                            std::min(params_.n_threads_batch, governor.threads()));
    }
    governor_ = governor;
}

int Context::compute(const llama_batch & batch) {
    const int wanted = batch.n_tokens > 1 ? params_.n_threads_batch : params_.n_threads;
    const Usage before = usage();
    const std::int64_t start = now_ns();
    const int status = llama_decode(get(), batch);
    const std::int64_t end = now_ns();
    const Usage after = usage();
    ThreadGovernor governor = governor_;
    governor.saw({std::min(wanted, governor.threads()), static_cast<double>(end - start) * 1e-9,
                  after.cpu - before.cpu, after.preempted - before.preempted},
                 static_cast<double>(end) * 1e-9);
    govern(governor);
    return status;
}

void Context::decode(llama_batch batch, const char * what, Interrupt * lone) {
    if (batch.n_tokens <= 0 || batch.n_tokens > params_.n_batch) {
        throw std::logic_error(std::string(what) + ": a batch of " + std::to_string(batch.n_tokens) +
                               " rows, at most " + std::to_string(params_.n_batch) + " fit");
    }
    std::vector<llama_seq_id> sequences;
    for (int i = 0; i < batch.n_tokens; ++i) {
        if (sequences.empty() || sequences.back() != batch.seq_id[i][0]) {
            sequences.push_back(batch.seq_id[i][0]);
        }
    }
    fill_below(sequences);
    clear_errors();
    lone_ = lone;
    const int status = compute(batch);
    lone_ = nullptr;
    if (status == decode_aborted) {
        throw Interrupted(std::string(what) + " was interrupted");
    }
    if (status != 0) {
        throw std::runtime_error(std::string(what) + " failed in llama.cpp (status " +
                                 std::to_string(status) + "): " + last_errors());
    }
    rows_ = batch.n_tokens;
    ++decodes_;
    may_take_back_.assign(static_cast<size_t>(params_.n_seq), -1);
    for (int i = 0; i < batch.n_tokens; ++i) {
        ++may_take_back_[static_cast<size_t>(batch.seq_id[i][0])];
    }
}

void Context::fill_below(const std::vector<llama_seq_id> & sequences) {
    if (params_.n_rollback == 0 || params_.n_seq == 1 || params_.unified || !model_->has_state()) {
        return; // nothing is moved, or all at once before anything is computed
    }
    std::vector<bool> in_use(static_cast<size_t>(params_.n_seq));
    int end = 0;
    for (llama_seq_id seq = 0; seq < params_.n_seq; ++seq) {
        if (held(*this, seq) > 0 || std::find(sequences.begin(), sequences.end(), seq) != sequences.end()) {
            in_use[static_cast<size_t>(seq)] = true;
            end = seq;
        }
    }
    TokenBatch one;
    for (llama_seq_id seq = 0; seq < end; ++seq) {
        if (!in_use[static_cast<size_t>(seq)]) {
            one.clear();
            one.add(0, 0, seq, false);
            if (llama_decode(get(), one.view()) != 0) {
                throw std::runtime_error("filling the cell of sequence " + std::to_string(seq) +
                                         " failed in llama.cpp: " + last_errors());
            }
        }
    }
}

const float * Context::logits(int row) const {
    return llama_get_logits(get()) + static_cast<size_t>(row) * model_->n_vocab();
}

bool Context::snapshots_reach(llama_seq_id seq, llama_pos pos) {
    const int back = llama_memory_seq_pos_max(llama_get_memory(get()), seq) + 1 - pos;
    if (params_.n_rollback == 0 || back <= 0 || !model_->has_state()) {
        return true; // llama.cpp itself refuses what it cannot
    }
    if (may_take_back_.empty() || back > may_take_back_[static_cast<size_t>(seq)]) {
        return false;
    }
    may_take_back_[static_cast<size_t>(seq)] = 0;
    return true;
}

void Context::truncate(llama_seq_id seq, llama_pos pos) {
    if (seq < 0 || seq >= params_.n_seq || !snapshots_reach(seq, pos) ||
        !llama_memory_seq_rm(llama_get_memory(get()), seq, pos, -1)) {
        throw std::logic_error("llama.cpp cannot take sequence " + std::to_string(seq) +
                               " back to position " + std::to_string(pos));
    }
}

void Context::forget(llama_seq_id seq, llama_pos pos) {
    if (pos > 0 && !llama_memory_seq_rm(llama_get_memory(get()), seq, 0, pos)) {
        throw std::logic_error("llama.cpp cannot forget what is before position " + std::to_string(pos) +
                               " of sequence " + std::to_string(seq));
    }
}

void Context::drop(llama_seq_id seq) {
    llama_memory_seq_rm(llama_get_memory(get()), seq, -1, -1);
}

} // namespace dflash
