// What the selector of a DFlash2 drafter makes of a block, and the way through it. Pure functions that tests
// call.
#pragma once

#include "decide.h"

#include <functional>
#include <vector>

namespace dflash {

// The rows of one block as llama.cpp's graph leaves them, `stride` floats apart. Row i is for the position i
// behind the anchor; row 0 is empty. A row holds the ids of top_k candidates, then, for each candidate of the
// row before it, top_k scores of its own candidates. In row 1 all of these are the same: there the anchor is
// what went before.
struct Lattice {
    const float * rows;
    int stride;
    int top_k;
    int n_vocab;
};

struct Walk {
    std::vector<Token> tokens;
    std::vector<float> confidence; // softmax of the chosen token's score among the candidates'
};

// Index of the candidate to take, or -1 to end the walk. before: the tokens taken so far.
using Choice = std::function<int(const std::vector<Token> & candidates, const float * scores,
                                 const std::vector<Token> & before)>;

// At most `count` tokens: at each position the choice among its candidates, scored as followers of the one
// taken before. Ends early where a candidate is no token or none can be chosen.
Walk walk_lattice(const Lattice & lattice, int count, const Choice & choose);

// Softmax of one of n scores. NaN if any is not finite.
float share_of(const float * scores, int n, int index);

} // namespace dflash
