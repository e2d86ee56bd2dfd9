// The drafter's side of a session: which features it is given and when, its probes and its failures.
#pragma once

#include "controller.h"
#include "drafter.h"
#include "sequence.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace dflash {

// Rows of the target's last decode that stay in a sequence.
struct NewRows {
    Sequence * sequence;
    FeatureRows rows;
    llama_pos end; // of the text they belong to, as far as it is known
};

class Drafting {
  public:
    // drafter may be null. ring_bytes: features of a sequence that may wait on the host.
    Drafting(std::shared_ptr<Drafter> drafter, const Target & target, std::size_t ring_bytes);

    bool works() const { return drafter_ && failure_.empty(); }
    // Why drafting has stopped for good; empty while it works.
    const std::string & failure() const { return failure_; }

    // Choose widths for sequences that leave it to us.
    void steer(Controller controller) { controller_.emplace(std::move(controller)); }
    Controller * controller() { return controller_ ? &*controller_ : nullptr; }
    const Controller * controller() const { return controller_ ? &*controller_ : nullptr; }

    // A sequence whose caches hold `n_past` positions of its prompt already. waiting: features of the last of
    // them that the drafter lacks.
    void begin(Sequence & sequence, FeatureRing waiting) const;
    // kept: its rows stay in the drafter for a sequence that goes on from its text.
    void end(const Sequence & sequence, bool kept);

    // Whether the drafter has a use for rows of a text that will have `end` rows.
    bool wants(const FeatureRows & rows, llama_pos end) const;

    // Features of new rows. eager: give them to the drafter now, else when a draft wants them; sequences with
    // a fixed block draft in every round.
    void take(const Target & target, const std::vector<NewRows> & rows, bool eager);

    // Whether the controller drafts at present.
    bool eager() const;

    // Give the drafter what it lacks of these sequences.
    void catch_up(const std::vector<Sequence *> & sequences);

    // Fill `drafted` of the requests; none after a failure.
    void draft(std::vector<DraftRequest> & requests);

    // Draft for a sequence without verifying it; what it then writes shows whether the draft was right.
    // Returns the drafted tokens.
    std::vector<Token> probe(Sequence & sequence, int rows);
    bool probing() const { return probe_.has_value(); }
    void saw(const Sequence & sequence, const std::vector<Token> & written);

    std::optional<int> forced_accept(llama_seq_id seq, int drafted) const {
        return drafter_ ? drafter_->forced_accept(seq, drafted) : std::nullopt;
    }

  private:
    struct Probe {
        llama_seq_id seq;
        std::vector<Token> drafted;
        std::vector<float> confidence;
        int right = 0;
    };

    void conclude(int tested);
    FeatureRows needed(const Target & target, const NewRows & given);
    // Runs a call of the drafter; its failure is drafting's end.
    template <typename Call> void guarded(const Call & call);

    std::shared_ptr<Drafter> drafter_;
    std::optional<Controller> controller_;
    std::optional<Probe> probe_;
    int ring_width_;
    int ring_rows_;
    std::string failure_;
};

} // namespace dflash
