// Finds the strings that end an answer, in bytes that come piece by piece.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dflash {

// The first string to be complete ends the text; of several that are complete at the same byte, the longest.
// So what is found does not depend on how the bytes are cut into pieces. Bytes and characters agree: no
// character of UTF-8 begins inside another.
class StopStrings {
  public:
    StopStrings() = default;
    // Throws std::invalid_argument for an empty string.
    explicit StopStrings(const std::vector<std::string> & strings);

    // Read bytes up to the end of a stop string, or all. Appends to `text` what is known to stand before any
    // stop string; returns whether one is complete. After that nothing more may be read.
    bool read(std::string_view bytes, std::string & text);

    // The longest end of the text read so far that may begin a stop string; not in any `text` yet.
    const std::string & held() const { return held_; }

  private:
    // Knuth, Morris and Pratt (1977): `borders[n]` is the longest proper end of the first n bytes that the
    // string begins with, `matched` how many bytes of the string the text ends with.
    struct Pattern {
        std::string string;
        std::vector<size_t> borders;
        size_t matched = 0;

        void step(char byte);
        bool complete() const { return matched == string.size(); }
    };

    std::vector<Pattern> patterns_;
    std::string held_;
};

} // namespace dflash
