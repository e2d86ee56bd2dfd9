#include "drafting.h"

#include "state.h"

#include <algorithm>
#include <new>
#include <stdexcept>

namespace dflash {

namespace {

// Rows: a drafter that is resumed needs some context to draft from, and more takes time to inject.
constexpr std::size_t fewest_kept = 64;
constexpr std::size_t most_kept = 256;

} // namespace

Drafting::Drafting(std::shared_ptr<Drafter> drafter, const Target & target, std::size_t ring_bytes)
    : drafter_(std::move(drafter)), ring_width_(target.n_features()) {
    const std::size_t row = std::max<std::size_t>(1, static_cast<std::size_t>(ring_width_)) * sizeof(float);
    const std::size_t context = static_cast<std::size_t>(target.context().params().n_ctx);
    ring_rows_ = static_cast<int>(std::min(context, std::clamp(ring_bytes / row, fewest_kept, most_kept)));
    if (drafter_ && drafter_->window() > 0) {
        ring_rows_ = std::min(ring_rows_, drafter_->window());
    }
}

template <typename Call> void Drafting::guarded(const Call & call) {
    try {
        call();
    } catch (const std::runtime_error & error) {
        failure_ = error.what();
        probe_.reset();
    } catch (const std::bad_alloc &) {
        failure_ = "no memory was left";
        probe_.reset();
    }
}

void Drafting::begin(Sequence & sequence, FeatureRing waiting) const {
    sequence.waiting = waiting.count() > 0 ? std::move(waiting) : FeatureRing(ring_width_, ring_rows_);
    const Context * cache = drafter_ ? drafter_->cache() : nullptr;
    sequence.drafted_to = cache ? held(*cache, sequence.id) : sequence.n_past;
}

void Drafting::end(const Sequence & sequence, bool kept) {
    if (probe_ && probe_->seq == sequence.id) {
        conclude(probe_->right);
    }
    if (drafter_ && !kept) {
        drafter_->release(sequence.id);
    }
}

bool Drafting::wants(const FeatureRows & rows, llama_pos end) const {
    return drafter_ && newest(rows, end, drafter_->window()).count > 0;
}

// The rows that are in the drafter's window once the text is read. Where some have been left out, what it has
// is older still: it begins anew, for positions may not jump.
FeatureRows Drafting::needed(const Target & target, const NewRows & given) {
    const FeatureRows rows = newest(given.rows, given.end, drafter_->window());
    Sequence & sequence = *given.sequence;
    const llama_pos next = sequence.waiting.count() > 0 ? sequence.waiting.end() : sequence.drafted_to;
    if (drafter_->window() > 0 && target.publishes() && rows.count > 0 && rows.pos > next) {
        sequence.waiting.clear();
        drafter_->forget(sequence.id);
        sequence.drafted_to = rows.pos;
    }
    return rows;
}

bool Drafting::eager() const {
    return controller_ && controller_->drafts();
}

void Drafting::take(const Target & target, const std::vector<NewRows> & given, bool eager) {
    if (!works()) {
        return;
    }
    const auto at_once = [eager](const Sequence & sequence) { return eager || sequence.limits.block > 1; };
    std::vector<NewRows> rows;
    for (const NewRows & of_one : given) {
        rows.push_back({of_one.sequence, needed(target, of_one), of_one.end});
    }
    rows.erase(std::remove_if(rows.begin(), rows.end(), [](const NewRows & n) { return n.rows.count == 0; }),
               rows.end());
    std::vector<Sequence *> behind;
    for (const NewRows & of_one : rows) {
        if (at_once(*of_one.sequence)) {
            behind.push_back(of_one.sequence);
        }
    }
    catch_up(behind);
    std::vector<FeatureRows> now;
    for (const NewRows & of_one : rows) {
        Sequence & sequence = *of_one.sequence;
        if (sequence.limits.block == 1) {
            continue; // never drafts
        }
        if (at_once(sequence) && sequence.waiting.count() == 0 && sequence.drafted_to == of_one.rows.pos) {
            now.push_back(of_one.rows);
        } else if (target.publishes()) {
            sequence.waiting.keep(target, of_one.rows);
        }
    }
    if (now.empty() || !works()) {
        return;
    }
    guarded([&] { drafter_->inject(target, now); });
    for (const NewRows & of_one : rows) {
        for (const FeatureRows & run : now) {
            if (works() && run.seq == of_one.sequence->id) {
                of_one.sequence->drafted_to = run.pos + run.count;
                of_one.sequence->counters.injected += run.count;
            }
        }
    }
}

void Drafting::catch_up(const std::vector<Sequence *> & sequences) {
    std::vector<Drafter::Kept> kept;
    for (Sequence * sequence : sequences) {
        const FeatureRing & ring = sequence->waiting;
        if (ring.count() == 0) {
            continue;
        }
        if (ring.begin() != sequence->drafted_to) {
            drafter_->forget(
                sequence->id); // positions may not jump, but an empty sequence may begin anywhere
        }
        kept.push_back({sequence->id, &ring});
    }
    if (kept.empty() || !works()) {
        return;
    }
    guarded([&] { drafter_->inject_kept(kept); });
    for (Sequence * sequence : sequences) {
        if (works() && sequence->waiting.count() > 0) {
            sequence->drafted_to = sequence->waiting.end();
            sequence->counters.injected += sequence->waiting.count();
            sequence->waiting.clear();
        }
    }
}

void Drafting::draft(std::vector<DraftRequest> & requests) {
    if (!works() || requests.empty()) {
        return;
    }
    guarded([&] { drafter_->draft(requests); });
    if (!works()) {
        for (DraftRequest & request : requests) {
            request.drafted.clear();
        }
    }
}

std::vector<Token> Drafting::probe(Sequence & sequence, int rows) {
    std::vector<DraftRequest> request{
        {sequence.id, sequence.n_past, sequence.anchor, rows - 1, {}, {}, {}, &sequence.sampler, true}};
    draft(request);
    const int tested = static_cast<int>(request[0].drafted.size());
    if (!works() || tested == 0) {
        return {};
    }
    if (const std::optional<int> forced = drafter_->forced_accept(sequence.id, tested)) {
        if (controller_) {
            controller_->saw_probe(request[0].confidence, std::min(tested, *forced + 1), *forced);
        }
    } else {
        probe_ = {sequence.id, request[0].drafted, std::move(request[0].confidence), 0};
    }
    return std::move(request[0].drafted);
}

void Drafting::saw(const Sequence & sequence, const std::vector<Token> & written) {
    if (!probe_ || probe_->seq != sequence.id) {
        return;
    }
    for (const Token token : written) {
        if (probe_->drafted[static_cast<size_t>(probe_->right)] != token) {
            conclude(probe_->right + 1);
            return;
        }
        if (++probe_->right == static_cast<int>(probe_->drafted.size())) {
            conclude(probe_->right);
            return;
        }
    }
}

void Drafting::conclude(int tested) {
    if (controller_ && tested > 0) {
        controller_->saw_probe(probe_->confidence, tested, probe_->right);
    }
    probe_.reset();
}

} // namespace dflash
