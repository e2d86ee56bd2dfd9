#include "distribution.h"

#include <algorithm>
#include <cmath>

namespace dflash {

namespace {

constexpr int step = 1024; // tokens looked at together

} // namespace

Distribution Distribution::certain(Token token) {
    Distribution made;
    made.chances_.push_back({token, 1});
    return made;
}

Distribution Distribution::among(const std::vector<Candidate> & candidates, double temperature) {
    Distribution made;
    made.chances_.reserve(candidates.size());
    double sum = 0;
    for (const Candidate & candidate : candidates) {
        const double p = std::exp((static_cast<double>(candidate.logit) - candidates[0].logit) / temperature);
        made.chances_.push_back({candidate.token, p});
        sum += p;
    }
    for (Chance & chance : made.chances_) {
        chance.p /= sum;
    }
    std::sort(made.chances_.begin(), made.chances_.end(),
              [](const Chance & a, const Chance & b) { return a.token < b.token; });
    return made;
}

Distribution Distribution::whole(const float * logits, int n, double temperature) {
    Distribution made;
    made.logits_ = logits;
    made.n_ = n;
    made.temperature_ = temperature;
    return made;
}

Distribution Distribution::whole(std::vector<float> logits, double temperature) {
    Distribution made = whole(logits.data(), static_cast<int>(logits.size()), temperature);
    made.own_ = std::move(logits);
    made.logits_ = nullptr;
    return made;
}

const ExpSum & Distribution::sums() const {
    if (!sums_) {
        sums_ = exp_sum(logits(), n_, temperature_);
    }
    return *sums_;
}

double Distribution::of(Token token) const {
    if (n_ > 0) {
        const float logit = logits()[token];
        return logit > -INFINITY ? std::exp(sums().log_share(logit, temperature_)) : 0;
    }
    const auto found =
        std::lower_bound(chances_.begin(), chances_.end(), token,
                         [](const Chance & chance, Token wanted) { return chance.token < wanted; });
    return found != chances_.end() && found->token == token ? found->p : 0;
}

void Distribution::fill(Token first, int count, float * out) const {
    exponentials(logits() + first, count, sums().top, temperature_, static_cast<float>(1 / sums().sum), out);
}

void Distribution::subtract_from(float * out, Token first, int count) const {
    if (n_ > 0) {
        float mine[step];
        fill(first, count, mine);
        for (int i = 0; i < count; ++i) {
            out[i] -= mine[i];
        }
        return;
    }
    auto next = std::lower_bound(chances_.begin(), chances_.end(), first,
                                 [](const Chance & chance, Token token) { return chance.token < token; });
    for (; next != chances_.end() && next->token < first + count; ++next) {
        out[next->token - first] -= static_cast<float>(next->p);
    }
}

Token Distribution::residual(const Distribution & other, double u) const {
    if (n_ == 0) {
        return residual_among(other, u);
    }
    // Sums of steps first, then the one step in which the sum reaches u of the total.
    float rest[step];
    const auto look = [&](Token first) {
        const int count = std::min(step, n_ - first);
        fill(first, count, rest);
        other.subtract_from(rest, first, count);
        double sum = 0;
        for (int i = 0; i < count; ++i) {
            rest[i] = std::max(rest[i], 0.0f);
            sum += rest[i];
        }
        return sum;
    };
    std::vector<double> sums;
    double total = 0;
    for (Token first = 0; first < n_; first += step) {
        sums.push_back(look(first));
        total += sums.back();
    }
    double left = u * total;
    int found = -1;
    for (size_t i = 0; i < sums.size(); ++i) {
        if (sums[i] > 0) { // the last such step, should rounding leave a little at the end
            found = static_cast<int>(i);
            if (left < sums[i]) {
                break;
            }
            left -= sums[i];
        }
    }
    if (found < 0) {
        return -1;
    }
    const Token first = found * step;
    look(first);
    Token chosen = -1;
    for (int i = 0; i < std::min(step, n_ - first); ++i) {
        if (rest[i] > 0) {
            chosen = first + i;
            left -= rest[i];
            if (left < 0) {
                break;
            }
        }
    }
    return chosen;
}

Token Distribution::residual_among(const Distribution & other, double u) const {
    double total = 0;
    for (const Chance & chance : chances_) {
        total += std::max(0.0, chance.p - other.of(chance.token));
    }
    double left = u * total;
    Token chosen = -1;
    for (const Chance & chance : chances_) {
        const double rest = chance.p - other.of(chance.token);
        if (rest > 0) {
            chosen = chance.token;
            left -= rest;
            if (left < 0) {
                break;
            }
        }
    }
    return chosen;
}

} // namespace dflash
