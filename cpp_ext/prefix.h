// Kept texts: which of them a request can go on from, and which to give up. Pure but for the bytes they hold.
#pragma once

#include "decide.h"
#include "feature_ring.h"
#include "state.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

namespace dflash {

// A place in a kept text to which the caches can be taken back although they have moved on.
struct Point {
    int count = 0; // tokens before it
    // moving parts; null where the context has none
    std::shared_ptr<const Bytes> target;
    std::shared_ptr<const Bytes> draft;
    std::uint64_t used = 0; // when last, in uses of the store

    size_t bytes() const;
};

// A text whose state is kept, in a sequence's own caches or in host memory.
struct Kept {
    std::vector<Token> tokens; // at positions 0, 1, ...
    std::vector<Point> points; // by count, rising
    int least_cut = 0;         // fewer tokens than this only at a point
    int fed = 0;               // tokens the draft has seen
    FeatureRing waiting;       // features of the last tokens, if it has not seen them
    std::uint64_t used = 0;
    Bytes target; // host memory only: the whole states
    Bytes draft;

    size_t bytes() const;
    // Tokens after which the draft can be as if it had read all that a fresh run gives it.
    int covered() const { return waiting.count() > 0 ? std::max(fed, waiting.end()) : fed; }
};

int common_prefix(const std::vector<Token> & a, const std::vector<Token> & b);

// How many tokens of the prompt a kept text saves: the longest beginning that the two share and that the kept
// state can be taken back to, at most `limit`, the prompt's last token left out, whose logits are wanted.
int reusable(const std::vector<Token> & prompt, const std::vector<Token> & tokens,
             const std::vector<int> & points, int least_cut, int limit);
// drafts: the draft must be able to go on too.
int reusable(const std::vector<Token> & prompt, const Kept & kept, bool drafts);

} // namespace dflash
