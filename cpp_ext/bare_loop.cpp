#include "bare_loop.h"

#include "stopwatch.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace dflash {

namespace {

void check(const Target & target, const BareRounds & plan) {
    const ContextParams & params = target.context().params();
    const auto require = [](bool holds, const char * name, int found, int least, int most) {
        if (!holds) {
            throw std::invalid_argument(std::string(name) + " is " + std::to_string(found) + ", expected " +
                                        std::to_string(least) + " to " + std::to_string(most));
        }
    };
    const auto within = [&](const char * name, int found, int least, int most) {
        require(found >= least && found <= most, name, found, least, most);
    };
    within("sequences", plan.sequences, 1, params.n_seq);
    within("width", plan.width, 1, std::min(params.n_batch, params.n_outputs) / plan.sequences);
    within("kept", plan.kept, 1, plan.width);
    if (target.context().model().has_state() && plan.kept < plan.width) { // it has to go back
        within("width", plan.width, 1, target.context().n_rollback() + 1);
    }
    within("context", plan.context, 0, params.n_ctx);
    within("rounds", plan.rounds, 1, (params.n_ctx - plan.context) / plan.width);
}

class Loop {
  public:
    Loop(Target & target, Drafter * drafter, const BareRounds & plan)
        : target_(target), drafter_(drafter), plan_(plan) {
        empty(); // a forgotten text's caches stay until the next prompt
    }

    ~Loop() { empty(); }

    void fill() {
        const int n_batch = target_.context().params().n_batch;
        for (llama_seq_id seq = 0; seq < plan_.sequences; ++seq) {
            for (int at = 0; at < plan_.context; at += n_batch) {
                const int count = std::min(n_batch, plan_.context - at);
                batch_.clear();
                for (int i = 0; i < count; ++i) {
                    batch_.add(token(at + i), at + i, seq, i + 1 == count);
                }
                target_.context().decode(batch_.view(), "measuring");
                inject({{seq, at, 0, count}});
            }
        }
        pos_ = plan_.context;
    }

    RoundCost round() {
        RoundCost cost;
        {
            const Stopwatch watch(cost.draft);
            draft();
        }
        {
            const Stopwatch watch(cost.verify);
            verify();
        }
        std::vector<FeatureRows> rows;
        for (llama_seq_id seq = 0; seq < plan_.sequences; ++seq) {
            rows.push_back({seq, pos_, seq * plan_.width, plan_.kept});
        }
        {
            const Stopwatch watch(cost.inject);
            inject(rows);
        }
        pos_ += plan_.kept;
        const Stopwatch watch(cost.rollback);
        for (llama_seq_id seq = 0; seq < plan_.sequences && plan_.kept < plan_.width; ++seq) {
            target_.context().truncate(seq, pos_);
        }
        return cost;
    }

  private:
    void empty() {
        for (llama_seq_id seq = 0; seq < target_.context().params().n_seq; ++seq) {
            target_.context().drop(seq);
            if (drafter_) {
                drafter_->release(seq);
            }
        }
    }

    // Any token does: what a decode costs does not depend on it.
    Token token(int at) const { return (7 * at + 11) % target_.context().model().n_vocab(); }

    void inject(const std::vector<FeatureRows> & rows) {
        if (drafter_) {
            drafter_->inject(target_, rows);
        }
    }

    void draft() {
        if (!drafter_ || plan_.width == 1) {
            return;
        }
        std::vector<DraftRequest> requests;
        for (llama_seq_id seq = 0; seq < plan_.sequences; ++seq) {
            requests.push_back({seq, pos_, token(pos_), plan_.width - 1, {}, {}, {}, nullptr});
        }
        if (plan_.chooses) {
            drafter_->draft(requests);
        } else {
            drafter_->rehearse(requests);
        }
    }

    void verify() {
        batch_.clear();
        for (llama_seq_id seq = 0; seq < plan_.sequences; ++seq) {
            for (int i = 0; i < plan_.width; ++i) {
                batch_.add(token(pos_ + i), pos_ + i, seq, true);
            }
        }
        target_.context().decode(batch_.view(), "measuring");
        target_.context().logits(0); // waits for a device
    }

    Target & target_;
    Drafter * drafter_;
    BareRounds plan_;
    TokenBatch batch_;
    llama_pos pos_ = 0;
};

} // namespace

std::vector<RoundCost> bare_rounds(Target & target, Drafter * drafter, const BareRounds & plan) {
    check(target, plan);
    Loop loop(target, drafter, plan);
    loop.fill();
    std::vector<RoundCost> costs;
    for (int i = 0; i < plan.rounds; ++i) {
        costs.push_back(loop.round());
    }
    return costs;
}

} // namespace dflash
