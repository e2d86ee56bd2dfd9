#include "sequence_caches.h"

#include <algorithm>

namespace dflash {

namespace {

std::shared_ptr<const Bytes> moving_part(const Context * context, llama_seq_id seq) {
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

bool SequenceCaches::move_on() const {
    return moves_on(target()) || (draft() && moves_on(*draft()));
}

Point SequenceCaches::point(llama_seq_id id, int count, std::uint64_t used) const {
    const bool fed = draft() && held(*draft(), id) == count;
    return {count, moving_part(&target(), id), moving_part(fed ? draft() : nullptr, id), used};
}

void SequenceCaches::refresh(llama_seq_id id, Kept & kept) const {
    const int all = static_cast<int>(kept.tokens.size());
    kept.least_cut = least_cut(target(), id);
    kept.fed = all;
    if (const Context * cache = draft()) {
        kept.fed = std::min(all, held(*cache, id));
        if (kept.fed == all) {
            kept.least_cut = std::max(kept.least_cut, least_cut(*cache, id));
        }
    }
}

void SequenceCaches::save(llama_seq_id id, Kept & kept) const {
    const int all = static_cast<int>(kept.tokens.size());
    kept.target = save_state(target(), id, Part::all);
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
}

bool SequenceCaches::load(llama_seq_id id, const Kept & kept, int count) {
    empty(id);
    if (!load_state(target(), id, kept.target, Part::all) ||
        held(target(), id) != static_cast<int>(kept.tokens.size())) {
        return false;
    }
    if (Context * cache = kept.fed > 0 ? draft() : nullptr) {
        if (!load_state(*cache, id, kept.draft, Part::all) || held(*cache, id) != kept.fed) {
            return false;
        }
    }
    return go_back(id, kept.points, count);
}

bool SequenceCaches::go_back(llama_seq_id id, const std::vector<Point> & points, int count) {
    Point at{count, nullptr, nullptr};
    for (const Point & point : points) {
        at = point.count == count ? point : at;
    }
    if (!take_back(target(), id, count, at.target.get())) {
        return false;
    }
    take_back_draft(id, at);
    return true;
}

int SequenceCaches::recover(llama_seq_id id, const std::vector<Point> & points, int count) {
    Point sound{count, nullptr, nullptr};
    bool ready = false;
    if (!moves_on(target())) {
        ready = cut_back(target(), id, count);
    } else {
        // what moves on has done so, whatever llama.cpp says of its positions: only saved bytes are sure
        for (const Point & point : points) {
            sound = point.count <= count ? point : sound;
        }
        ready = sound.target && load_state(target(), id, *sound.target, Part::moving) &&
                cut_back(target(), id, sound.count);
    }
    if (!ready) {
        return -1;
    }
    take_back_draft(id, sound);
    return sound.count;
}

// The draft may lag behind, and does without what it cannot keep.
void SequenceCaches::take_back_draft(llama_seq_id id, const Point & point) {
    if (draft() && held(*draft(), id) > point.count &&
        !take_back(*draft(), id, point.count, point.draft.get())) {
        draft()->drop(id);
    }
}

void SequenceCaches::empty(llama_seq_id id) {
    if (!target_->lost()) {
        target().drop(id);
    }
    if (Context * cache = draft()) {
        cache->drop(id);
    }
}

} // namespace dflash
