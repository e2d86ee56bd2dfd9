#include "dspark_drafter.h"

#include "llama_ext.h"

#include <stdexcept>

namespace dflash {

DsparkDrafter::DsparkDrafter(std::shared_ptr<Model> model, const ContextParams & params,
                             std::shared_ptr<Context> target, Token mask, const std::vector<bool> & causal,
                             bool from_anchor, bool confidence)
    : ModelDrafter(std::move(model), params, std::move(target), mask, causal), from_anchor_(from_anchor),
      confidence_(confidence) {
    if (trained_block() < block_rows(1)) {
        throw std::invalid_argument("the drafter's block size is " + std::to_string(trained_block()) +
                                    ", at least " + std::to_string(block_rows(1)) + " is needed");
    }
    llama_set_embeddings_nextn(context_->get(), confidence_, false);
}

void DsparkDrafter::read(DraftRequest & request, int row) {
    const int first = row + (from_anchor_ ? 0 : 1);
    read_logits(request, first);
    if (!confidence_) {
        return;
    }
    // the graph spreads each row's confidence over n_embd floats
    const float * rows = llama_get_embeddings_nextn(context_->get());
    const size_t stride = static_cast<size_t>(context_->model().n_embd());
    for (size_t i = 0; i < request.drafted.size(); ++i) {
        request.confidence.push_back(rows[(static_cast<size_t>(first) + i) * stride]);
    }
}

} // namespace dflash
