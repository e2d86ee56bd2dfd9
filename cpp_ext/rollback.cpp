#include "rollback.h"

#include <stdexcept>

namespace dflash {

Rollback::Rollback(std::shared_ptr<Target> target, RollbackKind kind, int max_block)
    : target_(std::move(target)),
      replays_(kind == RollbackKind::replay && target_->context().model().has_state()) {
    const Context & context = target_->context();
    if (context.model().has_state() && !replays_ && context.n_rollback() < max_block - 1) {
        throw std::invalid_argument("architecture '" + context.model().arch() + "' keeps " +
                                    std::to_string(context.n_rollback()) +
                                    " states to go back to, a block of " + std::to_string(max_block) +
                                    " needs " + std::to_string(max_block - 1));
    }
}

void Rollback::prepare(const std::vector<llama_seq_id> & sequences) {
    if (!replays_) {
        return;
    }
    for (const llama_seq_id seq : sequences) {
        save_state(target_->context(), seq, Part::moving, states_[seq]); // the attention's cache can be cut
    }
}

void Rollback::keep(const std::vector<KeptRows> & sequences) {
    batch_.clear();
    for (const KeptRows & rows : sequences) {
        if (!replays_) {
            // At least one row stays: taking back all of a decode would corrupt a recurrent state.
            target_->context().truncate(rows.seq, rows.pos + static_cast<llama_pos>(rows.kept.size()));
            continue;
        }
        restore(rows);
        llama_pos pos = rows.pos;
        for (const Token token : rows.kept) {
            batch_.add(token, pos++, rows.seq, false);
        }
    }
    if (batch_.size() > 0) {
        target_->context().decode(batch_.view(), "decoding accepted tokens again");
    }
}

void Rollback::restore(const KeptRows & rows) {
    if (!load_state(target_->context(), rows.seq, states_.at(rows.seq), Part::moving)) {
        throw std::runtime_error("llama.cpp does not take back the state of sequence " +
                                 std::to_string(rows.seq));
    }
    target_->context().truncate(rows.seq, rows.pos); // the attention's cache; the state stands there already
}

} // namespace dflash
