// What a session's round drafts and verifies: how wide its blocks are, and what is learnt of that.
#include "session.h"

#include "stopwatch.h"

#include <algorithm>

namespace dflash {

std::vector<Session::Turn> Session::turns() {
    std::vector<Turn> turns;
    for (auto & entry : sequences_) {
        Sequence & sequence = entry.second;
        if (sequence.decoding()) {
            turns.push_back(
                {&sequence,
                 {sequence.id, sequence.n_past, sequence.anchor, 0, {}, {}, {}, &sequence.sampler},
                 0,
                 0,
                 {}});
        }
    }
    return turns;
}

// How many rows each sequence drafts, and the snapshots that takes.
Session::Round Session::plan(std::vector<Turn> & turns) {
    Round round;
    // A recurrent target decodes unequal widths in separate passes: there all sequences share one.
    const bool shared = target_->context().model().has_state();
    int widest = 1; // of those that say their width themselves
    int most = 1;   // that any sequence has use for
    int room = max_block_;
    bool any_auto = false;
    bool all_auto = true;
    for (const Turn & turn : turns) {
        const Sequence & sequence = *turn.sequence;
        const bool own = sequence.limits.block != auto_block;
        const int useful = plan_width(own ? sequence.limits.block : max_block_, sequence.remaining());
        any_auto = any_auto || !own;
        all_auto = all_auto && !own;
        widest = own ? std::max(widest, useful) : widest;
        most = std::max(most, useful);
        room = std::min(room, n_ctx() - sequence.n_past);
    }
    Controller * controller = drafting_.works() ? drafting_.controller() : nullptr;
    round.order.width = std::min(most, room);
    if (controller && any_auto) {
        round.order =
            controller->order(static_cast<int>(turns.size()), std::min(most, room), drafting_.probing());
    }
    round.learns = controller && all_auto;
    int width = std::min(std::max(widest, any_auto ? round.order.width : 1), room);
    if (shared && controller && !rollback_.replays()) {
        const int depth = std::max(round.order.depth, widest - 1);
        if (depth > this->depth() || (round.order.depth >= 0 && depth < this->depth())) {
            shift(depth);
        }
        width = std::min(width, this->depth() + 1); // there may have been no memory for more
    }
    for (Turn & turn : turns) {
        const Limits & limits = turn.sequence->limits;
        const int asked = limits.block == auto_block ? round.order.width : limits.block;
        const int own = plan_width(asked, turn.sequence->remaining());
        const bool drafts = drafting_.works() && limits.block != 1 && width > 1;
        turn.request.count = drafts ? (shared ? width : own) - 1 : 0;
        turn.request.rated = round.learns;
        round.facts.drafted_width = std::max(round.facts.drafted_width, turn.request.count + 1);
    }
    target_->publish(drafting_.works() && (round.order.features || widest > 1));
    return round;
}

// Remake the target's context with another number of snapshots.
void Session::shift(int depth) {
    const std::int64_t start = now_ns();
    last_shape_ = {0, 0};
    try {
        target_->reshape(depth);
    } catch (const std::exception & error) {
        if (target_->lost()) {
            throw;
        }
        shift_failure_ = error.what();
        drafting_.controller()->could_not_shift();
        return;
    }
    drafting_.controller()->saw_shift(depth, now_ns() - start);
}

void Session::draft(std::vector<Turn> & turns, Round & round) {
    std::vector<DraftRequest> requests;
    std::vector<Turn *> owners;
    std::vector<Sequence *> sequences;
    const std::uint64_t number = rounds_++;
    for (Turn & turn : turns) {
        if (turn.request.count > 0) {
            Sampler & sampler = turn.sequence->sampler;
            const auto index = static_cast<size_t>(&turn - turns.data());
            sampler.sharpen(sharpness_, compared_place(number, index, turns.size(), sampler.reached()));
            requests.push_back(turn.request);
            owners.push_back(&turn);
            sequences.push_back(turn.sequence);
        }
    }
    if (requests.empty()) {
        probe(turns, round.order.probe);
        return;
    }
    {
        const Stopwatch watch(times_.inject);
        drafting_.catch_up(sequences);
    }
    const std::int64_t before = times_.draft;
    {
        const Stopwatch watch(times_.draft);
        drafting_.draft(requests);
    }
    round.facts.draft = times_.draft - before;
    for (size_t i = 0; i < owners.size(); ++i) {
        owners[i]->request.drafted = std::move(requests[i].drafted);
        owners[i]->begins = first_two(owners[i]->request.drafted);
        owners[i]->request.q = std::move(requests[i].q);
        owners[i]->request.confidence = std::move(requests[i].confidence);
    }
}

// Draft for one sequence to see later whether that would have been right: the next one after the last so
// tried.
void Session::probe(std::vector<Turn> & turns, int rows) {
    Turn * chosen = nullptr;
    for (Turn & turn : turns) {
        const bool can = turn.sequence->limits.block == auto_block && turn.sequence->remaining() > rows &&
                         turn.sequence->n_past + rows <= n_ctx();
        if (can && (!chosen || (chosen->sequence->id <= probed_ && turn.sequence->id > probed_))) {
            chosen = &turn;
        }
    }
    if (rows < 2 || !chosen) {
        return;
    }
    probed_ = chosen->sequence->id;
    std::int64_t spent = 0;
    {
        const Stopwatch watch(spent);
        drafting_.catch_up({chosen->sequence});
        chosen->sequence->sampler.sharpen(sharpness_, -1);
        chosen->begins = first_two(drafting_.probe(*chosen->sequence, rows));
    }
    times_.draft += spent;
    if (drafting_.controller()) {
        drafting_.controller()->saw_probe_cost(spent);
    }
}

// Verify less of the blocks where their end cannot be of use, or is unlikely to be accepted.
void Session::trim(std::vector<Turn> & turns, Round & round) const {
    size_t most = 0; // the same for all: see plan
    for (const Turn & turn : turns) {
        const int useful = worth_verifying(turn.request.drafted, turn.sequence->limits.stops);
        most = std::max(most, static_cast<size_t>(useful));
    }
    if (round.learns && most > 0) {
        most = std::min(most, likely(turns, round));
    }
    for (Turn & turn : turns) {
        std::vector<Token> & drafted = turn.request.drafted;
        drafted.resize(std::min(drafted.size(), most));
    }
}

// Drafted tokens of each sequence that are likely enough to be accepted.
size_t Session::likely(const std::vector<Turn> & turns, const Round & round) const {
    std::vector<std::vector<float>> confidence;
    for (const Turn & turn : turns) {
        // Rejection sampling is exact only if which drafts are tested does not depend on what was drawn.
        if (turn.sequence->sampler.rejects()) {
            return static_cast<size_t>(round.facts.drafted_width) - 1;
        }
        confidence.push_back(turn.request.confidence);
    }
    return static_cast<size_t>(drafting_.controller()->trim(confidence, round.facts.drafted_width)) - 1;
}

// Tell the controller what the round cost and brought.
void Session::learn(const std::vector<Turn> & turns, Round & round) {
    if (!round.learns || !drafting_.works()) {
        return;
    }
    round.facts.sequences = static_cast<int>(turns.size());
    for (const Turn & turn : turns) {
        const int tested = static_cast<int>(turn.request.drafted.size());
        if (tested > 0) {
            drafting_.controller()->saw_block(turn.request.confidence, tested, turn.accepted);
        }
    }
    drafting_.controller()->saw_round(round.facts);
}

} // namespace dflash
