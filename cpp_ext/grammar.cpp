#include "grammar.h"

#include "log.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace dflash {

FirstBytes::FirstBytes(const llama_vocab * vocab) {
    const int n = llama_vocab_n_tokens(vocab);
    of_.assign(static_cast<size_t>(n), -1);
    alone_.fill(-1);
    std::vector<char> piece(64);
    for (Token token = 0; token < n; ++token) {
        int length =
            llama_token_to_piece(vocab, token, piece.data(), static_cast<int>(piece.size()), 0, true);
        if (length < 0) {
            piece.resize(static_cast<size_t>(-length));
            length = llama_token_to_piece(vocab, token, piece.data(), -length, 0, true);
        }
        if (length > 0) {
            const auto byte = static_cast<unsigned char>(piece[0]);
            of_[static_cast<size_t>(token)] = byte;
            if (length == 1 && llama_vocab_get_attr(vocab, token) == LLAMA_TOKEN_ATTR_NORMAL) {
                alone_[byte] = token;
            }
        }
    }
}

Grammar::Grammar(const llama_vocab * vocab, std::shared_ptr<const FirstBytes> bytes, const GrammarText & text)
    : vocab_(vocab), bytes_(std::move(bytes)), text_(std::make_shared<GrammarText>(text)),
      sampler_(nullptr, llama_sampler_free) {
    clear_errors();
    sampler_.reset(llama_sampler_init_grammar(vocab, text.gbnf.c_str(), "root"));
    if (!sampler_ || text.gbnf.empty()) {
        throw std::invalid_argument("llama.cpp does not take the grammar: " + last_errors());
    }
}

Grammar::Grammar(const Grammar & other)
    : vocab_(other.vocab_), bytes_(other.bytes_), text_(other.text_),
      sampler_(llama_sampler_clone(other.sampler_.get()), llama_sampler_free) {}

bool Grammar::hidden(Token token) const {
    const int unseen = LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN;
    return (llama_vocab_get_attr(vocab_, token) & unseen) != 0 && !llama_vocab_is_eog(vocab_, token) &&
           !text_->any_token && text_->tokens.count(token) == 0;
}

void Grammar::apply(std::vector<llama_token_data> & tokens) const {
    llama_token_data_array array{tokens.data(), tokens.size(), -1, false};
    llama_sampler_apply(sampler_.get(), &array);
}

bool Grammar::allows(Token token) const {
    llama_token_data data{token, 0, 0};
    llama_token_data_array array{&data, 1, -1, false};
    if (hidden(token)) {
        return false;
    }
    llama_sampler_apply(sampler_.get(), &array);
    return data.logit > -INFINITY;
}

void Grammar::keep_allowed(std::vector<Candidate> & candidates) const {
    std::vector<llama_token_data> tokens;
    tokens.reserve(candidates.size());
    for (const Candidate & candidate : candidates) {
        tokens.push_back({candidate.token, hidden(candidate.token) ? -INFINITY : 0, 0});
    }
    apply(tokens);
    size_t kept = 0;
    for (size_t i = 0; i < candidates.size(); ++i) {
        if (tokens[i].logit > -INFINITY) {
            candidates[kept++] = candidates[i];
        }
    }
    candidates.resize(kept);
}

std::vector<Candidate> Grammar::allowed(const float * logits, int n) const {
    // Of ASCII characters only: a part of a longer one may be refused where the whole is allowed. And not
    // where tokens are named, which may come whatever they spell.
    std::array<bool, 257> open;
    open.fill(true);
    if (text_->tokens.empty() && !text_->any_token) {
        std::vector<llama_token_data> tokens;
        for (int byte = 0; byte < 128; ++byte) {
            if (bytes_->alone(byte) >= 0) {
                tokens.push_back({bytes_->alone(byte), 0, static_cast<float>(byte)});
            }
        }
        apply(tokens);
        for (const llama_token_data & token : tokens) {
            open[static_cast<size_t>(token.p)] = token.logit > -INFINITY;
        }
    }
    std::vector<Candidate> candidates;
    for (Token token = 0; token < n; ++token) {
        const int byte = bytes_->of(token);
        if (logits[token] > -INFINITY &&
            (byte < 0 || open[static_cast<size_t>(byte)] || llama_vocab_is_eog(vocab_, token))) {
            candidates.push_back({token, logits[token]});
        }
    }
    keep_allowed(candidates);
    return candidates;
}

void Grammar::advance(Token token) {
    if (!llama_vocab_is_eog(vocab_, token)) { // llama.cpp ends the process where the grammar is not complete
        llama_sampler_accept(sampler_.get(), token);
    }
}

} // namespace dflash
