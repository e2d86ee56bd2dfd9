#include "session.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>

namespace dflash {

namespace {

std::int64_t now_ns() {
    using namespace std::chrono;
    return duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

// Adds the time from here to the end of the scope.
class Stopwatch {
  public:
    explicit Stopwatch(std::int64_t & sum) : sum_(sum), start_(now_ns()) {}
    ~Stopwatch() { sum_ += now_ns() - start_; }
    Stopwatch(const Stopwatch &) = delete;
    Stopwatch & operator=(const Stopwatch &) = delete;

  private:
    std::int64_t & sum_;
    std::int64_t start_;
};

void require(bool holds, const std::string & text) {
    if (!holds) {
        throw std::invalid_argument(text);
    }
}

} // namespace

Session::Session(std::shared_ptr<Target> target, std::shared_ptr<Drafter> drafter, int max_block)
    : target_(std::move(target)), drafter_(std::move(drafter)), max_block_(max_block) {
    const Context & context = target_->context();
    require(max_block_ >= 1, "max_block is " + std::to_string(max_block_) + ", at least 1 is needed");
    if (context.model().has_state() && context.n_rollback() < max_block_ - 1) {
        throw std::invalid_argument("architecture '" + context.model().arch() + "' keeps " +
                                    std::to_string(context.n_rollback()) +
                                    " states to go back to, a block of " + std::to_string(max_block_) +
                                    " needs " + std::to_string(max_block_ - 1));
    }
    require(context.params().n_outputs >= context.params().n_seq * max_block_,
            "the target's context has fewer output rows than sequences x block");
}

llama_seq_id Session::add(std::vector<Token> prompt, Limits limits, Sampling sampling) {
    const int n_vocab = target_->context().model().n_vocab();
    const int n_prompt = static_cast<int>(prompt.size());
    require(n_prompt > 0, "the prompt is empty");
    require(n_prompt < n_ctx(), "the prompt has " + std::to_string(n_prompt) + " tokens, the context holds " +
                                    std::to_string(n_ctx()) + " and one must be left for the answer");
    for (const Token token : prompt) {
        require(token >= 0 && token < n_vocab, "token " + std::to_string(token) +
                                                   " is outside the vocabulary of " +
                                                   std::to_string(n_vocab));
    }
    require(limits.block >= 1 && limits.block <= max_block_,
            "block " + std::to_string(limits.block) + " is outside 1 to " + std::to_string(max_block_));
    require(limits.max_tokens >= 1,
            "max_tokens is " + std::to_string(limits.max_tokens) + ", at least 1 is needed");

    for (const auto & [token, value] : sampling.bias) {
        require(token >= 0 && token < n_vocab, "the bias of token " + std::to_string(token) +
                                                   " is outside the vocabulary of " +
                                                   std::to_string(n_vocab));
    }

    llama_seq_id id = 0; // the lowest free one: ids stay compact
    while (sequences_.count(id) != 0) {
        ++id;
    }
    require(id < target_->context().params().n_seq,
            "all " + std::to_string(target_->context().params().n_seq) + " sequences are in use");
    Sequence & sequence = sequences_[id];
    sequence.id = id;
    sequence.counters.prompt_tokens = n_prompt;
    sequence.sampler = Sampler(std::move(sampling), prompt);
    sequence.prompt = std::move(prompt);
    sequence.limits = std::move(limits);
    sequence.limits.max_tokens = std::min(sequence.limits.max_tokens, n_ctx() - n_prompt);
    return id;
}

void Session::remove(llama_seq_id id) {
    if (sequences_.erase(id) == 0) {
        return;
    }
    target_->context().drop(id);
    if (drafter_) {
        drafter_->release(id);
    }
}

std::vector<Output> Session::step() {
    const Stopwatch total(times_.total);
    std::vector<Output> outputs;
    for (auto & entry : sequences_) {
        if (entry.second.prefilling()) {
            prefill(entry.second, outputs);
            break;
        }
    }
    round(outputs);
    return outputs;
}

void Session::prefill(Sequence & sequence, std::vector<Output> & outputs) {
    const std::int64_t start = now_ns();
    const int n_prompt = static_cast<int>(sequence.prompt.size());
    const int count = std::min(n_prompt - sequence.n_past, target_->context().params().n_batch);
    batch_.clear();
    for (int i = 0; i < count; ++i) {
        const int at = sequence.n_past + i;
        batch_.add(sequence.prompt[static_cast<size_t>(at)], at, sequence.id, at + 1 == n_prompt);
    }
    target_->context().decode(batch_.view(), "reading the prompt");
    const FeatureRows rows{sequence.id, sequence.n_past, 0, count};
    sequence.n_past += count;
    if (!sequence.prefilling()) {
        sequence.anchor = chosen(0, sequence, n_prompt);
        sequence.sampler.accept({sequence.anchor});
    }
    inject({rows});
    const std::int64_t end = now_ns();
    times_.prefill += end - start;
    sequence.counters.prefill_ns += end - start;
    if (sequence.prefilling()) {
        return;
    }
    const Cut cut = cut_output({sequence.anchor}, sequence.remaining(), sequence.limits.stops);
    sequence.counters.emitted = 1;
    sequence.counters.first_token_ns = sequence.counters.last_token_ns = end;
    sequence.finish = cut.finish;
    outputs.push_back({sequence.id, {sequence.anchor}, cut.finish});
}

void Session::round(std::vector<Output> & outputs) {
    std::vector<Turn> turns = plan();
    if (turns.empty()) {
        return;
    }
    draft(turns);
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
            {&sequence, {sequence.id, sequence.n_past, sequence.anchor, 0, {}, &sequence.sampler}});
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
    for (const Turn & turn : turns) {
        const int width = static_cast<int>(turn.request.drafted.size()) + 1;
        if (turn.sequence->decoding() && turn.accepted + 1 < width) {
            // At most width - 1 rows go: taking back all of a decode would corrupt a recurrent state.
            target_->context().truncate(turn.request.seq, turn.request.pos + turn.accepted + 1);
        }
    }
}

void Session::inject(const std::vector<FeatureRows> & rows) {
    if (!drafter_ || !draft_failure_.empty() || rows.empty()) {
        return;
    }
    try {
        drafter_->inject(*target_, rows);
    } catch (const std::runtime_error & error) {
        give_up_drafting(error.what());
        return;
    }
    for (const FeatureRows & run : rows) {
        sequences_.at(run.seq).counters.injected += run.count;
    }
}

void Session::give_up_drafting(const std::string & why) {
    draft_failure_ = why;
}

} // namespace dflash
