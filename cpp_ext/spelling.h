// What the tokens of a vocabulary spell, byte by byte.
#pragma once

#include "decide.h"
#include "llama.h"

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace dflash {

// Well-formed UTF-8 (Unicode 15, table 3-7), as far as a text has come: no overlong forms, no surrogates.
class Utf8 {
  public:
    // Goes on with some bytes; false if no text can.
    bool take(std::string_view bytes);

    bool complete() const { return missing_ == 0; }

  private:
    int missing_ = 0; // bytes of the last character
    unsigned char low_ = 0x80;
    unsigned char high_ = 0xbf; // bounds of the next one
};

class Spelling {
  public:
    explicit Spelling(const llama_vocab * vocab);

    std::string_view of(Token token) const {
        const size_t at = start_[static_cast<size_t>(token)];
        return std::string_view(bytes_).substr(at, start_[static_cast<size_t>(token) + 1] - at);
    }
    // Whether it is whole characters.
    bool whole(Token token) const { return whole_[static_cast<size_t>(token)]; }
    // The token of an ASCII character alone; -1: there is none.
    Token alone(int byte) const { return alone_[static_cast<size_t>(byte)]; }

  private:
    std::string bytes_;
    std::vector<size_t> start_;
    std::vector<bool> whole_;
    std::array<Token, 128> alone_;
};

} // namespace dflash
