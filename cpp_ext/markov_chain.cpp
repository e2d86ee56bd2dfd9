#include "markov_chain.h"

#include <ggml-backend.h>

#include <exception>
#include <stdexcept>

namespace dflash {

bool MarkovChain::see(ggml_tensor * node) {
    return choose_ && node->op == GGML_OP_ARGMAX;
}

void MarkovChain::computed(ggml_tensor * node) {
    if (!choose_ || node->op != GGML_OP_ARGMAX || !fault_.empty()) {
        return;
    }
    try {
        link(node);
    } catch (const std::exception & error) {
        fault_ = error.what();
    }
}

// A link: argmax of the logits [n_vocab, blocks] of one position, which the next position's head looks up.
void MarkovChain::link(ggml_tensor * node) {
    const ggml_tensor * logits = node->src[0];
    if (node->type != GGML_TYPE_I32 || logits->type != GGML_TYPE_F32 || !ggml_is_contiguous(logits) ||
        ggml_nrows(logits) != static_cast<int64_t>(blocks_) || ggml_nelements(node) != ggml_nrows(logits)) {
        throw std::runtime_error("llama.cpp's graph has another form than expected");
    }
    const size_t n_vocab = static_cast<size_t>(logits->ne[0]);
    logits_.resize(n_vocab * blocks_);
    ggml_backend_tensor_get(logits, logits_.data(), 0, logits_.size() * sizeof(float));
    for (size_t block = 0; block < blocks_; ++block) {
        const Token token = choose_(block, logits_.data() + block * n_vocab);
        if (token >= 0) {
            ggml_backend_tensor_set(node, &token, block * sizeof(Token), sizeof(Token));
        }
    }
    ++links_;
}

void MarkovChain::along(size_t blocks, int links, Choice choose, const std::function<void()> & decode) {
    blocks_ = blocks;
    links_ = 0;
    fault_.clear();
    choose_ = std::move(choose);
    try {
        decode();
    } catch (...) {
        choose_ = nullptr;
        throw;
    }
    choose_ = nullptr;
    if (fault_.empty() && links_ != links) {
        fault_ = std::to_string(links_) + " links were found in llama.cpp's graph, expected " +
                 std::to_string(links);
    }
    if (!fault_.empty()) {
        throw std::runtime_error("sampling along the Markov chain failed: " + fault_);
    }
}

} // namespace dflash
