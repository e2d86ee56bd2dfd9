#include "controller.h"

#include "widths.h"

#include <algorithm>

namespace dflash {

namespace {

constexpr double stickiness = 0.03;    // a width stays unless another is better by this share
constexpr double probe_share = 0.0075; // of the time may go to finding out whether drafting would pay
constexpr double first_tokens = 256;   // of which
constexpr double first_share = 0.04;   // may go to finding out, at the very beginning
constexpr double enough_evidence = 4;
constexpr double remembered = 20; // outcomes of a position: a guess from another day gives way soon
constexpr size_t blocks_kept = 48;
constexpr size_t blocks_inherited = 12; // by a new request: what it wants may be another kind of text
constexpr double request_probes = 3;    // that a request may begin with, whatever the allowance
constexpr double sure = 5;              // times what a shift costs must have been lost for want of it
constexpr double hopeless = 0.05;       // unless so few requests were drafted for
constexpr int rates_last = 4;           // rounds
constexpr int rates_last_plain = 256;   // that brought no news of drafts
constexpr int patience = 4;             // probes in vain before features are turned off for a while
constexpr int first_sleep = 64;
constexpr int longest_sleep = 2048;
constexpr int waking_rounds = 16;
constexpr int enough_trials = 6; // rounds that tell what rough costs really are
constexpr int plain_trial = 3;   // of which every so-many-th is one of one row, to compare with

} // namespace

Controller::Controller(CostTable costs, int widest, Return way, int depth,
                       const std::vector<std::pair<double, double>> & outcomes)
    : costs_(std::move(costs)), drafts_(draft_widths(widest)), way_(way), depth_(depth),
      deepest_(needed(widest)) {
    survival_.remember(outcomes, remembered);
    allowance_ = budget();
}

// Snapshots to go back from a verify of what is left of such a draft.
int Controller::needed(int width) const {
    if (way_ != Return::snapshots || width == 1) {
        return 0;
    }
    return *std::lower_bound(drafts_.begin(), drafts_.end(), width) - 1;
}

double Controller::budget() const {
    return first_share * first_tokens * costs_.verify(1, 1, 0);
}

double Controller::verify_cost(int sequences, int width, double verify, double tokens) const {
    double ns = verify;
    if (last_drafted_ > 1 || width > 1) {
        ns += costs_.inject(static_cast<int>(tokens));
    }
    if (width > 1 && way_ == Return::replay) {
        ns += costs_.verify(sequences, std::max(1, static_cast<int>(tokens / sequences)), 0);
    }
    return ns;
}

Expected Controller::expected(const std::vector<float> & confidence, int rows) const {
    Expected tokens{1};
    double alive = 1;
    for (int i = 0; i + 1 < rows; ++i) {
        const bool known = i < static_cast<int>(confidence.size());
        alive *= known ? survival_.chance(i, confidence[static_cast<size_t>(i)]) : survival_.chance(i);
        tokens.push_back(tokens.back() + alive);
    }
    return tokens;
}

double Controller::rate(int sequences, int width, int depth) const {
    return rate(typical(), sequences, width, depth);
}

std::vector<Expected> Controller::typical() const {
    std::vector<Expected> blocks;
    for (const std::vector<float> & confidence : blocks_) {
        blocks.push_back(expected(confidence, drafts_.back()));
    }
    if (blocks.empty()) {
        blocks.push_back(expected({}, drafts_.back()));
    }
    return blocks;
}

double Controller::rate(const std::vector<Expected> & blocks, int sequences, int width, int depth) const {
    if (width == 1) {
        return sequences / costs_.verify(sequences, 1, depth);
    }
    const std::vector<int> widths = verify_widths(width);
    std::vector<double> verify(static_cast<size_t>(width) +
                               1); // by width: asked for thousands of times below
    for (const int rows : widths) {
        // a verify of another shape than the usual costs its graph, and the usual one's when that comes back
        verify[static_cast<size_t>(rows)] =
            costs_.verify(sequences, rows, depth) + (rows == width ? 0 : 1.5 * costs_.rebuild());
    }
    const auto cost = [&](int rows, double tokens) {
        return verify_cost(sequences, rows, verify[static_cast<size_t>(rows)], tokens);
    };
    return trimmed_rate(blocks, sequences, widths, costs_.draft(sequences, width), cost);
}

void Controller::wake() {
    asleep_ = waking_ = 0;
    if (rounds_since_wake_ == 0) {
        return; // requests that come together count once
    }
    constexpr double step = 0.2;
    worth_ += step * ((drafted_since_wake_ ? 1 : 0) - worth_);
    rounds_since_wake_ = 0;
    drafted_since_wake_ = false;
    while (blocks_.size() > blocks_inherited) {
        blocks_.pop_front();
    }
    rates_.age = rates_last_plain;
    if (worth_ > hopeless) {
        allowance_ =
            std::max(allowance_, request_probes * costs_.draft(1, std::min(probe_rows, drafts_.back())));
    }
}

const Controller::Rates & Controller::rates(int sequences) {
    if (sequences == rates_.sequences && depth_ == rates_.depth &&
        rates_.age++ < (last_drafted_ > 1 ? rates_last : rates_last_plain)) {
        return rates_;
    }
    rates_ = {sequences, depth_, 0, {}, {}};
    const std::vector<Expected> blocks = typical();
    for (const int width : drafts_) {
        const int depth = needed(width);
        rates_.ideal.push_back(rate(blocks, sequences, width, depth));
        const bool can = way_ != Return::snapshots || depth <= depth_;
        const bool same = depth == depth_ || way_ != Return::snapshots;
        rates_.here.push_back(!can ? 0 : same ? rates_.ideal.back() : rate(blocks, sequences, width, depth_));
    }
    return rates_;
}

bool Controller::proven() const {
    return survival_.evidence() >= enough_evidence;
}

int Controller::first_depth() {
    if (way_ != Return::snapshots || !proven()) {
        return 0;
    }
    const std::vector<double> & ideal = rates(1).ideal;
    const auto best = std::max_element(ideal.begin(), ideal.end()) - ideal.begin();
    return needed(drafts_[static_cast<size_t>(best)]);
}

Order Controller::order(int sequences, int most, bool probing) {
    const Rates & rates = this->rates(sequences);
    size_t wanted = 0;
    size_t here = 0;
    size_t last = 0;
    for (size_t i = 0; i < drafts_.size(); ++i) {
        const bool can = needed(drafts_[i]) <= deepest_;
        wanted = can && rates.ideal[i] > rates.ideal[wanted] ? i : wanted;
        here = rates.here[i] > rates.here[here] ? i : here;
        last = drafts_[i] <= last_drafted_ ? i : last;
    }
    if (rates.here[last] > rates.here[here] * (1 - stickiness)) {
        here = last;
    }
    gap_ = std::max(0.0, 1 - rates.here[here] / rates.ideal[wanted]);
    Order order;
    order.width = proven() ? drafts_[here] : 1;
    // what pays for this text may not for the next; while nothing is drafted, the gain is large and sooner
    // sure
    const double enough = costs_.shift() * (drafts_[here] == 1 ? 1 : sure);
    if (way_ == Return::snapshots && proven() && regret_ > enough) {
        order.depth = needed(drafts_[wanted]);
        order.width = drafts_[wanted];
    }
    order.width = std::min(order.width, most);
    if (costs_.rough()) {
        try_out(order, most);
    }
    if (order.width == 1) {
        look_out(order, sequences, most, probing);
    }
    return order;
}

// The first width that seems to pay is tried some times before it is judged: one time of a few may be another
// program's. Times of it alone would leave it open how they compare with those of one row.
void Controller::try_out(Order & order, int most) {
    trial_ = trials_ == 0 ? order.width : trial_;
    if (trial_ > 1 && trials_ < enough_trials) {
        order.width = ++trials_ % plain_trial == 0 ? 1 : std::min(trial_, most);
    }
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
    const int rows = std::min({most, probe_rows, drafts_.back()});
    ++since_probe_; // probes closer to each other than this would be of the same tokens
    if (!probing && rows > 1 && since_probe_ >= rows && allowance_ >= costs_.draft(1, rows)) {
        order.probe = rows;
        since_probe_ = 0;
    }
}

int Controller::trim(const std::vector<std::vector<float>> & confidence, int drafted_width) const {
    const int sequences = static_cast<int>(confidence.size());
    std::vector<Expected> tokens;
    std::vector<const Expected *> blocks;
    for (const std::vector<float> & of_one : confidence) {
        tokens.push_back(expected(of_one, drafted_width));
    }
    for (const Expected & of_one : tokens) {
        blocks.push_back(&of_one);
    }
    const auto known = std::find(drafts_.begin(), drafts_.end(), drafted_width);
    const size_t index = static_cast<size_t>(known - drafts_.begin());
    const bool fresh = sequences == rates_.sequences && known != drafts_.end() && rates_.here[index] > 0;
    const double price = fresh ? rates_.here[index] : rate(sequences, drafted_width, depth_);
    return best_trim(blocks, verify_widths(drafted_width), price,
                     [&](int width, double tokens_in_all) {
                         return verify_cost(sequences, width, costs_.verify(sequences, width, depth_),
                                            tokens_in_all) +
                                (width != last_verified_ ? costs_.rebuild() : 0) +
                                (width != drafted_width ? costs_.rebuild() / 2 : 0);
                     })
        .width;
}

void Controller::remember(const std::vector<float> & confidence) {
    blocks_.push_back(confidence);
    while (blocks_.size() > blocks_kept) {
        blocks_.pop_front();
    }
}

void Controller::saw_block(const std::vector<float> & confidence, int tested, int accepted) {
    survival_.saw(confidence, tested, accepted);
    remember(confidence);
}

void Controller::saw_probe(const std::vector<float> & confidence, int tested, int accepted) {
    // what was seen while drafting, or long ago, counts less than how it goes now
    constexpr size_t forgotten = 3;
    blocks_.erase(blocks_.begin(),
                  blocks_.begin() + static_cast<std::ptrdiff_t>(std::min(forgotten, blocks_.size())));
    survival_.fade();
    survival_.saw(confidence, tested, accepted);
    remember(confidence);
    rates_.age = rates_last_plain;
    const std::vector<double> & ideal = rates(std::max(1, rates_.sequences)).ideal;
    const bool hopeful = 2 * accepted >= static_cast<int>(confidence.size());
    if (hopeful || *std::max_element(ideal.begin(), ideal.end()) > ideal[0]) {
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
    ++rounds_since_wake_;
    drafted_since_wake_ = drafted_since_wake_ || facts.drafted_width > 1;
    if (facts.drafted_width > 1) {
        survival_.fade();
        misses_ = 0;
    } else {
        allowance_ = std::min(allowance_ + probe_share * total, budget());
    }
    if (facts.draft > 0) {
        costs_.saw_draft(facts.sequences, facts.drafted_width, static_cast<double>(facts.draft));
    }
    const double verify = static_cast<double>(facts.verify) - (facts.rebuilt ? costs_.rebuild() : 0);
    costs_.saw_verify(facts.sequences, facts.width, way_ == Return::snapshots ? depth_ : 0, verify);
    if (facts.sequences != last_sequences_) {
        regret_ *= 0.85; // as answers come and go, what would have paid a moment ago may not
        last_sequences_ = facts.sequences;
    }
    regret_ = gap_ > 0 ? regret_ + gap_ * total : regret_ * 0.9;
    last_drafted_ = facts.drafted_width;
    last_verified_ = facts.width;
}

void Controller::could_not_shift() {
    deepest_ = depth_;
    regret_ = 0;
}

void Controller::saw_shift(int depth, std::int64_t ns) {
    depth_ = depth;
    regret_ = 0;
    costs_.saw_shift(static_cast<double>(ns));
}

} // namespace dflash
