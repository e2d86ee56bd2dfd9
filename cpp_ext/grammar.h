// A GBNF grammar over a vocabulary, by llama.cpp's own sampler, as far as a text has come.
#pragma once

#include "filters.h"
#include "llama.h"
#include "spelling.h"

#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

namespace dflash {

// What a request asks for. tokens: control tokens that the grammar names; all of them if it excludes some.
struct GrammarText {
    std::string gbnf;
    std::unordered_set<Token> tokens;
    bool any_token = false;
};

class Grammar {
  public:
    // The vocabulary must live as long. Throws std::invalid_argument, with llama.cpp's words, for a text that
    // it does not take; what would end the process must have been refused before.
    Grammar(const llama_vocab * vocab, std::shared_ptr<const Spelling> spelling, const GrammarText & text);
    Grammar(const Grammar & other);
    Grammar & operator=(const Grammar &) = delete;

    // Whether the token may come next. An end token may where the grammar is complete. Control tokens, which
    // no text shows, may only where the grammar names them.
    bool allows(Token token) const;

    void keep_allowed(std::vector<Candidate> & candidates) const;

    // Of n logits, those of tokens that may come next; -inf and NaN are left out.
    std::vector<Candidate> allowed(const float * logits, int n) const;

    bool ends(Token token) const { return llama_vocab_is_eog(vocab_, token); }

    // The text goes on with a token that may come next. An end token changes nothing.
    void advance(Token token);

  private:
    bool possible(Token token) const;
    void apply(std::vector<llama_token_data> & tokens) const;

    const llama_vocab * vocab_;
    std::shared_ptr<const Spelling> spelling_;
    Utf8 utf8_;
    std::shared_ptr<const GrammarText> text_;
    std::unique_ptr<llama_sampler, void (*)(llama_sampler *)> sampler_;
};

} // namespace dflash
