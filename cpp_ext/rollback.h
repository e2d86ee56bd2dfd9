// Takes the rejected rows of a verify back out of the target.
#pragma once

#include "state.h"
#include "target.h"

#include <memory>
#include <unordered_map>
#include <vector>

namespace dflash {

// What is left of one sequence's rows of a verify: `kept` stand from position `pos` on.
struct KeptRows {
    llama_seq_id seq;
    llama_pos pos;
    std::vector<Token> kept; // the anchor and the accepted tokens: at least one
};

// How a target with recurrent state goes back; a target without one cuts its cache either way.
enum class RollbackKind {
    snapshots, // llama.cpp keeps the state before each row of the last decode
    replay,    // the state before the verify is kept here, and kept rows are decoded again
};

class Rollback {
  public:
    // Throws std::invalid_argument if the target keeps too few snapshots for max_block.
    Rollback(std::shared_ptr<Target> target, RollbackKind kind, int max_block);

    // Before a verify of sequences whose rows may be rejected. Throws std::runtime_error if llama.cpp does
    // not give their states.
    void prepare(const std::vector<llama_seq_id> & sequences);

    // After it, once features and logits of the verify have been read: a replay overwrites both. Fewer rows
    // must be kept than were verified. Throws std::runtime_error if llama.cpp fails.
    void keep(const std::vector<KeptRows> & sequences);

    bool replays() const { return replays_; }

  private:
    void restore(const KeptRows & rows);

    std::shared_ptr<Target> target_;
    bool replays_;
    std::unordered_map<llama_seq_id, Bytes> states_; // of the last prepare
    TokenBatch batch_;
};

} // namespace dflash
