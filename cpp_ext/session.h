// Rounds over a list of sequences: plan, draft, verify, accept, commit.
#pragma once

#include "drafting.h"
#include "logprobs.h"
#include "prefix_store.h"
#include "rollback.h"
#include "sequence.h"
#include "verdict.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace dflash {

struct Output {
    llama_seq_id id;
    std::vector<Token> tokens;
    Finish finish;
    std::string problem = {};            // why it failed, if it did
    std::vector<Logprobs> logprobs = {}; // one for each token, if they were asked for
    std::string text = {};               // bytes, without end tokens, a stop string and what may become one
};

// Nanoseconds by stage since the session began; what is missing from total is host work between them.
struct Times {
    std::int64_t total = 0;
    std::int64_t prefill = 0;
    std::int64_t draft = 0;
    std::int64_t verify = 0;
    std::int64_t inject = 0; // of accepted rows; a prefill's injections count as prefill
    std::int64_t rollback = 0;
};

// Not thread-safe: one owner thread.
class Session {
  public:
    // drafter may be null. max_block: widest verify; the target must be able to roll back that far.
    // prefix_memory: bytes of host memory for states of texts that later requests may begin with; 0: none are
    // kept. Throws std::invalid_argument if the target cannot go back.
    Session(std::shared_ptr<Target> target, std::shared_ptr<Drafter> drafter, int max_block,
            RollbackKind rollback = RollbackKind::snapshots, size_t prefix_memory = 0);

    // Choose the widths of blocks left to us (auto_block) by what they cost here. outcomes: of drafts in
    // earlier runs, as Survival gives them; may be empty. Until then such blocks are as wide as they can be.
    void steer(Calibration calibration, const std::vector<std::pair<double, double>> & outcomes);
    const Controller * controller() const { return drafting_.controller(); }
    // How sharp drafts of sampled texts should be, as learnt so far.
    const Sharpness & sharpness() const { return sharpness_; }
    int depth() const { return target_->context().params().n_rollback; }

    // Queue a prompt; returns the sequence's id. border: how many of its tokens a later prompt is likely to
    // begin with, where a state is kept if the target cannot go back; -1: all but the last. Throws
    // std::invalid_argument, naming the numbers, for a prompt that is empty, holds an unknown token or leaves
    // no room in the context, a block or border out of range, a grammar that llama.cpp does not take, or when
    // every sequence is taken.
    llama_seq_id add(std::vector<Token> prompt, Limits limits, Sampling sampling = {}, int border = -1,
                     const GrammarText & grammar = {});

    // Ends a sequence that is in the middle of something: it says so in an output of the step in progress or
    // of the next one. May be set from any thread while the session steps. A decode of no other sequence is
    // given up where that does not last longer than Interrupt::patience, and the sequence's caches go back to
    // what is kept of an earlier place; several sequences' decodes are not.
    std::shared_ptr<Interrupt> interrupt(llama_seq_id id) const { return sequences_.at(id).interrupt; }

    // As many prompts, or one piece of one, as fit into `prefill_rows` rows, then one round of all that
    // decode. Finished sequences stay, idle, until removed.
    std::vector<Output> step();

    // Bytes of a sequence's text that may begin a stop string and are in no output yet.
    const std::string & held(llama_seq_id id) const { return sequences_.at(id).stop_strings.held(); }

    // End a sequence at any point between steps; its caches stay for prompts that begin alike. Unknown ids
    // are ignored.
    void remove(llama_seq_id id);

    const Counters & counters(llama_seq_id id) const { return sequences_.at(id).counters; }
    const Times & times() const { return times_; }
    int n_ctx() const { return target_->context().params().n_ctx; }
    int max_block() const { return max_block_; }
    // Rows of a prompt that are read at a time, so that running answers and a cancel need not wait for long;
    // the target's n_batch at first. Throws std::invalid_argument outside 1 to n_batch.
    int prefill_rows() const { return prefill_rows_; }
    void set_prefill_rows(int rows);
    // Why drafting has stopped for good; empty while it works.
    const std::string & draft_failure() const { return drafting_.failure(); }
    // Why blocks cannot be as wide as they were to be; empty while they can.
    const std::string & shift_failure() const { return shift_failure_; }
    PrefixStore & prefixes() { return prefixes_; }

  private:
    struct Turn {
        Sequence * sequence;
        DraftRequest request;
        int row = 0; // of the anchor in the verify
        int accepted = 0;
        std::vector<Token> begins; // the block's first two tokens, as drafted or only tried out
    };

    // What the controller is told of a round.
    struct Round {
        Order order;
        RoundFacts facts;
        bool learns = false; // all sequences leave their width to the controller
    };

    void advance(std::vector<Output> & outputs);
    Interrupt * lone() const;
    void end_interrupted(std::vector<Output> & outputs);
    void end_given_up(std::vector<Output> & outputs);
    int prefill(Sequence & sequence, int most, std::vector<Output> & outputs); // rows that were read
    void begin(Sequence & sequence);
    void round(std::vector<Output> & outputs);
    std::vector<Turn> turns();
    Round plan(std::vector<Turn> & turns);
    void shift(int depth);
    void draft(std::vector<Turn> & turns, Round & round);
    void probe(std::vector<Turn> & turns, int rows);
    void trim(std::vector<Turn> & turns, Round & round) const;
    size_t likely(const std::vector<Turn> & turns, const Round & round) const;
    void prepare_rollback(const std::vector<Turn> & turns);
    void verify(std::vector<Turn> & turns, Round & round);
    void learn(const std::vector<Turn> & turns, Round & round);
    Output accept(Turn & turn);
    Verdict judged(Sequence & sequence, const DraftRequest & request, int row, std::optional<int> forced);
    Output write(Sequence & sequence, Verdict verdict, int row);
    Finish cut(Sequence & sequence, Output & output);
    void commit(const std::vector<Turn> & turns, const Round & round);

    std::shared_ptr<Target> target_;
    Drafting drafting_;
    Sharpness sharpness_;      // of the drafts of sampled texts
    std::uint64_t rounds_ = 0; // so far
    int max_block_;
    int prefill_rows_;
    Rollback rollback_;
    std::unordered_set<Token> ends_; // of the model, never shown
    std::map<llama_seq_id, Sequence> sequences_;
    TokenBatch batch_;
    Times times_;
    std::pair<int, int> last_shape_{0, 0}; // sequences and rows of the last decode
    std::string shift_failure_;
    llama_seq_id probed_ = -1; // the sequence that was drafted for last to see how it goes
    PrefixStore prefixes_;
    std::shared_ptr<const Spelling> spelling_; // of the vocabulary, once a grammar was asked for
};

} // namespace dflash
