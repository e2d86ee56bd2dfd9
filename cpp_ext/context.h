// A llama.cpp context and its batches, with every argument checked before llama.cpp can assert on it.
#pragma once

#include "graph_watch.h"
#include "interrupt.h"
#include "model.h"
#include "thread_governor.h"

#include <memory>
#include <vector>

namespace dflash {

struct ContextParams {
    int n_ctx = 0;     // positions per sequence
    int n_batch = 512; // rows of one decode
    int n_ubatch = 512;
    int n_seq = 1;
    int n_rollback = 0; // recurrent snapshots per sequence
    int n_outputs = 1;  // rows of one decode that may ask for logits
    int n_threads = 1;
    int n_threads_batch = 1;
    bool unified = false; // one KV buffer for all sequences
    int window = 0;       // of a draft: newest rows of a sequence that it keeps; 0: all
    ggml_type type_k = GGML_TYPE_F16;
    ggml_type type_v = GGML_TYPE_F16;
    llama_flash_attn_type flash_attn = LLAMA_FLASH_ATTN_TYPE_AUTO;
};

// Rows of one decode: tokens at positions of sequences.
class TokenBatch {
  public:
    void add(Token token, llama_pos pos, llama_seq_id seq, bool want_logits);
    void clear();
    int size() const { return static_cast<int>(token_.size()); }
    llama_batch view();

  private:
    std::vector<Token> token_;
    std::vector<llama_pos> pos_;
    std::vector<llama_seq_id> seq_;
    std::vector<int32_t> n_seq_;
    std::vector<llama_seq_id *> seq_ptr_;
    std::vector<int8_t> logits_;
};

// Rows of feature vectors, each `width` floats; on M-RoPE models a row carries the positions (p, p, p, 0).
class FeatureBatch {
  public:
    FeatureBatch(int width, bool mrope) : width_(width), mrope_(mrope) {}

    // Append a row and return where its features go.
    float * add(llama_pos pos, llama_seq_id seq);
    void clear();
    int size() const { return static_cast<int>(seq_.size()); }
    int width() const { return width_; }
    llama_batch view();

  private:
    int width_;
    bool mrope_;
    std::vector<float> features_;
    std::vector<llama_pos> row_pos_;
    std::vector<llama_pos> pos_;
    std::vector<llama_seq_id> seq_;
    std::vector<int32_t> n_seq_;
    std::vector<llama_seq_id *> seq_ptr_;
    std::vector<int8_t> logits_;
};

// Keeps its model alive, and a parent context where it borrows that one's tensors.
class Context {
  public:
    // Throws std::invalid_argument for parameters that llama.cpp would assert on, std::runtime_error with its
    // words if the context cannot be made.
    // watches: see every node of its graphs, in this order.
    Context(std::shared_ptr<Model> model, const ContextParams & params,
            std::shared_ptr<Context> parent = nullptr, std::vector<std::shared_ptr<GraphWatch>> watches = {});
    Context(const Context &) = delete; // llama.cpp holds pointers into it
    Context & operator=(const Context &) = delete;

    llama_context * get() const { return context_.get(); }
    const Model & model() const { return *model_; }
    const std::shared_ptr<Model> & shared_model() const { return model_; }
    const ContextParams & params() const { return params_; }
    int n_rollback() const { return static_cast<int>(llama_n_rs_seq(get())); }

    // How many threads it computes with at present; another context may take over what was found out.
    const ThreadGovernor & governor() const { return governor_; }
    void govern(const ThreadGovernor & governor);

    int rows() const { return rows_; } // of the last decode
    std::uint64_t decodes() const { return decodes_; }

    // Throws std::runtime_error naming `what` if llama.cpp refuses the batch. lone: of the only sequence in
    // it, or null; throws Interrupted when it is due, on backends that can be stopped (the CPU's, Metal's).
    // llama.cpp has then taken out what rows it could of the batch: an attention's, not a recurrent state's.
    void decode(llama_batch batch, const char * what, Interrupt * lone = nullptr);

    // Logits of the last decode: row i is the i-th row that asked for them, n_vocab floats.
    const float * logits(int row) const;

    // Forget positions >= pos of a sequence; throws std::logic_error if llama.cpp cannot, also where it says
    // it has: a recurrent state goes back once a decode, and not by all of that decode's rows.
    void truncate(llama_seq_id seq, llama_pos pos);
    // Forget positions < pos of a sequence of a model without recurrent state; the others stay where they
    // are.
    void forget(llama_seq_id seq, llama_pos pos);
    void drop(llama_seq_id seq);

    // Before these sequences get rows or a state: where llama.cpp may move recurrent states from cell to cell
    // in the midst of a decode, leaving their snapshots behind, it finds every lower id in use, so that each
    // sequence gets the cell of its own number and nothing is ever moved.
    void fill_below(const std::vector<llama_seq_id> & sequences);

  private:
    static bool asked_to_stop(void * context); // ggml_abort_callback
    int compute(const llama_batch & batch);    // llama_decode's status
    // Whether the snapshots of a recurrent state reach so far back; they are used up then.
    bool snapshots_reach(llama_seq_id seq, llama_pos pos);

    std::shared_ptr<Model> model_;
    std::shared_ptr<Context> parent_;
    std::vector<std::shared_ptr<GraphWatch>> watches_;
    ContextParams params_;
    ThreadGovernor governor_;
    int rows_ = 0;
    std::uint64_t decodes_ = 0;
    std::vector<int> may_take_back_; // rows of each sequence, of the last decode
    Interrupt * lone_ = nullptr;     // of the decode in progress
    std::unique_ptr<llama_context, void (*)(llama_context *)> context_;
};

} // namespace dflash
