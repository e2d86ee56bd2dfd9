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
            {&sequence, {sequence.id, sequence.n_past, sequence.anchor, 0, {}, {}, {}, &sequence.sampler}});
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
        owners[i]->request.q = std::move(requests[i].q);
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

// row: of the request's anchor in the last decode.
Verdict Session::judged(Sequence & sequence, const DraftRequest & request, int row,
                        std::optional<int> forced) {
    const Context & context = target_->context();
    return judge(
        sequence.sampler, request, context.model().n_vocab(), [&](int i) { return context.logits(row + i); },
        sequence.limits.stops, forced);
}

// Cuts an output's tokens where the answer ends, spells them, and returns why it ends.
Finish Session::cut(Sequence & sequence, Output & output) {
    Cut cut = cut_output(output.tokens, sequence.remaining(), sequence.limits.stops);
    const Model & model = target_->context().model();
    for (int i = 0; i < cut.keep; ++i) {
        const Token token = output.tokens[static_cast<size_t>(i)];
        if (ends_.count(token) == 0 && sequence.stop_strings.read(model.piece(token, false), output.text)) {
            cut = {i + 1, Finish::stop};
        }
    }
    output.tokens.resize(static_cast<size_t>(cut.keep));
    return cut.finish;
}

// Cuts a verdict to what is still wanted and makes it the sequence's text. row: whose logits gave its first
// token.
Output Session::write(Sequence & sequence, Verdict verdict, int row) {
    Output output{sequence.id, std::move(verdict.tokens), Finish::none};
    output.finish = cut(sequence, output);
    if (output.finish == Finish::none && !verdict.problem.empty()) {
        output.finish = Finish::failed;
        output.problem = std::move(verdict.problem);
    }
    if (output.finish != Finish::none) {
        output.text += sequence.stop_strings.held();
    }
    if (sequence.limits.logprobs >= 0) {
        const Context & context = target_->context();
        for (const Token token : output.tokens) {
            output.logprobs.push_back(
                logprobs(context.logits(row++), context.model().n_vocab(), token, sequence.limits.logprobs));
        }
    }
    sequence.finish = output.finish;
    sequence.sampler.accept(output.tokens);
    sequence.anchor = output.tokens.empty() ? sequence.anchor : output.tokens.back();
    return output;
}

Output Session::accept(Turn & turn) {
    Sequence & sequence = *turn.sequence;
    const int n_drafted = static_cast<int>(turn.request.drafted.size());
    const std::optional<int> forced =
        n_drafted > 0 ? drafter_->forced_accept(sequence.id, n_drafted) : std::nullopt;
    Verdict verdict = judged(sequence, turn.request, turn.row, forced);
    turn.accepted = verdict.accepted;
    Output output = write(sequence, std::move(verdict), turn.row);
    const int kept = static_cast<int>(output.tokens.size());
    if (kept > 0) { // else it failed at once, and the round is none
        sequence.counters.count_round(n_drafted, kept - 1, kept);
        sequence.counters.last_token_ns = now_ns();
        sequence.n_past += kept;
    }
    return output;
}

void Session::commit(const std::vector<Turn> & turns) {
    std::vector<FeatureRows> rows;
    // A finished sequence stays for prompts that go on from its text.
    const auto stays = [this](const Turn & turn) {
        const bool sound = turn.sequence->n_past > turn.request.pos; // some row of the verify is kept
        return turn.sequence->decoding() || (prefixes_.on() && sound);
    };
    for (const Turn & turn : turns) {
        if (!stays(turn)) {
            prefixes_.spoil(turn.request.seq);
        } else {
            const int count = turn.sequence->n_past - turn.request.pos;
            rows.push_back({turn.request.seq, turn.request.pos, turn.row, count});
            for (int i = 0; i < count; ++i) {
                prefixes_.grow(turn.request.seq, i == 0 ? turn.request.anchor
                                                        : turn.request.drafted[static_cast<size_t>(i) - 1]);
            }
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
        const int count = turn.sequence->n_past - turn.request.pos;
        if (stays(turn) && count <= static_cast<int>(drafted.size())) {
            kept.push_back({turn.request.seq, turn.request.pos, {turn.request.anchor}});
            kept.back().kept.insert(kept.back().kept.end(), drafted.begin(), drafted.begin() + count - 1);
        }
    }
    rollback_.keep(kept); // after the injection: a replay overwrites the features
}

} // namespace dflash
