// The real drafter: a DFlash model in its own context, which borrows the target's embeddings and head.
#pragma once

#include "drafter.h"

namespace dflash {

class ModelDrafter : public Drafter {
  public:
    // A context of its own beside the target's, with n_batch = n_ubatch = n_outputs. mask: the token id the
    // drafter was trained to fill. causal: for every layer, whether a block's rows see only what is before
    // them. Throws
    // std::invalid_argument for anything that does not fit, std::runtime_error with llama.cpp's words.
    ModelDrafter(std::shared_ptr<Model> model, const ContextParams & params, std::shared_ptr<Context> target,
                 Token mask, const std::vector<bool> & causal);

    // Where layers differ, drafts a block and throws std::runtime_error if that takes no effect. Sequence 0
    // must be empty.
    void probe();

    void inject(const Target & target, const std::vector<FeatureRows> & rows) override;
    void draft(std::vector<DraftRequest> & requests) override;
    void release(llama_seq_id seq) override { context_->drop(seq); }

    const Context & context() const { return *context_; }

    // Logits of the whole block of the last draft, row-major; row i predicts position pos + i.
    const float * block_logits(int row) const { return context_->logits(row); }

  private:
    void flush();
    void decode_noise();

    std::shared_ptr<Context> context_;
    Token mask_;
    TokenBatch noise_;
    FeatureBatch features_;
};

} // namespace dflash
