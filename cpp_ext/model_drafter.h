// The real drafter: a DFlash model in its own context, which borrows the target's embeddings and head.
#pragma once

#include "block_mask.h"
#include "blocks.h"
#include "drafter.h"

namespace dflash {

// What all families share: injection, noise blocks and masks. By itself it drafts as DFlash does, a token for
// every row of logits behind the anchor's; other families say otherwise what a block is and how it is read.
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
    void inject_kept(const std::vector<Kept> & kept) override;
    int window() const override { return context_->params().window; }
    void draft(std::vector<DraftRequest> & requests) override;
    void rehearse(std::vector<DraftRequest> & requests) override;
    void forget(llama_seq_id seq) override { context_->drop(seq); }
    void release(llama_seq_id seq) override { context_->drop(seq); }
    Context * cache() override { return context_.get(); }

    const Context & context() const { return *context_; }

    // Logits of the whole block of the last draft, row-major; row i predicts position pos + i, one further
    // where the family drafts from the anchor. Throws std::logic_error if the family computes none for us.
    const float * block_logits(int row) const;

    // Rows of a block that drafts `count` tokens.
    virtual int block_rows(int count) const { return count + 1; }

  protected:
    // watch: one more for the context's graphs, or null.
    ModelDrafter(std::shared_ptr<Model> model, const ContextParams & params, std::shared_ptr<Context> target,
                 Token mask, const std::vector<bool> & causal, std::shared_ptr<GraphWatch> watch);

    // Whether the graph takes a decode apart into blocks of one length, none longer than the trained one.
    virtual bool equal_length() const { return false; }
    virtual bool needs_logits() const { return true; }

    // Decode the noise that has been put together for a group of requests.
    virtual void decode_blocks(std::vector<DraftRequest> & /*requests*/, const BlockGroup & /*group*/) {
        decode_noise();
    }
    void decode_noise();

    // Fill `drafted` and `confidence` from the block that begins at `row` of the last decode.
    virtual void read(DraftRequest & request, int row);

    // Draft what is missing from rows of logits, the first of which is for the position behind the anchor.
    void read_logits(DraftRequest & request, int first_row);

    // Add the token to `drafted` that follows by these logits, which may last until the next draft. False if
    // none does.
    bool extend(DraftRequest & request, const float * logits, bool lasting) const;

    // Row of what the graph of the last draft put out beside its logits, n_embd floats. Throws
    // std::runtime_error if it did not.
    const float * extra_row(int row) const;

    // The key of the file; 0 if it is absent.
    int trained_block() const { return trained_block_; }

  private:
    void flush();
    bool same_width() const;
    void draft_together(std::vector<DraftRequest> & requests, const BlockGroup & group, bool reads);
    std::vector<BlockGroup> groups(const std::vector<DraftRequest> & requests) const;

    std::shared_ptr<BlockMask> block_mask_; // null where one flag does for all layers
    std::shared_ptr<Context> context_;
    Token mask_;
    int trained_block_;
    bool lone_ = true; // one decode holds the whole draft: its logits last until the next draft
    TokenBatch noise_;
    FeatureBatch features_;
};

} // namespace dflash
