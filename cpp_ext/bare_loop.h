// The llama.cpp calls of a round and nothing else: what any driver must pay. Calibration and benchmarks.
#pragma once

#include "drafter.h"

#include <cstdint>
#include <vector>

namespace dflash {

// Nanoseconds of one round.
struct RoundCost {
    std::int64_t draft = 0;
    std::int64_t verify = 0;
    std::int64_t inject = 0;
    std::int64_t rollback = 0;
};

struct BareRounds {
    int sequences = 1; // 0 to sequences - 1, which must be idle and are so afterwards
    int width = 1;     // rows of a sequence, the anchor included; 1: no draft
    int kept = 1;      // rows of each verify that stay
    int rounds = 1;
    int context = 0;      // positions read before the first round
    bool chooses = false; // whether the draft's tokens are chosen, as a round must, or its logits left unread
};

// One cost for each round. drafter may be null. Throws std::invalid_argument for numbers that do not fit the
// contexts.
std::vector<RoundCost> bare_rounds(Target & target, Drafter * drafter, const BareRounds & plan);

} // namespace dflash
