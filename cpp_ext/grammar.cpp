#include "grammar.h"

#include "log.h"

#include <array>
#include <cmath>
#include <stdexcept>

namespace dflash {

Grammar::Grammar(const llama_vocab * vocab, std::shared_ptr<const Spelling> spelling,
                 const GrammarText & text)
    : vocab_(vocab), spelling_(std::move(spelling)), text_(std::make_shared<GrammarText>(text)),
      sampler_(nullptr, llama_sampler_free) {
    clear_errors();
    sampler_.reset(llama_sampler_init_grammar(vocab, text.gbnf.c_str(), "root"));
    if (!sampler_ || text.gbnf.empty()) {
        throw std::invalid_argument("llama.cpp does not take the grammar: " + last_errors());
    }
}

Grammar::Grammar(const Grammar & other)
    : vocab_(other.vocab_), spelling_(other.spelling_), utf8_(other.utf8_), text_(other.text_),
      sampler_(llama_sampler_clone(other.sampler_.get()), llama_sampler_free) {}

// Whether a text can go on with a token at all. llama.cpp's grammars take overlong forms for characters, and
// control tokens for the text of their names.
bool Grammar::possible(Token token) const {
    if (llama_vocab_is_eog(vocab_, token)) {
        return true;
    }
    const int unseen = LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN;
    if ((llama_vocab_get_attr(vocab_, token) & unseen) != 0) {
        return text_->any_token || text_->tokens.count(token) != 0;
    }
    if (utf8_.complete() && spelling_->whole(token)) {
        return true;
    }
    return Utf8(utf8_).take(spelling_->of(token));
}

void Grammar::apply(std::vector<llama_token_data> & tokens) const {
    llama_token_data_array array{tokens.data(), tokens.size(), -1, false};
    llama_sampler_apply(sampler_.get(), &array);
}

bool Grammar::allows(Token token) const {
    llama_token_data data{token, 0, 0};
    llama_token_data_array array{&data, 1, -1, false};
    if (!possible(token)) {
        return false;
    }
    llama_sampler_apply(sampler_.get(), &array);
    return data.logit > -INFINITY;
}

void Grammar::keep_allowed(std::vector<Candidate> & candidates) const {
    std::vector<llama_token_data> tokens;
    tokens.reserve(candidates.size());
    for (const Candidate & candidate : candidates) {
        tokens.push_back({candidate.token, possible(candidate.token) ? 0 : -INFINITY, 0});
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
    std::array<bool, 256> open;
    open.fill(true);
    if (text_->tokens.empty() && !text_->any_token) {
        std::vector<llama_token_data> tokens;
        for (int byte = 0; byte < 128; ++byte) {
            if (spelling_->alone(byte) >= 0) {
                tokens.push_back({spelling_->alone(byte), 0, 0});
            }
        }
        apply(tokens);
        for (const llama_token_data & token : tokens) {
            open[static_cast<unsigned char>(spelling_->of(token.id)[0])] = token.logit > -INFINITY;
        }
    }
    std::vector<Candidate> candidates;
    for (Token token = 0; token < n; ++token) {
        const std::string_view spelled = spelling_->of(token);
        if (logits[token] > -INFINITY && (spelled.empty() || open[static_cast<unsigned char>(spelled[0])] ||
                                          llama_vocab_is_eog(vocab_, token))) {
            candidates.push_back({token, logits[token]});
        }
    }
    keep_allowed(candidates);
    return candidates;
}

void Grammar::advance(Token token) {
    if (!llama_vocab_is_eog(vocab_, token)) { // llama.cpp ends the process where the grammar is not complete
        llama_sampler_accept(sampler_.get(), token);
        utf8_.take(spelling_->of(token));
    }
}

} // namespace dflash
