#include "feature_ring.h"

#include <algorithm>

namespace dflash {

void FeatureRing::keep(const Target & target, const FeatureRows & rows) {
    if (most_ == 0) {
        return;
    }
    if (rows.pos != end_) {
        count_ = 0;
    }
    const int skipped = std::max(0, rows.count - most_);
    const size_t width = static_cast<size_t>(width_);
    for (int i = skipped; i < rows.count; ++i) {
        const size_t place = static_cast<size_t>(rows.pos + i) % static_cast<size_t>(most_);
        if (data_.size() < (place + 1) * width) {
            data_.resize((place + 1) * width);
        }
        target.copy_features(rows.row + i, data_.data() + place * width);
    }
    count_ = std::min(count_ + rows.count, most_);
    end_ = rows.pos + rows.count;
}

void FeatureRing::cut(llama_pos pos) {
    if (pos < end_) {
        count_ = std::max(0, count_ - (end_ - pos));
        end_ = pos;
    }
}

const float * FeatureRing::row(int index) const {
    const size_t place = static_cast<size_t>(begin() + index) % static_cast<size_t>(most_);
    return data_.data() + place * static_cast<size_t>(width_);
}

} // namespace dflash
