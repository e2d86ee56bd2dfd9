#include "sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_map>

namespace dflash {

namespace {

struct Candidate {
    Token token;
    float logit;
};

bool before(const Candidate & a, const Candidate & b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

std::uint64_t mixed(std::uint64_t x) { // splitmix64's finaliser (Steele et al. 2014)
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

// Uniform in (0, 1), never either end.
double uniform(std::uint64_t stream, Token token) {
    const std::uint64_t bits =
        mixed(stream + 0x9e3779b97f4a7c15ULL * (static_cast<std::uint64_t>(token) + 1));
    return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53;
}

std::uint64_t stream_of(std::uint64_t seed, std::int32_t position) {
    return mixed(mixed(seed + 0x9e3779b97f4a7c15ULL) ^ static_cast<std::uint64_t>(position));
}

double noise(double u) {
    return -std::log(-std::log(u));
}

// The least uniform value whose noise can exceed a whole number: most tokens are ruled out by a comparison.
const std::array<double, 40> & bounds() {
    static const std::array<double, 40> table = [] {
        std::array<double, 40> made{};
        for (size_t i = 0; i < made.size(); ++i) {
            made[i] = std::exp(-std::exp(-static_cast<double>(i))) * (1 - 1e-12);
        }
        return made;
    }();
    return table;
}

// argmax of logit / temperature + noise over any range of candidates.
class GumbelMax {
  public:
    GumbelMax(std::uint64_t stream, double temperature) : stream_(stream), temperature_(temperature) {}

    void see(Token token, float logit) {
        const double scaled = static_cast<double>(logit) / temperature_;
        const double missing = best_ - scaled;
        const double u = uniform(stream_, token);
        if (missing >= 0 && (missing >= 38 || u < bounds()[static_cast<size_t>(missing)])) {
            return;
        }
        const double score = scaled + noise(u);
        if (score > best_) { // false for NaN
            best_ = score;
            token_ = token;
        }
    }

    Token token() const { return token_; }

  private:
    std::uint64_t stream_;
    double temperature_;
    double best_ = -INFINITY;
    Token token_ = -1;
};

// The `count` largest, in order; NaN is left out.
std::vector<Candidate> largest(const float * logits, int n, size_t count) {
    std::vector<Candidate> heap; // its front is the least of those kept
    heap.reserve(count + 1);
    for (Token token = 0; token < n; ++token) {
        const float logit = logits[token];
        if (heap.size() == count && !(logit > heap.front().logit)) {
            continue; // on equal logits the lower id stays
        }
        if (std::isnan(logit) || logit == -INFINITY) {
            continue;
        }
        heap.push_back({token, logit});
        std::push_heap(heap.begin(), heap.end(), before);
        if (heap.size() > count) {
            std::pop_heap(heap.begin(), heap.end(), before);
            heap.pop_back();
        }
    }
    std::sort_heap(heap.begin(), heap.end(), before);
    return heap;
}

// Probabilities of sorted candidates among themselves.
std::vector<double> softmax(const std::vector<Candidate> & sorted) {
    std::vector<double> p(sorted.size());
    double sum = 0;
    for (size_t i = 0; i < p.size(); ++i) {
        p[i] = std::exp(static_cast<double>(sorted[i].logit) - sorted[0].logit);
        sum += p[i];
    }
    for (double & value : p) {
        value /= sum;
    }
    return p;
}

// Keep the first candidates whose probabilities reach `share`.
void keep_share(std::vector<Candidate> & candidates, const std::vector<double> & p, double share) {
    double sum = 0;
    for (size_t i = 0; i < p.size(); ++i) {
        sum += p[i];
        if (sum >= share) {
            candidates.resize(i + 1);
            return;
        }
    }
}

// The nucleus of all n tokens. Its size is small as a rule, so that few need to be sorted.
std::vector<Candidate> nucleus(const float * logits, int n, double share) {
    const Token top = argmax(logits, n);
    if (top < 0) {
        return {};
    }
    double sum = 0;
    for (Token token = 0; token < n; ++token) {
        if (logits[token] > -INFINITY) { // false for NaN
            sum += std::exp(static_cast<double>(logits[token]) - logits[top]);
        }
    }
    for (size_t count = 256;; count *= 8) {
        std::vector<Candidate> sorted = largest(logits, n, std::min(count, static_cast<size_t>(n)));
        double reached = 0;
        for (size_t i = 0; i < sorted.size(); ++i) {
            reached += std::exp(static_cast<double>(sorted[i].logit) - logits[top]);
            if (reached >= share * sum) {
                sorted.resize(i + 1);
                return sorted;
            }
        }
        if (count >= static_cast<size_t>(n)) {
            return sorted;
        }
    }
}

void keep_typical(std::vector<Candidate> & candidates, double share) {
    const std::vector<double> p = softmax(candidates);
    double entropy = 0;
    for (const double value : p) {
        entropy -= value > 0 ? value * std::log(value) : 0;
    }
    std::vector<size_t> order(p.size());
    std::vector<double> distance(p.size());
    for (size_t i = 0; i < p.size(); ++i) {
        order[i] = i;
        distance[i] = std::fabs(-std::log(p[i]) - entropy);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return distance[a] < distance[b]; });
    std::vector<Candidate> kept;
    double sum = 0;
    for (const size_t i : order) {
        kept.push_back(candidates[i]);
        sum += p[i];
        if (sum > share) {
            break;
        }
    }
    std::sort(kept.begin(), kept.end(), before);
    candidates = std::move(kept);
}

} // namespace

double gumbel(std::uint64_t seed, std::int32_t position, Token token) {
    return noise(uniform(stream_of(seed, position), token));
}

bool Sampling::changes_logits() const {
    return repeat != 1 || frequency != 0 || presence != 0 || !bias.empty();
}

Token Sampler::choose(const float * logits, int n, std::int32_t position, const Token * after,
                      int n_after) const {
    std::vector<float> own;
    if (sampling_.changes_logits()) {
        own = changed(logits, n, after, n_after);
        logits = own.data();
    }
    if (sampling_.temperature <= 0) {
        return argmax(logits, n);
    }
    GumbelMax pick(stream_of(sampling_.seed, position), sampling_.temperature);
    const bool cut = sampling_.typical < 1 || sampling_.top_p < 1;
    if (!cut && sampling_.top_k <= 0) {
        const Token top = argmax(logits, n);
        if (top < 0) {
            return -1;
        }
        const float least = sampling_.min_p > 0 ? logits[top] + std::log(sampling_.min_p) : -INFINITY;
        pick.see(top, logits[top]);
        for (Token token = 0; token < n; ++token) {
            if (logits[token] >= least && token != top) {
                pick.see(token, logits[token]);
            }
        }
        return pick.token();
    }
    const bool only_top_p = sampling_.top_k <= 0 && sampling_.typical >= 1;
    const int count = sampling_.top_k > 0 ? std::min(sampling_.top_k, n) : n;
    std::vector<Candidate> kept =
        only_top_p ? nucleus(logits, n, sampling_.top_p) : largest(logits, n, static_cast<size_t>(count));
    if (kept.empty()) {
        return -1;
    }
    if (sampling_.typical < 1) {
        keep_typical(kept, sampling_.typical);
    }
    if (sampling_.top_p < 1 && !only_top_p) {
        keep_share(kept, softmax(kept), sampling_.top_p);
    }
    const float least = sampling_.min_p > 0 ? kept[0].logit + std::log(sampling_.min_p) : -INFINITY;
    for (const Candidate & candidate : kept) {
        if (candidate.logit >= least) {
            pick.see(candidate.token, candidate.logit);
        }
    }
    return pick.token();
}

std::vector<float> Sampler::changed(const float * logits, int n, const Token * after, int n_after) const {
    std::vector<float> out(logits, logits + n);
    std::unordered_map<Token, int> counts;
    int left = sampling_.last_n < 0 ? static_cast<int>(text_.size()) + n_after : sampling_.last_n;
    for (int i = n_after; i-- > 0 && left > 0; --left) {
        ++counts[after[i]];
    }
    for (size_t i = text_.size(); i-- > 0 && left > 0; --left) {
        ++counts[text_[i]];
    }
    for (const auto & [token, count] : counts) {
        float & logit = out[static_cast<size_t>(token)];
        logit = logit <= 0 ? logit * sampling_.repeat : logit / sampling_.repeat;
        logit -= static_cast<float>(count) * sampling_.frequency + sampling_.presence;
    }
    for (const auto & [token, value] : sampling_.bias) {
        out[static_cast<size_t>(token)] += value;
    }
    return out;
}

void Sampler::accept(const std::vector<Token> & tokens) {
    text_.insert(text_.end(), tokens.begin(), tokens.end());
}

} // namespace dflash
