// A round of a session: plan, draft, verify, accept, commit.
#include "session.h"

#include "stopwatch.h"

#include <algorithm>
#include <stdexcept>

namespace dflash {

void Session::round(std::vector<Output> & outputs) {
    std::vector<Turn> turns = plan();
    if (turns.empty()) {
        return;
    }
    draft(turns);
    prepare_rollback(turns);
    verify(turns);
    for (Turn & turn : turns) {
        outputs.push_back(accept(turn));
    }
    commit(turns);
}

std::vector<Session::Turn> Session::plan() {
    std::vector<Turn> turns;
    int width = 1;
    int room = max_block_;
    for (auto & entry : sequences_) {
        Sequence & sequence = entry.second;
        if (!sequence.decoding()) {
            continue;
        }
        width = std::max(width, plan_width(sequence.limits.block, sequence.remaining()));
        room = std::min(room, n_ctx() - sequence.n_past);
        turns.push_back(
            {&sequence, {sequence.id, sequence.n_past, sequence.anchor, 0, {}, {}, &sequence.sampler}});
    }
    // A recurrent target decodes unequal widths in separate passes: there all sequences share one.
    const bool shared = target_->context().model().has_state();
    for (Turn & turn : turns) {
        const Limits & limits = turn.sequence->limits;
        const int own = plan_width(limits.block, turn.sequence->remaining());
        const bool drafts = drafter_ && draft_failure_.empty() && limits.block > 1;
        turn.request.count = drafts ? (shared ? std::min(width, room) : own) - 1 : 0;
    }
    return turns;
}

void Session::draft(std::vector<Turn> & turns) {
    std::vector<DraftRequest> requests;
    std::vector<Turn *> owners;
    for (Turn & turn : turns) {
        if (turn.request.count > 0) {
            requests.push_back(turn.request);
            owners.push_back(&turn);
        }
    }
    if (requests.empty()) {
        return;
    }
    const Stopwatch watch(times_.draft);
    try {
        drafter_->draft(requests);
    } catch (const std::runtime_error & error) {
        give_up_drafting(error.what());
        return;
    }
    for (size_t i = 0; i < owners.size(); ++i) {
        owners[i]->request.drafted = std::move(requests[i].drafted);
    }
}

void Session::prepare_rollback(const std::vector<Turn> & turns) {
    const Stopwatch watch(times_.rollback);
    std::vector<llama_seq_id> drafted;
    for (const Turn & turn : turns) {
        if (!turn.request.drafted.empty()) {
            drafted.push_back(turn.request.seq);
        }
    }
    rollback_.prepare(drafted);
}

void Session::verify(std::vector<Turn> & turns) {
    const Stopwatch watch(times_.verify);
    batch_.clear();
    for (Turn & turn : turns) {
        turn.row = batch_.size();
        batch_.add(turn.request.anchor, turn.request.pos, turn.request.seq, true);
        llama_pos pos = turn.request.pos;
        for (const Token token : turn.request.drafted) {
            batch_.add(token, ++pos, turn.request.seq, true);
        }
    }
    target_->context().decode(batch_.view(), "verifying");
    target_->context().logits(0); // waits for a device, so that its time counts here
}

Token Session::chosen(int row, const Sequence & sequence, llama_pos position, const Token * after,
                      int n_after) const {
    const Context & context = target_->context();
    const Token best =
        sequence.sampler.choose(context.logits(row), context.model().n_vocab(), position, after, n_after);
    if (best < 0) {
        throw std::runtime_error("the target's logits are not numbers; its file may be damaged");
    }
    return best;
}

Output Session::accept(Turn & turn) {
    Sequence & sequence = *turn.sequence;
    const std::vector<Token> & drafted = turn.request.drafted;
    const int n_drafted = static_cast<int>(drafted.size());
    const std::optional<int> forced =
        n_drafted > 0 ? drafter_->forced_accept(sequence.id, n_drafted) : std::nullopt;
    const auto choose = [&](int i) {
        return chosen(turn.row + i, sequence, turn.request.pos + 1 + i, drafted.data(), i);
    };
    const Accepted taken = forced ? Accepted{*forced, choose(*forced)} : accept_greedy(drafted, choose);
    turn.accepted = taken.count;
    std::vector<Token> tokens(drafted.begin(), drafted.begin() + taken.count);
    tokens.push_back(taken.bonus);

    const Cut cut = cut_output(tokens, sequence.remaining(), sequence.limits.stops);
    tokens.resize(static_cast<size_t>(cut.keep));
    sequence.counters.count_round(n_drafted, cut.keep - 1, cut.keep);
    sequence.counters.last_token_ns = now_ns();
    sequence.finish = cut.finish;
    sequence.sampler.accept(tokens);
    sequence.anchor = tokens.back();
    sequence.n_past += cut.keep;
    return {sequence.id, std::move(tokens), cut.finish};
}

void Session::commit(const std::vector<Turn> & turns) {
    std::vector<FeatureRows> rows;
    for (const Turn & turn : turns) {
        if (turn.sequence->decoding()) {
            rows.push_back({turn.request.seq, turn.request.pos, turn.row, turn.accepted + 1});
        }
    }
    {
        const Stopwatch watch(times_.inject);
        inject(rows);
    }
    const Stopwatch watch(times_.rollback);
    std::vector<KeptRows> kept;
    for (const Turn & turn : turns) {
        const std::vector<Token> & drafted = turn.request.drafted;
        if (turn.sequence->decoding() && turn.accepted < static_cast<int>(drafted.size())) {
            kept.push_back({turn.request.seq, turn.request.pos, {turn.request.anchor}});
            kept.back().kept.insert(kept.back().kept.end(), drafted.begin(), drafted.begin() + turn.accepted);
        }
    }
    rollback_.keep(kept); // after the injection: a replay overwrites the features
}

} // namespace dflash
