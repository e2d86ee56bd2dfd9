// Features of context rows that the drafter has not been given: the newest ones of a sequence, up to a limit.
#pragma once

#include "target.h"

#include <vector>

namespace dflash {

class FeatureRing {
  public:
    FeatureRing() = default; // keeps nothing
    // width: floats of a row. most: rows kept.
    FeatureRing(int width, int most) : width_(width), most_(most) {}

    // Rows of the target's last decode, which follow the ones kept; after a gap those are forgotten.
    void keep(const Target & target, const FeatureRows & rows);
    void clear() { count_ = 0; }
    // Forget rows at positions >= pos.
    void cut(llama_pos pos);
    std::size_t bytes() const { return data_.size() * sizeof(float); }

    int count() const { return count_; }
    llama_pos begin() const { return end_ - count_; } // position of the first row
    llama_pos end() const { return end_; }
    const float * row(int index) const; // from the first one kept

  private:
    int width_ = 0;
    int most_ = 0;
    int count_ = 0;
    llama_pos end_ = 0;
    std::vector<float> data_; // a row's place is its position modulo `most`
};

} // namespace dflash
