#include "sampler.h"

#include <algorithm>
#include <cmath>

namespace dflash {

namespace {

// candidates: best first. A temperature of 0 takes the best; -1 if there is none.
Token draw_among(const std::vector<Candidate> & candidates, std::uint64_t stream, double temperature) {
    if (temperature <= 0) {
        return candidates.empty() ? -1 : candidates.front().token;
    }
    GumbelMax pick(stream, temperature);
    for (const Candidate & candidate : candidates) {
        pick.see(candidate.token, candidate.logit);
    }
    return pick.token();
}

// The same of a whole vocabulary.
Token draw_of_all(const float * logits, int n, std::uint64_t stream, double temperature) {
    const Token top = argmax(logits, n);
    if (top < 0 || temperature <= 0) {
        return top;
    }
    GumbelMax pick(stream, temperature);
    pick.see(top, logits[top]); // first, so that most others are ruled out at once
    for (Token token = 0; token < n; ++token) {
        if (token != top) {
            pick.see(token, logits[token]);
        }
    }
    return pick.token();
}

// The tokens that a draft drawn of all at this temperature or a lower one can come to, the most likely first:
// the noise of each of the others leaves it behind that one here, and cooling only sets it further back.
// Those less likely than e^-16 of it are not looked at, which saves most of the time: even 248,320 of them
// would be drawn in less than 3 drafts of 100. Where a draw must have its distribution exactly, the target's
// and rejection sampling's, none is passed over.
std::vector<Candidate> contenders(const float * logits, int n, std::uint64_t stream, double temperature) {
    const Token top = argmax(logits, n);
    if (top < 0) {
        return {};
    }
    std::vector<Candidate> found{{top, logits[top]}};
    if (temperature <= 0) {
        return found;
    }
    GumbelMax pick(stream, temperature);
    pick.see(top, logits[top]);
    constexpr int step = 64; // tested together, which the compiler vectorises
    const float least = static_cast<float>(logits[top] - 16 * temperature);
    for (Token first = 0; first < n; first += step) {
        const Token end = std::min(first + step, n);
        int likely = 0;
        for (Token token = first; token < end; ++token) {
            likely += logits[token] >= least ? 1 : 0;
        }
        for (Token token = first; likely > 0 && token < end; ++token) {
            if (logits[token] >= least && token != top && pick.may_take(token, logits[token])) {
                found.push_back({token, logits[token]});
            }
        }
    }
    return found;
}

} // namespace

Token Sampler::choose(const Row & row) const {
    const float * logits = changed(row);
    if (sampling_.temperature <= 0) {
        return argmax(logits, row.n);
    }
    return draw(logits, row.n, stream_of(sampling_.seed, row.position));
}

Token Sampler::draw(const float * logits, int n, std::uint64_t stream) const {
    return sampling_.narrows() ? draw_among(filtered(logits, n, sampling_), stream, sampling_.temperature)
                               : draw_of_all(logits, n, stream, sampling_.temperature);
}

Token Sampler::draft(const Row & row, bool lasting, std::vector<Distribution> & q) {
    if (rejects()) {
        return drafted(row, lasting, q);
    }
    const Token drawn = sampling_.temperature > 0 ? sharpened(row) : choose(row);
    if (!grammar_) {
        return drawn;
    }
    if (row.n_after == 0) {
        ahead_ = std::make_unique<Grammar>(*grammar_);
    } else if (!ahead_) {
        return -1;
    }
    const Token token = allowed(row, *ahead_, drawn);
    if (token < 0 || ahead_->ends(token)) {
        ahead_.reset(); // nothing can follow
    } else {
        ahead_->advance(token);
    }
    return token;
}

void Sampler::sharpen(const Sharpness & learnt, int compared) {
    sharpness_ = learnt.best(sampling_.temperature);
    compared_ = grammar_ ? -1 : compared; // a grammar may forbid what another choice picks
    picks_.reset();
}

void Sampler::learn(Sharpness & into, const std::vector<Token> & written) {
    reached_ = std::max(written.size(), static_cast<size_t>(1));
    const auto place = static_cast<size_t>(compared_);
    if (picks_ && place < written.size()) {
        into.saw(sampling_.temperature, *picks_, written[place]);
    }
}

// With the noise of the target, whose token it is to meet.
Token Sampler::sharpened(const Row & row) {
    const float * logits = changed(row);
    const std::uint64_t stream = stream_of(sampling_.seed, row.position);
    const double temperature = sampling_.temperature;
    const bool compares = row.n_after == compared_;
    const double in_use = temperature / sharpness_choices[sharpness_];
    const std::vector<Candidate> candidates =
        sampling_.narrows() ? filtered(logits, row.n, sampling_)
                            : contenders(logits, row.n, stream, compares ? temperature : in_use);
    if (!compares) {
        return draw_among(candidates, stream, in_use);
    }
    Picks picks;
    for (size_t choice = 0; choice < n_sharpness; ++choice) {
        picks[choice] = draw_among(candidates, stream, temperature / sharpness_choices[choice]);
    }
    picks_ = picks;
    return picks[sharpness_];
}

Token Sampler::drafted(const Row & row, bool lasting, std::vector<Distribution> & q) const {
    const float * logits = changed(row);
    const std::uint64_t stream = stream_of(sampling_.seed, row.position, Purpose::draft);
    const double temperature = sampling_.temperature / rejection_sharpness;
    if (sampling_.narrows()) {
        const std::vector<Candidate> kept = filtered(logits, row.n, sampling_);
        q.push_back(Distribution::among(kept, temperature));
        return draw_among(kept, stream, temperature);
    }
    q.push_back(lasting && logits == row.logits
                    ? Distribution::whole(logits, row.n, temperature)
                    : Distribution::whole(std::vector<float>(logits, logits + row.n), temperature));
    return draw_of_all(logits, row.n, stream, temperature);
}

Token Sampler::settle(const Row & row, Token drawn) {
    if (!grammar_) {
        return drawn;
    }
    const Token token = allowed(row, *grammar_, drawn);
    if (token >= 0) {
        grammar_->advance(token);
    }
    return token;
}

Token Sampler::allowed(const Row & row, const Grammar & grammar, Token drawn) const {
    return drawn < 0 || grammar.allows(drawn) ? drawn : redraw(row, grammar);
}

Token Sampler::redraw(const Row & row, const Grammar & grammar) const {
    const float * logits = changed(row);
    const bool greedy = sampling_.temperature <= 0;
    const std::uint64_t stream = stream_of(sampling_.seed, row.position);
    const auto best = [&](const std::vector<Candidate> & candidates) {
        GumbelMax pick(stream, sampling_.temperature);
        Candidate top{-1, -INFINITY};
        for (const Candidate & candidate : candidates) {
            if (!greedy) {
                pick.see(candidate.token, candidate.logit);
            }
            top = top.token < 0 || before(candidate, top) ? candidate : top;
        }
        return greedy ? top.token : pick.token();
    };
    // A few first: testing all tokens of a large vocabulary takes as long as decoding one.
    std::vector<Candidate> few;
    if (sampling_.narrows() && !greedy) {
        few = filtered(logits, row.n, sampling_);
    } else if (greedy) {
        few = largest(logits, row.n, 64);
    } else {
        scores_.resize(static_cast<size_t>(row.n));
        for (Token token = 0; token < row.n; ++token) {
            scores_[static_cast<size_t>(token)] = static_cast<float>(
                logits[token] / sampling_.temperature - std::log(-std::log(uniform(stream, token))));
        }
        few = largest(scores_.data(), row.n, 64);
        for (Candidate & candidate : few) {
            candidate.logit = logits[candidate.token];
        }
    }
    grammar.keep_allowed(few);
    if (!few.empty()) {
        return best(few);
    }
    std::vector<Candidate> all = grammar.allowed(logits, row.n);
    if (!sampling_.narrows() || greedy) {
        return best(all);
    }
    scores_.assign(static_cast<size_t>(row.n), -INFINITY);
    for (const Candidate & candidate : all) {
        scores_[static_cast<size_t>(candidate.token)] = candidate.logit;
    }
    return draw(scores_.data(), row.n, stream);
}

Distribution Sampler::distribution(const Row & row) const {
    const float * logits = changed(row);
    if (!sampling_.narrows()) {
        return Distribution::whole(logits, row.n, sampling_.temperature);
    }
    return Distribution::among(filtered(logits, row.n, sampling_), sampling_.temperature);
}

const float * Sampler::changed(const Row & row) const {
    if (!sampling_.changes_logits()) {
        return row.logits;
    }
    own_.assign(row.logits, row.logits + row.n);
    size_t left = sampling_.last_n < 0 ? text_.size() + static_cast<size_t>(row.n_after)
                                       : static_cast<size_t>(sampling_.last_n);
    const size_t of_after = std::min(left, static_cast<size_t>(row.n_after));
    const size_t of_text = std::min(left - of_after, text_.size());
    recent_.assign(row.after + row.n_after - of_after, row.after + row.n_after);
    recent_.insert(recent_.end(), text_.end() - static_cast<std::ptrdiff_t>(of_text), text_.end());
    std::sort(recent_.begin(), recent_.end());
    for (size_t i = 0; i < recent_.size();) {
        const size_t start = i;
        while (i < recent_.size() && recent_[i] == recent_[start]) {
            ++i;
        }
        float & logit = own_[static_cast<size_t>(recent_[start])];
        logit = logit <= 0 ? logit * sampling_.repeat : logit / sampling_.repeat;
        logit -= static_cast<float>(i - start) * sampling_.frequency + sampling_.presence;
    }
    for (const auto & [token, value] : sampling_.bias) {
        own_[static_cast<size_t>(token)] += value;
    }
    return own_.data();
}

std::string Sampler::why_nothing() const {
    const bool bans = !sampling_.bias.empty();
    if (grammar_) {
        return std::string("the grammar allows no token here that the model has") +
               (bans ? " and logit_bias does not ban" : "");
    }
    return "logit_bias bans every token that the target could write; ban fewer";
}

void Sampler::accept(const std::vector<Token> & tokens) {
    text_.insert(text_.end(), tokens.begin(), tokens.end());
}

} // namespace dflash
