// DFlash2: convolutions around the layers, and a selector that scores pairs of neighbouring candidates.
#pragma once

#include "lattice.h"
#include "model_drafter.h"

namespace dflash {

class LatticeDrafter : public ModelDrafter {
  public:
    // As ModelDrafter; throws std::invalid_argument for a drafter without a selector.
    LatticeDrafter(std::shared_ptr<Model> model, const ContextParams & params,
                   std::shared_ptr<Context> target, Token mask, const std::vector<bool> & causal);

    // Row of the last draft; n_embd floats, of which the first top_k * (top_k + 1) are used.
    const float * lattice_row(int row) const { return extra_row(row); }

    int top_k() const { return top_k_; }

  protected:
    bool equal_length() const override { return true; }
    bool needs_logits() const override { return false; } // the selector reads them inside the graph
    void read(DraftRequest & request, int row) override;

  private:
    int choose(DraftRequest & request, const std::vector<Token> & candidates, const float * scores,
               const std::vector<Token> & before);

    int top_k_;
    std::vector<float> logits_; // of the whole vocabulary: -infinity but for the candidates of one position
};

} // namespace dflash
