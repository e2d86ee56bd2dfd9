#include "lattice_drafter.h"

#include "llama_ext.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace dflash {

LatticeDrafter::LatticeDrafter(std::shared_ptr<Model> model, const ContextParams & params,
                               std::shared_ptr<Context> target, Token mask, const std::vector<bool> & causal)
    : ModelDrafter(std::move(model), params, std::move(target), mask, causal, nullptr),
      top_k_(llama_model_dflash_selector_top_k(context().model().get())) {
    if (top_k_ < 1 || trained_block() < 2) {
        throw std::invalid_argument("the drafter has no selector; expected a DFlash2 drafter");
    }
    if (top_k_ > context().model().n_vocab()) {
        throw std::invalid_argument("the selector wants " + std::to_string(top_k_) +
                                    " candidates of a vocabulary of " +
                                    std::to_string(context().model().n_vocab()));
    }
    logits_.assign(static_cast<size_t>(context().model().n_vocab()), -INFINITY);
    llama_set_embeddings_nextn(context().get(), true, false);
}

void LatticeDrafter::read(DraftRequest & request, int row) {
    const Model & model = context().model();
    const Lattice lattice{lattice_row(row), model.n_embd(), top_k_, model.n_vocab()};
    Walk walk = walk_lattice(
        lattice, request.count,
        [&](const std::vector<Token> & candidates, const float * scores, const std::vector<Token> & before) {
            return choose(request, candidates, scores, before);
        });
    request.drafted = std::move(walk.tokens);
    request.confidence = std::move(walk.confidence);
}

// The scores stand for logits of the candidates, all other tokens for impossible ones. Draft and target share
// the noise of (seed, position, token), and the request's filters, penalties and temperature act on both. Not
// shared is what they act on: a nucleus of top_k scores is not the target's nucleus, and a token outside the
// candidates is never drafted. The predecessor is the token that was chosen, so that a sampled walk is scored
// along its own way.
int LatticeDrafter::choose(DraftRequest & request, const std::vector<Token> & candidates,
                           const float * scores, const std::vector<Token> & before) {
    if (!request.sampler || request.sampler->takes_the_best()) {
        return argmax(scores, top_k_);
    }
    for (size_t k = 0; k < candidates.size(); ++k) {
        logits_[static_cast<size_t>(candidates[k])] = scores[k];
    }
    const int n_before = static_cast<int>(before.size());
    const Row row{logits_.data(), static_cast<int>(logits_.size()), request.pos + 1 + n_before, before.data(),
                  n_before};
    const Token token = request.sampler->draft(row, false, request.q);
    for (const Token candidate : candidates) {
        logits_[static_cast<size_t>(candidate)] = -INFINITY;
    }
    const auto found = std::find(candidates.begin(), candidates.end(), token);
    return found == candidates.end() ? -1 : static_cast<int>(found - candidates.begin());
}

} // namespace dflash
