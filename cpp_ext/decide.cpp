#include "decide.h"

#include <algorithm>
#include <cmath>

namespace dflash {

int plan_width(int block, int remaining) {
    return std::max(1, std::min(block, remaining));
}

float largest(const float * values, int n) {
    // Lanes of running maxima let the compiler vectorise; a comparison with NaN is false, so NaN never wins.
    constexpr int lanes = 32;
    float best[lanes];
    std::fill(best, best + lanes, -INFINITY);
    int i = 0;
    for (; i + lanes <= n; i += lanes) {
        for (int k = 0; k < lanes; ++k) {
            best[k] = values[i + k] > best[k] ? values[i + k] : best[k];
        }
    }
    float top = *std::max_element(best, best + lanes);
    for (; i < n; ++i) {
        top = values[i] > top ? values[i] : top;
    }
    return top;
}

Token argmax(const float * values, int n) {
    const float top = largest(values, n);
    const float * found = std::find(values, values + n, top);
    return found == values + n || top == -INFINITY ? -1 : static_cast<Token>(found - values);
}

float confidence_in(const float * logits, int n, Token token) {
    if (token < 0 || token >= n) {
        return 0;
    }
    const float rival = std::max(largest(logits, token), largest(logits + token + 1, n - token - 1));
    return 1 / (1 + std::exp(rival - logits[token]));
}

Accepted accept_greedy(const std::vector<Token> & drafted, const std::function<Token(int)> & choose) {
    Accepted result{0, choose(0)};
    while (result.count < static_cast<int>(drafted.size()) &&
           drafted[static_cast<size_t>(result.count)] == result.bonus) {
        result.bonus = choose(++result.count);
    }
    return result;
}

int survivors(const std::vector<double> & survival, double u, int drafted) {
    int count = 0;
    while (count < drafted && count < static_cast<int>(survival.size()) && survival[count] > u) {
        ++count;
    }
    return count;
}

Cut cut_output(const std::vector<Token> & tokens, int remaining, const std::unordered_set<Token> & stops) {
    const int n = static_cast<int>(tokens.size());
    for (int i = 0; i < n; ++i) {
        if (stops.count(tokens[i]) != 0) {
            return {i + 1, Finish::stop};
        }
        if (i + 1 == remaining) {
            return {i + 1, Finish::length};
        }
    }
    return {n, Finish::none};
}

int worth_verifying(const std::vector<Token> & drafted, const std::unordered_set<Token> & stops) {
    const auto ends = [&](Token token) { return stops.count(token) != 0; };
    const auto end = std::find_if(drafted.begin(), drafted.end(), ends);
    return static_cast<int>(end - drafted.begin()) + (end != drafted.end() ? 1 : 0);
}

std::vector<CellRun> later_cells(const std::vector<std::int32_t> & positions,
                                 const std::vector<std::int64_t> & cells, int per_stream) {
    std::vector<CellRun> runs;
    std::vector<std::int64_t> later;
    for (size_t row = 0; row < positions.size(); ++row) {
        const size_t start = row - row % static_cast<size_t>(per_stream);
        const size_t end = std::min(start + static_cast<size_t>(per_stream), positions.size());
        later.clear();
        for (size_t other = start; other < end; ++other) {
            if (positions[other] > positions[row]) {
                later.push_back(cells[other]);
            }
        }
        std::sort(later.begin(), later.end());
        for (size_t i = 0; i < later.size(); ++i) {
            if (i > 0 && later[i] == later[i - 1] + 1) {
                ++runs.back().count;
            } else {
                runs.push_back({static_cast<std::int64_t>(row), later[i], 1});
            }
        }
    }
    return runs;
}

} // namespace dflash
