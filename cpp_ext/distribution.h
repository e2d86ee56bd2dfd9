// The probabilities a token is drawn with, kept no larger than the filters leave them.
#pragma once

#include "filters.h"
#include "softmax.h"

#include <optional>
#include <vector>

namespace dflash {

class Distribution {
  public:
    // No token at all.
    Distribution() = default;
    // All of it on one token: what a drafter that does not draw proposes.
    static Distribution certain(Token token);
    // softmax(logit / temperature) among the candidates.
    static Distribution among(const std::vector<Candidate> & candidates, double temperature);
    // softmax(logits / temperature) of a whole vocabulary. The logits are not copied.
    static Distribution whole(const float * logits, int n, double temperature);
    // Likewise, of logits that are not kept elsewhere.
    static Distribution whole(std::vector<float> logits, double temperature);

    bool empty() const { return chances_.empty() && !(n_ > 0 && sums().sum > 0); }

    double of(Token token) const;

    // A sample of max(0, of(token) - other.of(token)), normalised; u is uniform in (0, 1). -1 if that is
    // nowhere above 0.
    Token residual(const Distribution & other, double u) const;

  private:
    struct Chance {
        Token token;
        double p;
    };

    const float * logits() const { return logits_ ? logits_ : own_.data(); }
    const ExpSum & sums() const; // only of rows that are asked for: most of a draft's are not
    // out[i] = of(first + i), of a whole vocabulary.
    void fill(Token first, int count, float * out) const;
    // out[i] -= of(first + i)
    void subtract_from(float * out, Token first, int count) const;
    Token residual_among(const Distribution & other, double u) const;

    std::vector<Chance> chances_; // by token
    std::vector<float> own_;
    const float * logits_ = nullptr; // null: own_
    int n_ = 0;
    double temperature_ = 1;
    mutable std::optional<ExpSum> sums_;
};

} // namespace dflash
