#include "lattice.h"

#include <cmath>

namespace dflash {

float share_of(const float * scores, int n, int index) {
    double sum = 0;
    for (int k = 0; k < n; ++k) {
        sum += std::exp(static_cast<double>(scores[k]) - scores[index]);
    }
    return static_cast<float>(1 / sum);
}

Walk walk_lattice(const Lattice & lattice, int count, const Choice & choose) {
    Walk walk;
    std::vector<Token> candidates(static_cast<size_t>(lattice.top_k));
    int before = 0;
    for (int i = 1; i <= count; ++i) {
        const float * row = lattice.rows + static_cast<size_t>(i) * lattice.stride;
        for (int k = 0; k < lattice.top_k; ++k) {
            if (!(row[k] >= 0 && row[k] < static_cast<float>(lattice.n_vocab))) { // NaN too
                return walk;
            }
            candidates[static_cast<size_t>(k)] = static_cast<Token>(row[k]);
        }
        const float * scores = row + lattice.top_k + static_cast<size_t>(before) * lattice.top_k;
        const int index = choose(candidates, scores, walk.tokens);
        if (index < 0) {
            return walk;
        }
        walk.tokens.push_back(candidates[static_cast<size_t>(index)]);
        walk.confidence.push_back(share_of(scores, lattice.top_k, index));
        before = index;
    }
    return walk;
}

} // namespace dflash
