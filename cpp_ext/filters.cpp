#include "filters.h"

#include "softmax.h"

#include <algorithm>
#include <cmath>

namespace dflash {

bool before(const Candidate & a, const Candidate & b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

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

namespace {

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
    const double sum = exp_sum(logits, n).sum;
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

// Tokens at least `share` as likely as the most likely one, best first.
std::vector<Candidate> likely(const float * logits, int n, float share) {
    std::vector<Candidate> kept;
    const Token top = argmax(logits, n);
    if (top < 0) {
        return kept;
    }
    const float least = share > 0 ? logits[top] + std::log(share) : -INFINITY;
    for (Token token = 0; token < n; ++token) {
        if (logits[token] >= least && logits[token] > -INFINITY) {
            kept.push_back({token, logits[token]});
        }
    }
    std::sort(kept.begin(), kept.end(), before);
    return kept;
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

bool Sampling::changes_logits() const {
    return repeat != 1 || frequency != 0 || presence != 0 || !bias.empty();
}

bool Sampling::narrows() const {
    return top_k > 0 || typical < 1 || top_p < 1 || min_p > 0;
}

std::vector<Candidate> filtered(const float * logits, int n, const Sampling & sampling) {
    std::vector<Candidate> kept;
    const bool whole = sampling.top_k <= 0 && sampling.typical >= 1;
    if (whole && sampling.top_p >= 1) {
        kept = likely(logits, n, sampling.min_p);
    } else if (whole) {
        kept = nucleus(logits, n, sampling.top_p);
    } else {
        const int count = sampling.top_k > 0 ? std::min(sampling.top_k, n) : n;
        kept = largest(logits, n, static_cast<size_t>(count));
    }
    if (kept.empty()) {
        return kept;
    }
    if (sampling.typical < 1) {
        keep_typical(kept, sampling.typical);
    }
    if (sampling.top_p < 1 && !whole) {
        keep_share(kept, softmax(kept), sampling.top_p);
    }
    if (sampling.min_p > 0) {
        const float least = kept[0].logit + std::log(sampling.min_p);
        const auto unlikely = [least](const Candidate & candidate) { return candidate.logit < least; };
        kept.erase(std::find_if(kept.begin(), kept.end(), unlikely), kept.end());
    }
    return kept;
}

} // namespace dflash
