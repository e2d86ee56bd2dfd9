#include "prefix_store.h"

#include <algorithm>
#include <stdexcept>
#include <unordered_set>

namespace dflash {

namespace {

// Fewer tokens than this are read again as quickly as their state is copied.
constexpr int least_copied = 16;
// A point costs a decode of its own in a prefill, and memory: it must save at least this many tokens.
constexpr int least_spacing = 32;

int size(const Kept & kept) {
    return static_cast<int>(kept.tokens.size());
}

} // namespace

PrefixStore::PrefixStore(std::shared_ptr<Target> target, std::shared_ptr<Drafter> drafter, size_t budget)
    : caches_(std::move(target), std::move(drafter)), budget_(budget) {}

size_t PrefixStore::bytes() const {
    std::unordered_set<const Bytes *> counted; // points are shared by texts that began alike
    size_t sum = 0;
    const auto count = [&](const std::vector<Point> & points) {
        for (const Point & point : points) {
            for (const auto & part : {point.target, point.draft}) {
                sum += part && counted.insert(part.get()).second ? part->size() : 0;
            }
        }
    };
    for (const auto & entry : slots_) {
        sum += entry.second.kept.waiting.bytes();
        count(entry.second.kept.points);
    }
    for (const Kept & kept : host_) {
        sum += kept.target.size() + kept.draft.size() + kept.waiting.bytes();
        count(kept.points);
    }
    return sum;
}

Kept & PrefixStore::refreshed(llama_seq_id id) {
    Kept & kept = slots_.at(id).kept;
    caches_.refresh(id, kept);
    return kept;
}

PrefixStore::Source PrefixStore::best_source(llama_seq_id id, const std::vector<Token> & prompt,
                                             bool drafts) {
    Source best{0, -1, host_.end()};
    if (slots_.count(id) != 0) {
        best = {reusable(prompt, refreshed(id), drafts), id, host_.end()};
    }
    // a copy must be worth it
    const auto better = [&](int saves) { return saves >= best.saves + least_copied; };
    for (auto & entry : slots_) {
        const int saves =
            entry.first == id || !entry.second.sound ? 0 : reusable(prompt, refreshed(entry.first), drafts);
        if (better(saves)) {
            best = {saves, entry.first, host_.end()};
        }
    }
    for (auto kept = host_.begin(); kept != host_.end(); ++kept) {
        const int saves = reusable(prompt, *kept, drafts);
        if (better(saves)) {
            best = {saves, -1, kept};
        }
    }
    return best;
}

int PrefixStore::begin(llama_seq_id id, const std::vector<Token> & prompt, bool drafts,
                       FeatureRing & waiting) {
    if (!on()) {
        caches_.empty(id); // not as soon as the last one ends: see Context::fill_below
        return 0;
    }
    ++uses_;
    const Source source = best_source(id, prompt, drafts);
    int saves = source.saves;
    std::vector<Point> points;
    try {
        bool ready = false;
        if (saves > 0 && source.slot == id) {
            points = slots_[id].kept.points;
            if (size(slots_[id].kept) > 2 * saves) {
                displace(id); // most of it would be lost
            }
            ready = caches_.go_back(id, points, saves);
            waiting = std::move(slots_[id].kept.waiting);
        } else if (saves > 0) {
            // out of the list, so that making room cannot drop it
            std::list<Kept> taken;
            if (source.slot >= 0) {
                taken.push_back(copied(source.slot));
            } else {
                taken.splice(taken.begin(), host_, source.host);
            }
            displace(id);
            points = taken.front().points;
            waiting = taken.front().waiting;
            ready = caches_.load(id, taken.front(), saves);
            if (source.slot < 0 && size(taken.front()) > 2 * saves) {
                host_.splice(host_.begin(), taken);
                host_.front().used = uses_;
            }
        } else {
            displace(id);
        }
        saves = ready ? saves : 0;
    } catch (const std::exception &) { // a state that cannot be read or held: the prompt is read instead
        saves = 0;
    }
    if (saves == 0) {
        caches_.empty(id);
        points.clear();
        waiting = {};
    }
    waiting.cut(saves);
    Slot & slot = slots_[id];
    slot = {};
    slot.in_use = true;
    slot.kept.used = uses_;
    slot.kept.tokens.assign(prompt.begin(), prompt.begin() + saves);
    for (Point & point : points) {
        if (point.count <= saves) {
            point.used = point.count == saves ? uses_ : point.used;
            slot.kept.points.push_back(std::move(point));
        }
    }
    if (caches_.drafter()) {
        caches_.drafter()->resume(id, saves);
    }
    fit();
    return saves;
}

void PrefixStore::grow(llama_seq_id id, Token token) {
    if (on()) {
        slots_.at(id).kept.tokens.push_back(token);
    }
}

bool PrefixStore::wants(llama_seq_id id, int count) const {
    if (!on() || !caches_.move_on()) {
        return false;
    }
    int last = 0;
    for (const Point & point : slots_.at(id).kept.points) {
        last = std::max(last, point.count);
    }
    return count - last >= least_spacing;
}

void PrefixStore::mark(llama_seq_id id) {
    Kept & kept = slots_.at(id).kept;
    try {
        kept.points.push_back(caches_.point(id, size(kept), ++uses_));
    } catch (const std::exception &) { // without it a later request reads more, no worse
        return;
    }
    fit();
}

void PrefixStore::park(llama_seq_id id, FeatureRing waiting) {
    const auto found = slots_.find(id);
    if (found == slots_.end() || !found->second.sound) {
        slots_.erase(id); // emptied when a prompt comes, as in `begin`
        return;
    }
    if (found->second.in_use && waiting.count() > 0) {
        found->second.kept.waiting = std::move(waiting);
    }
    found->second.in_use = false;
    found->second.kept.used = ++uses_;
}

int PrefixStore::recover(llama_seq_id id, int count) {
    const auto found = slots_.find(id);
    if (found == slots_.end()) {
        return 0;
    }
    Kept & kept = found->second.kept;
    const int sound = caches_.recover(id, kept.points, count);
    if (sound < 0) {
        spoil(id);
        return 0;
    }
    kept.tokens.resize(static_cast<size_t>(sound));
    return sound;
}

void PrefixStore::spoil(llama_seq_id id) {
    const auto found = slots_.find(id);
    if (found != slots_.end()) {
        found->second.sound = false;
    }
}

void PrefixStore::clear() {
    host_.clear();
    for (auto entry = slots_.begin(); entry != slots_.end();) {
        entry->second.kept.points.clear();
        if (entry->second.in_use) {
            ++entry;
            continue;
        }
        entry = slots_.erase(entry); // emptied when a prompt comes, as in `begin`
    }
}

Kept PrefixStore::copied(llama_seq_id id) const {
    Kept kept = slots_.at(id).kept;
    caches_.save(id, kept);
    return kept;
}

// Copy what a sequence's caches hold to where it can stay: another one that is empty, else host memory.
void PrefixStore::displace(llama_seq_id id) {
    const auto found = slots_.find(id);
    if (found == slots_.end() || !found->second.sound || size(found->second.kept) < least_copied) {
        return;
    }
    std::vector<Token> longer = found->second.kept.tokens;
    const int all = static_cast<int>(longer.size());
    longer.push_back(-1);
    for (const auto & entry : slots_) {
        if (entry.first != id && reusable(longer, refreshed(entry.first), true) == all) {
            return;
        }
    }
    if (std::any_of(host_.begin(), host_.end(),
                    [&](const Kept & kept) { return reusable(longer, kept, true) == all; })) {
        return;
    }
    Kept kept = copied(id);
    if (kept.bytes() > budget_) {
        return;
    }
    for (llama_seq_id other = 0; other < caches_.target().params().n_seq; ++other) {
        if (other == id || slots_.count(other) != 0) {
            continue;
        }
        if (caches_.load(other, kept, all)) {
            kept.target.clear();
            kept.draft.clear();
            slots_[other].kept = std::move(kept);
            return;
        }
        caches_.empty(other);
    }
    host_.push_front(std::move(kept));
    fit();
}

// Give up what was used longest ago until the rest is within the budget.
void PrefixStore::fit() {
    while (bytes() > budget_) {
        auto oldest = host_.end();
        std::uint64_t when = uses_ + 1;
        for (auto kept = host_.begin(); kept != host_.end(); ++kept) {
            if (kept->used < when) {
                when = kept->used;
                oldest = kept;
            }
        }
        std::vector<Point> * from = nullptr;
        size_t at = 0;
        FeatureRing * waiting = nullptr;
        for (auto & entry : slots_) {
            Kept & kept = entry.second.kept;
            if (kept.waiting.bytes() > 0 && kept.used < when) {
                when = kept.used;
                waiting = &kept.waiting;
                from = nullptr;
            }
            std::vector<Point> & points = kept.points;
            for (size_t i = 0; i < points.size(); ++i) {
                if (points[i].used < when) {
                    when = points[i].used;
                    from = &points;
                    waiting = nullptr;
                    at = i;
                }
            }
        }
        if (waiting) {
            *waiting = {};
        } else if (from) {
            from->erase(from->begin() + static_cast<std::ptrdiff_t>(at));
        } else if (oldest != host_.end()) {
            host_.erase(oldest);
        } else {
            return;
        }
    }
}

} // namespace dflash
