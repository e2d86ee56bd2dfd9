// The decisions of a round as pure functions: no handles, no clock, no randomness of their own.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_set>
#include <vector>

namespace dflash {

using Token = std::int32_t;

enum class Finish { none, stop, length, failed, cancelled };

// Rows to verify this round, the anchor included: 1 (no draft) to block. A round of w rows emits at most w
// tokens, so more rows than tokens wanted would be thrown away.
int plan_width(int block, int remaining);

// The largest of n values; NaN never wins. -infinity if no value is comparable.
float largest(const float * values, int n);

// Index of the largest of n values; NaN and -infinity never win. -1 if there are no others.
Token argmax(const float * values, int n);

// How sure logits are of a token: the chance it would have against its best rival alone, 1 / (1 + exp(-d))
// for a logit that is d larger. 0 for a token that is not one of the n.
float confidence_in(const float * logits, int n, Token token);

struct Accepted {
    int count;   // drafted tokens that are kept
    Token bonus; // the target's own token after them
};

// Greedy acceptance: the longest prefix of the draft that the target chooses too, then the target's choice.
// choose(i) is the target's token after the anchor and i drafted ones; it is asked for no row past the
// first difference.
Accepted accept_greedy(const std::vector<Token> & drafted, const std::function<Token(int)> & choose);

// Number of draft positions that survive one draw. survival[i] = P(position i and all before it accepted);
// u uniform in [0, 1): the count of positions with survival > u, monotone by construction.
int survivors(const std::vector<double> & survival, double u, int drafted);

struct Cut {
    int keep;      // tokens of the round that are emitted; a stop token counts as emitted
    Finish finish; // why the answer ends here, or none
};

// Cut a round's tokens at the first stop token or at the number still wanted.
Cut cut_output(const std::vector<Token> & tokens, int remaining, const std::unordered_set<Token> & stops);

// Drafted tokens that are worth a verify: up to the first that would end the text.
int worth_verifying(const std::vector<Token> & drafted, const std::unordered_set<Token> & stops);

// A run of neighbouring cells of the cache that a row of a decode must not see.
struct CellRun {
    std::int64_t row;
    std::int64_t first;
    std::int64_t count;
};

// For every row, the cells of rows of the same stream that stand at later positions. positions and cells:
// one per row; streams hold `per_stream` consecutive rows each.
std::vector<CellRun> later_cells(const std::vector<std::int32_t> & positions,
                                 const std::vector<std::int64_t> & cells, int per_stream);

} // namespace dflash
