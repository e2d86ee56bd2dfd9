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

void ScriptedDrafter::inject(const Target & /*target*/, const std::vector<FeatureRows> & rows) {
    for (const FeatureRows & run : rows) {
        int & seen = run.pos == 0 ? (injected_[run.seq] = 0) : injected_[run.seq];
        if (run.pos != seen) {
            throw std::logic_error("features of sequence " + std::to_string(run.seq) +
                                   " jump from position " + std::to_string(seen) + " to " +
                                   std::to_string(run.pos));
        }
        seen += run.count;
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

void SimulatedDrafter::draft(std::vector<DraftRequest> & requests) {
    if (inner_) {
        inner_->draft(requests);
    }
    for (DraftRequest & request : requests) {
        request.drafted.resize(static_cast<size_t>(request.count), request.anchor);
    }
}

void SimulatedDrafter::resume(llama_seq_id seq, llama_pos pos) {
    if (inner_) {
        inner_->resume(seq, pos);
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
