// Chooses a token from logits. What is random is a pure function of (seed, position, token), so that a seed
// gives one text whatever is drafted, however wide the blocks are and whoever else is served; and draft and
// target see the same noise, so that they agree more often than two independent draws would. With rejection
// sampling the drafted tokens are draws of their own, and a text depends on them too.
#pragma once

#include "distribution.h"
#include "filters.h"
#include "grammar.h"
#include "noise.h"
#include "sharpness.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dflash {

// Logits of all n tokens for the place `position`, after the accepted text and n_after tokens more.
struct Row {
    const float * logits;
    int n;
    std::int32_t position;
    const Token * after;
    int n_after;
};

class Sampler {
  public:
    Sampler() = default; // greedy
    // grammar: what the text must keep to; null: anything.
    Sampler(Sampling sampling, const std::vector<Token> & prompt, std::unique_ptr<Grammar> grammar = nullptr)
        : sampling_(std::move(sampling)), text_(prompt), grammar_(std::move(grammar)) {}

    // Whether drafted tokens are accepted by rejection sampling.
    bool rejects() const { return sampling_.draft == DraftSampling::rejection && sampling_.temperature > 0; }

    // The target's token, grammars aside. -1 if no logit is a number or all are banned.
    Token choose(const Row & row) const;

    // The token to write where `drawn` came out of `choose` or another draw from the same distribution:
    // itself, or where the grammar forbids it a draw from what that leaves of the candidates, and of all
    // tokens if it leaves none. The grammar goes on with it, so the rows of a text must be settled in order,
    // each once. -1 if nothing is left.
    Token settle(const Row & row, Token drawn);

    // A draft's token from its own logits; -1 as above, or if the text must end here. With rejection sampling
    // what it was drawn with is appended to q, which points into the logits if these are lasting. Otherwise
    // it keeps to the grammar, from where the text is when the first row is drafted.
    Token draft(const Row & row, bool lasting, std::vector<Distribution> & q);

    // Draft the next block as sharply as has come out best so far. compared: the place in it where all
    // choices are compared, -1 for none.
    void sharpen(const Sharpness & learnt, int compared);
    // What each of them would have drafted there, if the block has come so far.
    const std::optional<Picks> & picks() const { return picks_; }
    // Tokens that the last block brought; 1 before the first.
    size_t reached() const { return reached_; }
    // What came of a block, once the target has written behind its anchor.
    void learn(Sharpness & into, const std::vector<Token> & written);

    // What `choose` draws from, at a temperature above 0.
    Distribution distribution(const Row & row) const;

    // Uniform in (0, 1).
    double uniform_at(std::int32_t position, Purpose purpose) const {
        return uniform(stream_of(sampling_.seed, position, purpose));
    }

    // Why `choose` finds nothing in a row that has numbers: for the message of an error.
    std::string why_nothing() const;

    // Whether it is the most likely token, whatever the text and the position.
    bool takes_the_best() const {
        return sampling_.temperature <= 0 && !sampling_.changes_logits() && !grammar_;
    }

    // The text has grown.
    void accept(const std::vector<Token> & tokens);

  private:
    const float * changed(const Row & row) const;
    Token draw(const float * logits, int n, std::uint64_t stream) const;
    Token sharpened(const Row & row);
    Token drafted(const Row & row, bool lasting, std::vector<Distribution> & q) const;
    Token allowed(const Row & row, const Grammar & grammar, Token drawn) const;
    Token redraw(const Row & row, const Grammar & grammar) const;

    Sampling sampling_;
    std::vector<Token> text_;
    std::unique_ptr<Grammar> grammar_; // after text_
    std::unique_ptr<Grammar> ahead_;   // after the tokens drafted so far
    size_t sharpness_ = 0;             // index of the choice in use
    int compared_ = -1;                // the place of the block where all are compared,
    std::optional<Picks> picks_;       // and what they pick there
    size_t reached_ = 1;
    // kept from row to row, so that none allocates
    mutable std::vector<float> own_;
    mutable std::vector<Token> recent_;
    mutable std::vector<float> scores_;
};

} // namespace dflash
