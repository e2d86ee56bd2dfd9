#include "verdict.h"

#include "rejection.h"

#include <stdexcept>

namespace dflash {

namespace {

Accepted accepted(Sampler & sampler, const DraftRequest & request, const std::function<Row(int)> & row,
                  const std::function<Token(int)> & choose) {
    if (!sampler.rejects()) {
        return accept_greedy(request.drafted, choose);
    }
    const auto at = [&](int i, Purpose purpose) { return sampler.uniform_at(row(i).position, purpose); };
    return accept_drawn(request.drafted, request.q,
                        {[&](int i) { return sampler.distribution(row(i)); }, choose,
                         [&](int i) { return at(i, Purpose::accept); },
                         [&](int i) { return at(i, Purpose::residual); },
                         [&](int i, Token token) { return sampler.settle(row(i), token); }});
}

} // namespace

Verdict judge(Sampler & sampler, const DraftRequest & request, int n_vocab,
              const std::function<const float *(int)> & logits, const std::unordered_set<Token> & stops,
              std::optional<int> forced) {
    const std::vector<Token> & drafted = request.drafted;
    const auto row = [&](int i) { return Row{logits(i), n_vocab, request.pos + 1 + i, drafted.data(), i}; };
    const auto choose = [&](int i) {
        const Token before = i > 0 ? drafted[static_cast<size_t>(i) - 1] : request.anchor;
        // the text ends there: what would follow is cut off
        return i > 0 && stops.count(before) != 0 ? before : sampler.settle(row(i), sampler.choose(row(i)));
    };
    const Accepted taken =
        forced ? Accepted{*forced, choose(*forced)} : accepted(sampler, request, row, choose);
    Verdict verdict;
    verdict.accepted = taken.count;
    verdict.tokens.assign(drafted.begin(), drafted.begin() + taken.count);
    if (taken.bonus >= 0) {
        verdict.tokens.push_back(taken.bonus);
    } else {
        const Row nothing = row(taken.count);
        if (argmax(nothing.logits, nothing.n) < 0) {
            throw std::runtime_error("the target's logits are not numbers; its file may be damaged");
        }
        verdict.problem = sampler.why_nothing();
    }
    return verdict;
}

} // namespace dflash
