// What is random in a text: pure functions of (seed, position, purpose, token), so that no draw depends on
// which other draws were made.
#pragma once

#include "decide.h"

#include <array>
#include <cmath>
#include <cstdint>

namespace dflash {

// Draws at one position that must not depend on each other.
enum class Purpose : std::uint64_t {
    token = 0,    // the target's own choice; with shared noise the draft's too
    draft = 1,    // rejection sampling: the drafted token,
    accept = 2,   // whether it stays,
    residual = 3, // and what replaces it
};

std::uint64_t stream_of(std::uint64_t seed, std::int32_t position, Purpose purpose = Purpose::token);

// Gumbel noise of a token at a position of the text: argmax(logit / temperature + noise) is a sample from the
// softmax (Gumbel-max trick; Maddison et al. 2014).
double gumbel(std::uint64_t seed, std::int32_t position, Token token);

// The functions below are inline: they run for every token of the vocabulary.

inline std::uint64_t mixed(std::uint64_t x) { // splitmix64's finaliser (Steele et al. 2014)
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

// Uniform in (0, 1), never either end.
inline double uniform(std::uint64_t stream, Token token = 0) {
    const std::uint64_t bits =
        mixed(stream + 0x9e3779b97f4a7c15ULL * (static_cast<std::uint64_t>(token) + 1));
    return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53;
}

// The least uniform value whose noise can exceed a whole number: most tokens are ruled out by a comparison.
extern const std::array<double, 40> noise_bounds;

// argmax of logit / temperature + noise over the candidates it sees, in any order.
class GumbelMax {
  public:
    GumbelMax(std::uint64_t stream, double temperature) : stream_(stream), temperature_(temperature) {}

    // Whether the noise of a token is large enough for it, by a bound: `see` may still pass it over.
    bool may_take(Token token, float logit) const {
        const double missing = best_ - static_cast<double>(logit) / temperature_;
        if (missing >= 38) { // banned tokens too: no noise is that large
            return false;
        }
        return !(missing >= 0 && uniform(stream_, token) < noise_bounds[static_cast<size_t>(missing)]);
    }

    void see(Token token, float logit) {
        if (!may_take(token, logit)) {
            return;
        }
        const double noise = -std::log(-std::log(uniform(stream_, token)));
        const double score = static_cast<double>(logit) / temperature_ + noise;
        if (score > best_) { // false for NaN
            best_ = score;
            token_ = token;
        }
    }

    Token token() const { return token_; } // -1: nothing comparable was seen

  private:
    std::uint64_t stream_;
    double temperature_;
    double best_ = -INFINITY;
    Token token_ = -1;
};

} // namespace dflash
