// Kept texts that go to a file, and those that come from one.
#include "log.h"
#include "prefix_store.h"

#include <algorithm>
#include <stdexcept>

namespace dflash {

Kept PrefixStore::copied(const std::vector<Token> & tokens) const {
    int most = 0;
    llama_seq_id slot = -1;
    const Kept * host = nullptr;
    for (const auto & entry : slots_) {
        const int shared = entry.second.sound ? common_prefix(tokens, entry.second.kept.tokens) : 0;
        if (shared > most) {
            most = shared;
            slot = entry.first;
        }
    }
    for (const Kept & kept : host_) {
        if (common_prefix(tokens, kept.tokens) > most) {
            most = common_prefix(tokens, kept.tokens);
            host = &kept;
        }
    }
    if (most == 0) {
        throw std::invalid_argument("no kept text begins like these tokens");
    }
    return host ? *host : copied(slot);
}

void PrefixStore::adopt(Kept kept) {
    const Context & context = caches_.target();
    const int n_vocab = context.model().n_vocab();
    const auto known = [n_vocab](Token token) { return token >= 0 && token < n_vocab; };
    if (!on()) {
        throw std::invalid_argument("keeping prefixes is turned off (prefix_memory is 0)");
    }
    if (kept.tokens.empty() || static_cast<int>(kept.tokens.size()) > context.params().n_ctx ||
        !std::all_of(kept.tokens.begin(), kept.tokens.end(), known)) {
        throw std::invalid_argument("a kept text of " + std::to_string(kept.tokens.size()) +
                                    " tokens, expected 1 to " + std::to_string(context.params().n_ctx) +
                                    " of a vocabulary of " + std::to_string(n_vocab));
    }
    llama_seq_id at = -1;
    for (llama_seq_id id = 0; id < context.params().n_seq; ++id) {
        const auto slot = slots_.find(id);
        if (slot == slots_.end()) {
            at = id;
            break;
        }
        if (!slot->second.in_use && (at < 0 || slot->second.kept.used < slots_.at(at).kept.used)) {
            at = id;
        }
    }
    if (at < 0) {
        throw std::invalid_argument("every sequence is in use; wait for one to end");
    }
    displace(at);
    slots_.erase(at);
    kept.fed = caches_.has_draft() ? kept.fed : static_cast<int>(kept.tokens.size());
    clear_errors();
    if (!caches_.load(at, kept, static_cast<int>(kept.tokens.size()))) {
        caches_.empty(at);
        throw std::invalid_argument("llama.cpp refuses the state: " + last_errors());
    }
    kept.target.clear();
    kept.draft.clear();
    kept.used = ++uses_;
    slots_[at].kept = std::move(kept);
    fit();
}

} // namespace dflash
