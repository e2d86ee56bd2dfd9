#include "model_drafter.h"

#include <cstring>
#include <stdexcept>
#include <string>

namespace dflash {

ModelDrafter::ModelDrafter(std::shared_ptr<Context> context, Token mask, bool causal)
    : context_(std::move(context)), mask_(mask),
      features_(static_cast<int>(context_->model().taps().size()) * context_->model().n_embd(),
                context_->model().uses_mrope()) {
    const ContextParams & params = context_->params();
    if (params.n_batch != params.n_ubatch || params.n_outputs != params.n_batch) {
        throw std::invalid_argument("a draft context needs n_batch = n_ubatch = n_outputs, found " +
                                    std::to_string(params.n_batch) + ", " + std::to_string(params.n_ubatch) +
                                    " and " + std::to_string(params.n_outputs));
    }
    if (context_->model().taps().empty()) {
        throw std::invalid_argument("architecture '" + context_->model().arch() +
                                    "' is not a drafter; expected 'dflash'");
    }
    if (mask_ < 0 || mask_ >= context_->model().n_vocab()) {
        throw std::invalid_argument("mask token " + std::to_string(mask_) + " is outside the vocabulary of " +
                                    std::to_string(context_->model().n_vocab()));
    }
    llama_set_causal_attn(context_->get(), causal);
}

void ModelDrafter::inject(const Target & target, const std::vector<FeatureRows> & rows) {
    const size_t n_embd = static_cast<size_t>(target.n_embd());
    if (target.n_taps() * target.n_embd() != features_.width()) {
        throw std::logic_error("the target gives " + std::to_string(target.n_taps() * target.n_embd()) +
                               " features of a row, the drafter takes " + std::to_string(features_.width()));
    }
    features_.clear();
    for (const FeatureRows & run : rows) {
        for (int i = 0; i < run.count; ++i) {
            float * row = features_.add(run.pos + i, run.seq);
            for (int tap = 0; tap < target.n_taps(); ++tap) {
                const float * from = target.features(tap) + static_cast<size_t>(run.row + i) * n_embd;
                std::memcpy(row + static_cast<size_t>(tap) * n_embd, from, n_embd * sizeof(float));
            }
            // attention is not causal here: a decode must fit one ubatch
            if (features_.size() == context_->params().n_ubatch) {
                flush();
            }
        }
    }
    flush();
}

void ModelDrafter::flush() {
    if (features_.size() > 0) {
        context_->decode(features_.view(), "injecting features into the draft");
        features_.clear();
    }
}

void ModelDrafter::draft(std::vector<DraftRequest> & requests) {
    noise_.clear();
    for (const DraftRequest & request : requests) {
        for (int i = 0; i <= request.count; ++i) {
            // Every row asks for logits: llama.cpp copies the first rows of the batch, whichever were
            // flagged.
            noise_.add(i == 0 ? request.anchor : mask_, request.pos + i, request.seq, true);
        }
    }
    context_->decode(noise_.view(), "drafting");
    int row = 0;
    for (DraftRequest & request : requests) {
        for (int i = 1; i <= request.count; ++i) {
            const Token token = argmax(context_->logits(row + i), context_->model().n_vocab());
            if (token < 0) {
                break; // not a number: nothing after it can be trusted either
            }
            request.drafted.push_back(token);
        }
        row += request.count + 1;
        context_->truncate(request.seq, request.pos); // the noise leaves the cache
    }
}

} // namespace dflash
