#include "prefix_store.h"

#include "log.h"

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

std::shared_ptr<const Bytes> moving_part(Context * context, llama_seq_id seq) {
    if (!context || !moves_on(*context)) {
        return nullptr;
    }
    return std::make_shared<const Bytes>(save_state(*context, seq, Part::moving));
}

// Take one context back to `count` positions, if it can.
bool take_back(Context & context, llama_seq_id seq, int count, const Bytes * moving) {
    if (held(context, seq) == count) {
        return true;
    }
    if (count >= least_cut(context, seq)) {
        return cut_back(context, seq, count);
    }
    return moving && load_state(context, seq, *moving, Part::moving) && cut_back(context, seq, count);
}

} // namespace

PrefixStore::PrefixStore(std::shared_ptr<Target> target, std::shared_ptr<Drafter> drafter, size_t budget)
    : target_(std::move(target)), drafter_(std::move(drafter)), budget_(budget) {}

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
    kept.least_cut = least_cut(target(), id);
    kept.fed = size(kept);
    if (const Context * cache = draft()) {
        kept.fed = std::min(kept.fed, held(*cache, id));
        if (kept.fed == size(kept)) {
            kept.least_cut = std::max(kept.least_cut, least_cut(*cache, id));
        }
    }
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
            ready = go_back(id, points, saves);
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
            ready = load(id, taken.front(), saves);
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
        empty(id);
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
    if (drafter_) {
        drafter_->resume(id, saves);
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
    if (!on() || (!moves_on(target()) && !(draft() && moves_on(*draft())))) {
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
        const bool fed = draft() && held(*draft(), id) == size(kept);
        kept.points.push_back(
            {size(kept), moving_part(&target(), id), moving_part(fed ? draft() : nullptr, id), ++uses_});
    } catch (const std::exception &) { // without it a later request reads more, no worse
        return;
    }
    fit();
}

void PrefixStore::park(llama_seq_id id, FeatureRing waiting) {
    const auto found = slots_.find(id);
    if (found == slots_.end() || !found->second.sound) {
        empty(id);
        slots_.erase(id);
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
    Point sound{count, nullptr, nullptr};
    bool ready = false;
    if (!moves_on(target())) {
        ready = cut_back(target(), id, count);
    } else {
        // what moves on has done so, whatever llama.cpp says of its positions: only saved bytes are sure
        for (const Point & point : kept.points) {
            sound = point.count <= count ? point : sound;
        }
        ready = sound.target && load_state(target(), id, *sound.target, Part::moving) &&
                cut_back(target(), id, sound.count);
    }
    if (!ready) {
        spoil(id);
        return 0;
    }
    kept.tokens.resize(static_cast<size_t>(sound.count));
    if (draft() && held(*draft(), id) > sound.count &&
        !take_back(*draft(), id, sound.count, sound.draft.get())) {
        draft()->drop(id);
    }
    return sound.count;
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
        empty(entry->first);
        entry = slots_.erase(entry);
    }
}

Kept PrefixStore::copied(llama_seq_id id) const {
    Kept kept = slots_.at(id).kept;
    kept.target = save_state(target(), id, Part::all);
    const int all = size(kept);
    kept.least_cut = moves_on(target()) ? all : 0;
    kept.fed = all;
    if (const Context * cache = draft()) {
        kept.fed = std::min(all, held(*cache, id));
        if (moves_on(*cache) && kept.fed == all) {
            kept.least_cut = all;
        }
        if (kept.fed > 0) {
            kept.draft = save_state(*cache, id, Part::all);
        }
    }
    return kept;
}

bool PrefixStore::load(llama_seq_id id, const Kept & kept, int count) {
    empty(id);
    if (!load_state(target(), id, kept.target, Part::all) || held(target(), id) != size(kept)) {
        return false;
    }
    if (Context * cache = kept.fed > 0 ? draft() : nullptr) {
        if (!load_state(*cache, id, kept.draft, Part::all) || held(*cache, id) != kept.fed) {
            return false;
        }
    }
    return go_back(id, kept.points, count);
}

bool PrefixStore::go_back(llama_seq_id id, const std::vector<Point> & points, int count) {
    const Point none;
    const Point * at = &none;
    for (const Point & point : points) {
        at = point.count == count ? &point : at;
    }
    if (!take_back(target(), id, count, at->target.get())) {
        return false;
    }
    // The draft may lag behind, and does without what it cannot keep.
    if (draft() && held(*draft(), id) > count && !take_back(*draft(), id, count, at->draft.get())) {
        draft()->drop(id);
    }
    return true;
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
    for (llama_seq_id other = target().params().n_seq - 1; other >= 0; --other) {
        if (other == id || slots_.count(other) != 0) {
            continue;
        }
        if (load(other, kept, all)) {
            kept.target.clear();
            kept.draft.clear();
            slots_[other].kept = std::move(kept);
            return;
        }
        empty(other);
    }
    host_.push_front(std::move(kept));
    fit();
}

void PrefixStore::empty(llama_seq_id id) {
    if (!target_->lost()) {
        target().drop(id);
    }
    if (Context * cache = draft()) {
        cache->drop(id);
    }
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

Kept PrefixStore::copied(const std::vector<Token> & tokens) const {
    int most = 0;
    llama_seq_id slot = -1;
    const Kept * host = nullptr;
    for (const auto & entry : slots_) {
        const int shared = entry.second.sound ? common_prefix(tokens, entry.second.kept.tokens) : 0;
        if (shared > most) {
            most = shared;
            slot = entry.first;
        }
    }
    for (const Kept & kept : host_) {
        if (common_prefix(tokens, kept.tokens) > most) {
            most = common_prefix(tokens, kept.tokens);
            host = &kept;
        }
    }
    if (most == 0) {
        throw std::invalid_argument("no kept text begins like these tokens");
    }
    return host ? *host : copied(slot);
}

void PrefixStore::adopt(Kept kept) {
    const Context & context = target();
    const int n_vocab = context.model().n_vocab();
    const auto known = [n_vocab](Token token) { return token >= 0 && token < n_vocab; };
    if (!on()) {
        throw std::invalid_argument("keeping prefixes is turned off (prefix_memory is 0)");
    }
    if (kept.tokens.empty() || size(kept) > context.params().n_ctx ||
        !std::all_of(kept.tokens.begin(), kept.tokens.end(), known)) {
        throw std::invalid_argument("a kept text of " + std::to_string(kept.tokens.size()) +
                                    " tokens, expected 1 to " + std::to_string(context.params().n_ctx) +
                                    " of a vocabulary of " + std::to_string(n_vocab));
    }
    llama_seq_id at = -1;
    for (llama_seq_id id = 0; id < context.params().n_seq; ++id) {
        const auto slot = slots_.find(id);
        if (slot == slots_.end()) {
            at = id;
            break;
        }
        if (!slot->second.in_use && (at < 0 || slot->second.kept.used < slots_.at(at).kept.used)) {
            at = id;
        }
    }
    if (at < 0) {
        throw std::invalid_argument("every sequence is in use; wait for one to end");
    }
    displace(at);
    slots_.erase(at);
    kept.fed = draft() ? kept.fed : size(kept);
    clear_errors();
    if (!load(at, kept, size(kept))) {
        empty(at);
        throw std::invalid_argument("llama.cpp refuses the state: " + last_errors());
    }
    kept.target.clear();
    kept.draft.clear();
    kept.used = ++uses_;
    slots_[at].kept = std::move(kept);
    fit();
}

} // namespace dflash
