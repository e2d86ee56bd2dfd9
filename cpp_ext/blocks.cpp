#include "blocks.h"

#include <algorithm>
#include <stdexcept>

namespace dflash {

std::vector<BlockGroup> equal_blocks(const std::vector<int> & counts, const std::vector<int> & rooms) {
    if (counts.size() != rooms.size()) {
        throw std::invalid_argument("one room per count is needed");
    }
    std::vector<size_t> left;
    for (size_t i = 0; i < counts.size(); ++i) {
        if (counts[i] < 1 || rooms[i] < counts[i]) {
            throw std::invalid_argument("a block wants 1 token or more and the room for them");
        }
        left.push_back(i);
    }
    std::vector<BlockGroup> groups;
    while (!left.empty()) {
        BlockGroup group{0, {}};
        for (const size_t i : left) {
            group.count = std::max(group.count, counts[i]);
        }
        std::vector<size_t> later;
        for (const size_t i : left) {
            (rooms[i] >= group.count ? group.members : later).push_back(i);
        }
        groups.push_back(std::move(group));
        left = std::move(later);
    }
    return groups;
}

} // namespace dflash
