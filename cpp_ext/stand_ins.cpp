#include "stand_ins.h"

#include <stdexcept>

namespace dflash {

void ScriptedDrafter::script(llama_seq_id seq, std::vector<Token> tokens, std::vector<int> counts) {
    if (counts.empty()) {
        throw std::invalid_argument("a script needs at least one count");
    }
    for (const Token token : tokens) {
        if (token < 0 || token >= n_vocab_) {
            throw std::out_of_range("script token " + std::to_string(token) +
                                    " is outside the vocabulary of " + std::to_string(n_vocab_));
        }
    }
    Plan & plan = plans_[seq];
    plan.tokens = std::move(tokens);
    plan.counts = std::move(counts);
    plan.round = 0;
}

void ScriptedDrafter::fail_at(llama_seq_id seq, int round) {
    plans_[seq].fail_at = round;
}

void ScriptedDrafter::see(llama_seq_id seq, llama_pos pos, int count) {
    int & seen = injected_[seq];
    if (pos == 0 || forgotten_.erase(seq) != 0) {
        seen = pos; // an empty sequence may begin anywhere
    }
    if (pos != seen) {
        throw std::logic_error("features of sequence " + std::to_string(seq) + " jump from position " +
                               std::to_string(seen) + " to " + std::to_string(pos));
    }
    seen += count;
    if (rows_left_ && (*rows_left_ -= count) < 0) {
        throw std::runtime_error("scripted failure of an injection");
    }
}

void ScriptedDrafter::inject(const Target & /*target*/, const std::vector<FeatureRows> & rows) {
    for (const FeatureRows & run : rows) {
        see(run.seq, run.pos, run.count);
    }
}

void ScriptedDrafter::inject_kept(const std::vector<Kept> & kept) {
    for (const Kept & of_one : kept) {
        see(of_one.seq, of_one.ring->begin(), of_one.ring->count());
    }
}

void ScriptedDrafter::draft(std::vector<DraftRequest> & requests) {
    for (DraftRequest & request : requests) {
        const auto found = plans_.find(request.seq);
        if (found == plans_.end() || found->second.tokens.empty()) {
            continue;
        }
        Plan & plan = found->second;
        if (plan.round == plan.fail_at) {
            throw std::runtime_error("scripted failure in round " + std::to_string(plan.round));
        }
        const int right = plan.counts[static_cast<size_t>(plan.round++) % plan.counts.size()];
        for (int i = 0; i < request.count; ++i) {
            const size_t at = static_cast<size_t>(request.pos) + 1 + static_cast<size_t>(i);
            const Token known = at < plan.tokens.size() ? plan.tokens[at] : 0;
            request.drafted.push_back(i < right ? known : (known + 1) % n_vocab_);
        }
    }
}

void ScriptedDrafter::release(llama_seq_id seq) {
    plans_.erase(seq);
    forget(seq);
}

void ScriptedDrafter::forget(llama_seq_id seq) {
    forgotten_.insert(seq);
}

int ScriptedDrafter::injected(llama_seq_id seq) const {
    const auto found = injected_.find(seq);
    return found == injected_.end() ? 0 : found->second;
}

SimulatedDrafter::SimulatedDrafter(std::vector<double> survival, std::uint64_t seed,
                                   std::shared_ptr<Drafter> inner)
    : survival_(std::move(survival)), random_(seed), inner_(std::move(inner)) {
    double before = 1.0;
    for (const double value : survival_) {
        if (!(value >= 0.0 && value <= before)) {
            throw std::invalid_argument("a survival curve lies in 0..1 and does not increase");
        }
        before = value;
    }
}

void SimulatedDrafter::inject(const Target & target, const std::vector<FeatureRows> & rows) {
    if (inner_) {
        inner_->inject(target, rows);
    }
}

void SimulatedDrafter::inject_kept(const std::vector<Kept> & kept) {
    if (inner_) {
        inner_->inject_kept(kept);
    }
}

void SimulatedDrafter::draft(std::vector<DraftRequest> & requests) {
    if (inner_) {
        inner_->draft(requests);
    }
    for (DraftRequest & request : requests) {
        request.drafted.resize(static_cast<size_t>(request.count), request.anchor);
        request.confidence.clear(); // it is not that of the tokens accepted
    }
}

void SimulatedDrafter::resume(llama_seq_id seq, llama_pos pos) {
    if (inner_) {
        inner_->resume(seq, pos);
    }
}

void SimulatedDrafter::rehearse(std::vector<DraftRequest> & requests) {
    if (inner_) {
        inner_->rehearse(requests);
    }
}

void SimulatedDrafter::forget(llama_seq_id seq) {
    if (inner_) {
        inner_->forget(seq);
    }
}

void SimulatedDrafter::release(llama_seq_id seq) {
    if (inner_) {
        inner_->release(seq);
    }
}

std::optional<int> SimulatedDrafter::forced_accept(llama_seq_id /*seq*/, int drafted) {
    const double u = std::uniform_real_distribution<double>(0.0, 1.0)(random_);
    return survivors(survival_, u, drafted);
}

} // namespace dflash
