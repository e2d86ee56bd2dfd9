#include "dspark_drafter.h"

#include "llama_ext.h"

#include <algorithm>
#include <stdexcept>

namespace dflash {

DsparkDrafter::DsparkDrafter(std::shared_ptr<Model> model, const ContextParams & params,
                             std::shared_ptr<Context> target, Token mask, const std::vector<bool> & causal,
                             bool from_anchor, bool confidence)
    : DsparkDrafter(std::move(model), params, std::move(target), mask, causal, from_anchor, confidence,
                    std::make_shared<MarkovChain>()) {}

DsparkDrafter::DsparkDrafter(std::shared_ptr<Model> model, const ContextParams & params,
                             std::shared_ptr<Context> target, Token mask, const std::vector<bool> & causal,
                             bool from_anchor, bool confidence, std::shared_ptr<MarkovChain> chain)
    : ModelDrafter(std::move(model), params, std::move(target), mask, causal, chain),
      from_anchor_(from_anchor), confidence_(confidence), chain_(std::move(chain)) {
    if (trained_block() < block_rows(1)) {
        throw std::invalid_argument("the drafter's block size is " + std::to_string(trained_block()) +
                                    ", at least " + std::to_string(block_rows(1)) + " is needed");
    }
    if (params.n_seq > 1 && !params.unified) {
        // in a split one llama.cpp may put the blocks into another order than the batch's
        throw std::invalid_argument("a DSpark drafter of several sequences needs a unified cache");
    }
    llama_set_embeddings_nextn(context().get(), confidence_, false);
}

void DsparkDrafter::decode_blocks(std::vector<DraftRequest> & requests, const BlockGroup & group) {
    const bool sampled = std::any_of(group.members.begin(), group.members.end(), [&](size_t member) {
        const Sampler * sampler = requests[member].sampler;
        return sampler && !sampler->takes_the_best();
    });
    if (!sampled) {
        decode_noise(); // the graph's own chain is of the best tokens
        return;
    }
    const auto choose = [&](size_t block, const float * logits) -> Token {
        DraftRequest & request = requests[group.members[block]];
        if (static_cast<int>(request.drafted.size()) >= request.count) {
            return -1;
        }
        if (!extend(request, logits, false)) {
            request.count = static_cast<int>(request.drafted.size()); // the draft ends here
            return -1;
        }
        return request.drafted.back();
    };
    chain_->along(group.members.size(), group.count - 1, choose, [&] { decode_noise(); });
}

void DsparkDrafter::read(DraftRequest & request, int row) {
    const int first = row + (from_anchor_ ? 0 : 1);
    read_logits(request, first); // what the chain has not chosen: the last, or all
    if (!confidence_) {
        return;
    }
    request.confidence.clear(); // the head knows better than the logits
    for (size_t i = 0; i < request.drafted.size(); ++i) {
        // the graph spreads each row's confidence over n_embd floats
        request.confidence.push_back(*extra_row(first + static_cast<int>(i)));
    }
}

} // namespace dflash
