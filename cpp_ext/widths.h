// The widths that rounds choose among. Pure.
#pragma once

#include <vector>

namespace dflash {

// Rows that a round may draft, rising: 1, no draft, to `widest`. Few, since a block that is too wide can be
// trimmed; that the draft's graph is rebuilt for another width costs nothing more, since an injection comes
// between any two drafts.
std::vector<int> draft_widths(int widest);

// Rows of a block of `drafted` that a round may verify, rising: 1 to all of them.
std::vector<int> verify_widths(int drafted);

} // namespace dflash
