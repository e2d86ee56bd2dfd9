// Chooses a token from logits. What is random is a pure function of (seed, position, token), so that a seed
// gives one text whatever is drafted, however wide the blocks are and whoever else is served; and draft and
// target see the same noise, so that they agree more often than two independent draws would. With rejection
// sampling the drafted tokens are draws of their own, and a text depends on them too.
#pragma once

#include "distribution.h"
#include "filters.h"
#include "noise.h"

#include <cstdint>
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
    Sampler(Sampling sampling, const std::vector<Token> & prompt)
        : sampling_(std::move(sampling)), text_(prompt) {}

    // Whether drafted tokens are accepted by rejection sampling.
    bool rejects() const { return sampling_.draft == DraftSampling::rejection && sampling_.temperature > 0; }

    // The target's token. -1 if no logit is a number or all are banned.
    Token choose(const Row & row) const;

    // A draft's token from its own logits; -1 as above. With rejection sampling what it was drawn with is
    // appended to q: it points into the logits if these are lasting.
    Token draft(const Row & row, bool lasting, std::vector<Distribution> & q) const;

    // What `choose` draws from, at a temperature above 0.
    Distribution distribution(const Row & row) const;

    // Uniform in (0, 1).
    double uniform_at(std::int32_t position, Purpose purpose) const {
        return uniform(stream_of(sampling_.seed, position, purpose));
    }

    // Why `choose` finds nothing in a row that has numbers: for the message of an error.
    std::string why_nothing() const;

    // Whether it is the most likely token, whatever the text and the position.
    bool takes_the_best() const { return sampling_.temperature <= 0 && !sampling_.changes_logits(); }

    // The text has grown.
    void accept(const std::vector<Token> & tokens);

  private:
    const float * changed(const Row & row) const;
    Token draw(const float * logits, int n, std::uint64_t stream) const;

    Sampling sampling_;
    std::vector<Token> text_;
    // kept from row to row, so that none allocates
    mutable std::vector<float> own_;
    mutable std::vector<Token> recent_;
};

} // namespace dflash
