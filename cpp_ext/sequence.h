// One answer in the making: its place in the caches, its limits and its counters.
#pragma once

#include "feature_ring.h"
#include "interrupt.h"
#include "llama.h"
#include "sampler.h"
#include "stop_strings.h"

#include <cstdint>
#include <memory>
#include <unordered_set>
#include <vector>

namespace dflash {

constexpr int auto_block = 0;

struct Limits {
    int max_tokens = 0; // to emit, the stop token included
    int block = 1;      // rows of a verify, the anchor included; 1: no drafts; auto_block: chosen every round
    std::unordered_set<Token> stops;
    std::vector<std::string> stop_strings; // of bytes
    int logprobs = -1; // alternatives to report with each token; -1: no log-probabilities at all
};

// Blocks whose first token was wrong, and what would have been right one place on or back: signs of a drafter
// whose file tells the layout of its blocks wrong.
struct Shifts {
    int blocks = 0; // of two tokens or more
    int right = 0;  // those whose first token became text
    int early = 0;  // a wrong first token that was the text's second
    int late = 0;   // the second token was the text's first, and the first was not

    // drafted: the block as it was drafted, whether it was verified or not; may be empty. written: the tokens
    // of its round, at least one.
    void see(const std::vector<Token> & drafted, const std::vector<Token> & written);

  private:
    Token awaited_ = -1; // it is early if the next round begins with it
};

std::vector<Token> first_two(const std::vector<Token> & tokens); // fewer where there are no more

// Rules: emitted = 1 + rounds + accepted (the 1 is the prefill's token), counted after the cut at a stop
// token, the token that completes a stop string, or the limit; accept length = 1 + accepted / drafting_rounds
// when every round drafts.
struct Counters {
    int prompt_tokens = 0;
    int reused_tokens = 0; // of the prompt, whose state was kept from before
    int injected = 0;      // context rows given to the drafter
    int emitted = 0;
    int rounds = 0;          // verifies
    int drafting_rounds = 0; // those with at least one drafted token
    int drafted = 0;
    int accepted = 0;
    std::vector<int> drafted_at; // per position in the block, from 0
    std::vector<int> accepted_at;
    Shifts shifts;
    std::int64_t prefill_ns = 0;     // spent in this sequence's prefill
    std::int64_t first_token_ns = 0; // steady clock
    std::int64_t last_token_ns = 0;

    void count_round(int drafted_now, int accepted_now, int emitted_now);
};

struct Sequence {
    llama_seq_id id = 0;
    std::vector<Token> prompt;
    Limits limits;
    Sampler sampler;
    StopStrings stop_strings;
    Counters counters;
    int border = 0;       // prompt tokens after which to keep a state; 0: nowhere
    bool begun = false;   // its place in the caches is ready
    llama_pos n_past = 0; // positions in the caches
    Token anchor = 0;     // last emitted token, not in the caches yet
    Finish finish = Finish::none;
    std::shared_ptr<Interrupt> interrupt = std::make_shared<Interrupt>();
    FeatureRing waiting;      // features that the drafter has not been given
    llama_pos drafted_to = 0; // it has been given all before this position

    bool prefilling() const { return n_past < static_cast<llama_pos>(prompt.size()); }
    bool ended() const { return finish != Finish::none; }
    bool decoding() const { return !prefilling() && finish == Finish::none; }
    int remaining() const { return limits.max_tokens - counters.emitted; }
};

} // namespace dflash
