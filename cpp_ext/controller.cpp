#include "controller.h"

#include <algorithm>
#include <numeric>

namespace dflash {

namespace {

constexpr int any_depth = -1;
constexpr double stickiness = 0.03;    // a width stays unless another is better by this share
constexpr double probe_share = 0.0075; // of the time may go to finding out whether drafting would pay
constexpr double first_tokens = 256;   // of which
constexpr double first_share = 0.06;   // may go to finding out, at the very beginning
constexpr int probe_rows = 8;
constexpr double enough_evidence = 4;
constexpr int patience = 4; // probes in vain before features are turned off for a while
constexpr int first_sleep = 64;
constexpr int longest_sleep = 2048;
constexpr int waking_rounds = 16;

std::vector<int> widths_up_to(int widest) {
    std::vector<int> widths;
    for (int width = 1; width < widest; width += width < 4 ? 1 : width < 16 ? 2 : 8) {
        widths.push_back(width);
    }
    widths.push_back(widest);
    return widths;
}

} // namespace

Controller::Controller(CostTable costs, int widest, Return way, int depth)
    : costs_(std::move(costs)), widths_(widths_up_to(widest)), way_(way),
      snapshots_(way == Return::snapshots), depth_(depth) {
    allowance_ = first_share * first_tokens * costs_.verify(1, 1, 0);
}

double Controller::cost(int sequences, int width, int depth, double tokens) const {
    const double inject = width > 1 ? costs_.inject(static_cast<int>(tokens)) : 0;
    double again = 0;
    if (width > 1 && way_ == Return::replay) {
        again = costs_.verify(sequences, std::max(1, static_cast<int>(tokens / sequences)), 0);
    }
    return costs_.draft(sequences, width) + costs_.verify(sequences, width, depth) + inject + again;
}

int Controller::first_depth() const {
    return snapshots_ && proven() ? needed(best(1, widths_.back(), any_depth).width) : 0;
}

double Controller::rate(int sequences, int width, int depth) const {
    const double tokens = sequences * survival_.expected(width);
    return tokens / cost(sequences, width, depth == any_depth ? needed(width) : depth, tokens);
}

Controller::Best Controller::best(int sequences, int most, int depth) const {
    Best best{1, rate(sequences, 1, depth)};
    for (const int width : widths_) {
        if (width > 1 && width <= most) {
            const double value = rate(sequences, width, depth);
            if (value > best.rate) {
                best = {width, value};
            }
        }
    }
    return best;
}

bool Controller::proven() const {
    return survival_.evidence() >= enough_evidence;
}

Order Controller::order(int sequences, int most, bool probing) {
    const Best wanted = best(sequences, most, any_depth);
    Best here = wanted;
    if (snapshots_) {
        here = best(sequences, std::min(most, depth_ + 1), depth_);
    }
    const int last = std::min({last_drafted_, most, snapshots_ ? depth_ + 1 : most});
    if (last != here.width) {
        const double stay = rate(sequences, last, snapshots_ ? depth_ : any_depth);
        if (stay > here.rate * (1 - stickiness)) {
            here = {last, stay};
        }
    }
    gap_ = std::max(0.0, 1 - here.rate / wanted.rate);
    Order order;
    order.width = proven() ? here.width : 1;
    if (snapshots_ && proven() && regret_ > costs_.shift()) {
        order.depth = needed(wanted.width);
    }
    if (order.width == 1) {
        look_out(order, sequences, most, probing);
    }
    return order;
}

// What else a round without a draft does.
void Controller::look_out(Order & order, int sequences, int most, bool probing) {
    if (asleep_ > 0) {
        order.features = false;
        if (--asleep_ == 0) {
            waking_ = waking_rounds;
        }
        return;
    }
    if (waking_ > 0) {
        --waking_;
        return;
    }
    const int rows = std::min(most, std::min(probe_rows, widths_.back()));
    if (!probing && rows > 1 && allowance_ >= costs_.draft(1, rows)) {
        order.probe = rows;
    }
}

int Controller::trim(const std::vector<std::vector<float>> & confidence, int drafted_width) const {
    const int sequences = static_cast<int>(confidence.size());
    std::vector<std::vector<double>> expected;
    for (const std::vector<float> & of_one : confidence) {
        expected.push_back(survival_.expected(of_one));
    }
    const double price = rate(sequences, drafted_width, depth_); // tokens that a nanosecond is worth
    int chosen = drafted_width;
    double most = -1e300;
    for (const int width : widths_) {
        if (width > drafted_width) {
            break;
        }
        double tokens = 0;
        for (const std::vector<double> & of_one : expected) {
            tokens += of_one[std::min(of_one.size(), static_cast<size_t>(width)) - 1];
        }
        double ns = cost(sequences, width, depth_, tokens) - costs_.draft(sequences, width);
        // a verify of another shape costs now, and again when the usual width comes back
        ns += (width != last_verified_ ? costs_.rebuild() : 0) +
              (width != drafted_width ? costs_.rebuild() : 0);
        const double worth = tokens - price * ns;
        if (worth > most) {
            most = worth;
            chosen = width;
        }
    }
    return chosen;
}

void Controller::saw_block(const std::vector<float> & confidence, int tested, int accepted) {
    survival_.saw(confidence, tested, accepted);
}

void Controller::saw_probe(const std::vector<float> & confidence, int tested, int accepted) {
    survival_.fade();
    survival_.saw(confidence, tested, accepted);
    if (best(1, widths_.back(), any_depth).width > 1) {
        misses_ = 0;
        return;
    }
    if (++misses_ >= patience) {
        const int doublings = std::min(misses_ - patience, 16);
        asleep_ = std::min(first_sleep << doublings, longest_sleep);
    }
}

void Controller::saw_probe_cost(std::int64_t ns) {
    allowance_ -= static_cast<double>(ns);
}

void Controller::saw_round(const RoundFacts & facts) {
    const double total = static_cast<double>(facts.total);
    if (facts.width > 1 || facts.drafted_width > 1) {
        survival_.fade();
        misses_ = 0;
    } else {
        const double most = first_share * first_tokens * costs_.verify(1, 1, 0);
        allowance_ = std::min(allowance_ + probe_share * total, most);
    }
    if (facts.draft > 0) {
        costs_.saw_draft(facts.sequences, facts.drafted_width, static_cast<double>(facts.draft));
    }
    const double verify = static_cast<double>(facts.verify) - (facts.rebuilt ? costs_.rebuild() : 0);
    costs_.saw_verify(facts.sequences, facts.width, snapshots_ ? depth_ : 0, verify);
    regret_ = gap_ > 0 ? regret_ + gap_ * total : regret_ * 0.9;
    last_drafted_ = facts.drafted_width;
    last_verified_ = facts.width;
}

void Controller::saw_shift(int depth, std::int64_t ns) {
    depth_ = depth;
    regret_ = 0;
    costs_.saw_shift(static_cast<double>(ns));
}

} // namespace dflash
