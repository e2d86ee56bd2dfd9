// Which noise blocks can be drafted in one decode. Pure functions that tests call.
#pragma once

#include <cstddef>
#include <vector>

namespace dflash {

// Blocks of one decode, all of which draft `count` tokens.
struct BlockGroup {
    int count;
    std::vector<size_t> members; // indices into the requests, in order
};

// Split requests into decodes of equal blocks, which the graphs of DFlash2 and DSpark need: a sequence that
// wants less drafts as much as the longest and what is too much is cut afterwards. One without the room for
// that, at the edge of its context, goes into a decode of its own.
// counts: tokens wanted, 1 or more; rooms: positions left behind the anchor, at least the count.
std::vector<BlockGroup> equal_blocks(const std::vector<int> & counts, const std::vector<int> & rooms);

} // namespace dflash
