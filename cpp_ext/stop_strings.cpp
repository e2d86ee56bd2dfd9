#include "stop_strings.h"

#include <algorithm>
#include <stdexcept>

namespace dflash {

StopStrings::StopStrings(const std::vector<std::string> & strings) {
    for (const std::string & string : strings) {
        if (string.empty()) {
            throw std::invalid_argument("a stop string is empty");
        }
        Pattern pattern{string, {0}, 0};
        for (const char byte : string.substr(1)) {
            pattern.borders.push_back(pattern.matched);
            pattern.step(byte);
        }
        pattern.borders.push_back(pattern.matched);
        pattern.matched = 0;
        patterns_.push_back(std::move(pattern));
    }
}

void StopStrings::Pattern::step(char byte) {
    while (matched > 0 && string[matched] != byte) {
        matched = borders[matched];
    }
    matched += string[matched] == byte ? 1 : 0;
}

bool StopStrings::read(std::string_view bytes, std::string & text) {
    if (patterns_.empty()) {
        text.append(bytes);
        return false;
    }
    for (const char byte : bytes) {
        held_ += byte;
        size_t kept = 0;
        size_t found = 0;
        for (Pattern & pattern : patterns_) {
            pattern.step(byte);
            kept = std::max(kept, pattern.matched);
            found = std::max(found, pattern.complete() ? pattern.matched : 0);
        }
        const size_t sure = held_.size() - (found > 0 ? found : kept);
        text.append(held_, 0, sure);
        held_.erase(0, sure);
        if (found > 0) {
            held_.clear();
            return true;
        }
    }
    return false;
}

} // namespace dflash
