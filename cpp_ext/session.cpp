#include "session.h"

#include "stopwatch.h"

#include <algorithm>
#include <stdexcept>

namespace dflash {

namespace {

void require(bool holds, const std::string & text) {
    if (!holds) {
        throw std::invalid_argument(text);
    }
}

// Features of a sequence that may wait on the host.
std::size_t ring_bytes(const Target & target) {
    constexpr std::size_t of_all = std::size_t{256} << 20;
    constexpr std::size_t of_one = std::size_t{32} << 20;
    return std::min(of_one, of_all / static_cast<std::size_t>(target.context().params().n_seq));
}

} // namespace

Session::Session(std::shared_ptr<Target> target, std::shared_ptr<Drafter> drafter, int max_block,
                 RollbackKind rollback, size_t prefix_memory)
    : target_(std::move(target)), drafting_(drafter, *target_, ring_bytes(*target_)), max_block_(max_block),
      prefill_rows_(target_->context().params().n_batch), rollback_(target_, rollback, max_block),
      prefixes_(target_, drafter, prefix_memory) {
    const Context & context = target_->context();
    require(max_block_ >= 1, "max_block is " + std::to_string(max_block_) + ", at least 1 is needed");
    require(context.params().n_outputs >= context.params().n_seq * max_block_,
            "the target's context has fewer output rows than sequences x block");
    const std::vector<Token> ends = context.model().end_tokens();
    ends_.insert(ends.begin(), ends.end());
}

llama_seq_id Session::add(std::vector<Token> prompt, Limits limits, Sampling sampling, int border,
                          const GrammarText & grammar) {
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
    require(limits.block == auto_block || (limits.block >= 1 && limits.block <= max_block_),
            "block " + std::to_string(limits.block) + " is outside 1 to " + std::to_string(max_block_));
    require(limits.max_tokens >= 1,
            "max_tokens is " + std::to_string(limits.max_tokens) + ", at least 1 is needed");

    require(border >= -1 && border <= n_prompt, "border " + std::to_string(border) +
                                                    " is outside the prompt's " + std::to_string(n_prompt) +
                                                    " tokens");
    for (const auto & [token, value] : sampling.bias) {
        require(token >= 0 && token < n_vocab, "the bias of token " + std::to_string(token) +
                                                   " is outside the vocabulary of " +
                                                   std::to_string(n_vocab));
    }

    StopStrings stop_strings(limits.stop_strings);
    llama_seq_id id = 0; // the lowest free one: ids stay compact
    while (sequences_.count(id) != 0) {
        ++id;
    }
    require(id < target_->context().params().n_seq,
            "all " + std::to_string(target_->context().params().n_seq) + " sequences are in use");
    std::unique_ptr<Grammar> rules;
    if (!grammar.gbnf.empty()) {
        const llama_vocab * vocab = target_->context().model().vocab();
        spelling_ = spelling_ ? spelling_ : std::make_shared<Spelling>(vocab);
        rules = std::make_unique<Grammar>(vocab, spelling_, grammar);
    }
    Sequence & sequence = sequences_[id];
    sequence.id = id;
    sequence.counters.prompt_tokens = n_prompt;
    sequence.sampler = Sampler(std::move(sampling), prompt, std::move(rules));
    // the last token is read again for its logits if the same prompt comes twice
    sequence.border = border < 0 ? n_prompt - 1 : std::min(border, n_prompt - 1);
    sequence.prompt = std::move(prompt);
    sequence.stop_strings = std::move(stop_strings);
    sequence.limits = std::move(limits);
    sequence.limits.max_tokens = std::min(sequence.limits.max_tokens, n_ctx() - n_prompt);
    if (drafting_.controller()) {
        drafting_.controller()->wake();
    }
    return id;
}

void Session::set_prefill_rows(int rows) {
    const int most = target_->context().params().n_batch;
    require(rows >= 1 && rows <= most,
            "prefill_rows is " + std::to_string(rows) + ", expected 1 to " + std::to_string(most));
    prefill_rows_ = rows;
}

void Session::remove(llama_seq_id id) {
    const auto found = sequences_.find(id);
    if (found == sequences_.end()) {
        return;
    }
    const bool kept = prefixes_.on();
    drafting_.end(found->second, kept);
    FeatureRing waiting = std::move(found->second.waiting);
    sequences_.erase(found);
    if (kept) {
        prefixes_.park(id, std::move(waiting));
    }
}

void Session::steer(Calibration calibration, const std::vector<std::pair<double, double>> & outcomes) {
    using Return = Controller::Return;
    const bool has_state = target_->context().model().has_state();
    const Return way = !has_state ? Return::free : rollback_.replays() ? Return::replay : Return::snapshots;
    Controller controller(CostTable(std::move(calibration), max_block_), max_block_, way, depth(), outcomes);
    const int first = controller.first_depth();
    drafting_.steer(std::move(controller));
    if (way == Return::snapshots && first != depth()) {
        shift(first);
    }
}

std::vector<Output> Session::step() {
    const Stopwatch total(times_.total);
    std::vector<Output> outputs;
    try {
        end_interrupted(outputs);
        advance(outputs);
    } catch (const Interrupted &) {
        end_given_up(outputs);
    } catch (...) { // what the caches hold now is unknown
        for (const auto & entry : sequences_) {
            prefixes_.spoil(entry.first);
        }
        throw;
    }
    return outputs;
}

void Session::advance(std::vector<Output> & outputs) {
    // A piece of the first prompt, and the prompts behind it that fit whole into the rest of a piece's rows:
    // answers under way wait no longer for several short ones than for one that is long.
    int rows = prefill_rows_;
    for (auto & entry : sequences_) {
        Sequence & sequence = entry.second;
        while (
            sequence.prefilling() && !sequence.ended() &&
            (rows == prefill_rows_ || static_cast<int>(sequence.prompt.size()) - sequence.n_past <= rows)) {
            rows -= prefill(sequence, rows, outputs);
            end_interrupted(outputs);
        }
    }
    end_interrupted(outputs);
    round(outputs);
    if (!drafting_.failure().empty()) {
        prefixes_.without_draft();
    }
}

// Of the only sequence that has not ended; null if there are several.
Interrupt * Session::lone() const {
    Interrupt * found = nullptr;
    for (const auto & entry : sequences_) {
        if (!entry.second.ended()) {
            if (found) {
                return nullptr;
            }
            found = entry.second.interrupt.get();
        }
    }
    return found;
}

void Session::end_interrupted(std::vector<Output> & outputs) {
    for (auto & entry : sequences_) {
        Sequence & sequence = entry.second;
        if (sequence.interrupt->is_set() && !sequence.ended()) {
            sequence.finish = Finish::cancelled;
            outputs.push_back({sequence.id, {}, Finish::cancelled});
            outputs.back().text = sequence.stop_strings.held();
        }
    }
}

// The lone sequence's decode was given up.
void Session::end_given_up(std::vector<Output> & outputs) {
    for (auto & entry : sequences_) {
        Sequence & sequence = entry.second;
        if (sequence.interrupt->is_set() && !sequence.ended()) {
            sequence.waiting.cut(prefixes_.recover(sequence.id, sequence.n_past));
        }
    }
    last_shape_ = {0, 0};
    end_interrupted(outputs);
}

// Take over what is kept of the prompt, and plan where to keep a state for the next one.
void Session::begin(Sequence & sequence) {
    const int block = sequence.limits.block;
    const bool drafts = drafting_.works() && block != 1 && (block != auto_block || drafting_.eager());
    FeatureRing waiting;
    sequence.n_past = sequence.counters.reused_tokens =
        prefixes_.begin(sequence.id, sequence.prompt, drafts, waiting);
    if (sequence.border <= sequence.n_past || !prefixes_.wants(sequence.id, sequence.border)) {
        sequence.border = 0;
    }
    sequence.begun = true;
    drafting_.begin(sequence, std::move(waiting));
}

int Session::prefill(Sequence & sequence, int most, std::vector<Output> & outputs) {
    const std::int64_t start = now_ns();
    if (!sequence.begun) {
        begin(sequence);
    }
    const int n_prompt = static_cast<int>(sequence.prompt.size());
    const int end_at = sequence.n_past < sequence.border ? sequence.border : n_prompt;
    const int count = std::min(end_at - sequence.n_past, most);
    batch_.clear();
    for (int i = 0; i < count; ++i) {
        const int at = sequence.n_past + i;
        batch_.add(sequence.prompt[static_cast<size_t>(at)], at, sequence.id, at + 1 == n_prompt);
        prefixes_.grow(sequence.id, sequence.prompt[static_cast<size_t>(at)]);
    }
    const FeatureRows rows{sequence.id, sequence.n_past, 0, count};
    target_->publish(drafting_.works() && sequence.limits.block != 1 && drafting_.wants(rows, n_prompt));
    target_->context().decode(batch_.view(), "reading the prompt", lone());
    last_shape_ = {0, 0};
    sequence.n_past += count;
    Output output{sequence.id, {}, Finish::none};
    if (!sequence.prefilling()) {
        const DraftRequest none{sequence.id, n_prompt - 1, sequence.prompt.back(), 0};
        output = write(sequence, judged(sequence, none, 0, std::nullopt), 0);
    }
    drafting_.take(*target_, {{&sequence, rows, n_prompt}}, drafting_.eager());
    if (sequence.n_past == sequence.border) {
        prefixes_.mark(sequence.id);
    }
    const std::int64_t end = now_ns();
    times_.prefill += end - start;
    sequence.counters.prefill_ns += end - start;
    if (sequence.prefilling()) {
        return count;
    }
    sequence.counters.emitted = static_cast<int>(output.tokens.size());
    sequence.counters.first_token_ns = sequence.counters.last_token_ns = end;
    outputs.push_back(std::move(output));
    return count;
}

} // namespace dflash
