// A round of a session: plan and draft (planning.cpp), verify, accept, commit.
#include "session.h"

#include "stopwatch.h"

namespace dflash {

void Session::round(std::vector<Output> & outputs) {
    std::vector<Turn> turns = this->turns();
    if (turns.empty()) {
        return;
    }
    const std::int64_t start = now_ns();
    Round round = plan(turns);
    draft(turns, round);
    if (const Interrupt * alone = lone(); alone && alone->is_set()) {
        end_interrupted(outputs);
        return;
    }
    trim(turns, round);
    prepare_rollback(turns);
    const std::int64_t before = times_.verify;
    verify(turns, round);
    round.facts.verify = times_.verify - before;
    for (Turn & turn : turns) {
        outputs.push_back(accept(turn));
    }
    commit(turns, round);
    round.facts.total = now_ns() - start;
    learn(turns, round);
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

void Session::verify(std::vector<Turn> & turns, Round & round) {
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
    target_->context().decode(batch_.view(), "verifying", lone());
    const std::pair<int, int> shape{static_cast<int>(turns.size()), batch_.size()};
    round.facts.rebuilt = shape != last_shape_;
    round.facts.width = batch_.size() / shape.first;
    last_shape_ = shape;
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
        n_drafted > 0 ? drafting_.forced_accept(sequence.id, n_drafted) : std::nullopt;
    Verdict verdict = judged(sequence, turn.request, turn.row, forced);
    turn.accepted = verdict.accepted;
    Output output = write(sequence, std::move(verdict), turn.row);
    if (turn.request.count > 0 && !forced) {
        sequence.sampler.learn(sharpness_, output.tokens);
    }
    const int kept = static_cast<int>(output.tokens.size());
    if (kept > 0) { // else it failed at once, and the round is none
        sequence.counters.count_round(n_drafted, kept - 1, kept);
        sequence.counters.shifts.see(turn.begins, output.tokens);
        sequence.counters.last_token_ns = now_ns();
        sequence.n_past += kept;
    }
    drafting_.saw(sequence, output.tokens);
    return output;
}

void Session::commit(const std::vector<Turn> & turns, const Round & round) {
    std::vector<NewRows> rows;
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
            rows.push_back({turn.sequence,
                            {turn.request.seq, turn.request.pos, turn.row, count},
                            turn.request.pos + count});
            for (int i = 0; i < count; ++i) {
                prefixes_.grow(turn.request.seq, i == 0 ? turn.request.anchor
                                                        : turn.request.drafted[static_cast<size_t>(i) - 1]);
            }
        }
    }
    {
        const Stopwatch watch(times_.inject);
        drafting_.take(*target_, rows, round.facts.drafted_width > 1);
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
