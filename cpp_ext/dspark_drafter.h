// DSpark: a Markov head that adds to each position's logits what its predecessor makes likely, and perhaps a
// confidence head.
#pragma once

#include "markov_chain.h"
#include "model_drafter.h"

namespace dflash {

class DsparkDrafter : public ModelDrafter {
  public:
    // As ModelDrafter, with a unified cache. from_anchor: the block's first row, the anchor's, already drafts
    // the token behind it, so that all rows of a block do; else the first row drafts nothing. confidence: the
    // file has such a head.
    DsparkDrafter(std::shared_ptr<Model> model, const ContextParams & params, std::shared_ptr<Context> target,
                  Token mask, const std::vector<bool> & causal, bool from_anchor, bool confidence);

    int block_rows(int count) const override { return count + (from_anchor_ ? 0 : 1); }

  protected:
    bool equal_length() const override { return true; }
    void decode_blocks(std::vector<DraftRequest> & requests, const BlockGroup & group) override;
    void read(DraftRequest & request, int row) override;

  private:
    DsparkDrafter(std::shared_ptr<Model> model, const ContextParams & params, std::shared_ptr<Context> target,
                  Token mask, const std::vector<bool> & causal, bool from_anchor, bool confidence,
                  std::shared_ptr<MarkovChain> chain);

    bool from_anchor_;
    bool confidence_;
    std::shared_ptr<MarkovChain> chain_;
};

} // namespace dflash
