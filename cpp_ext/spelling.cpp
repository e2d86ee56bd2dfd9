#include "spelling.h"

namespace dflash {

bool Utf8::take(std::string_view bytes) {
    for (const char c : bytes) {
        const auto byte = static_cast<unsigned char>(c);
        if (missing_ > 0) {
            if (byte < low_ || byte > high_) {
                return false;
            }
            --missing_;
            low_ = 0x80;
            high_ = 0xbf;
        } else if (byte >= 0x80) {
            if (byte < 0xc2 || byte > 0xf4) {
                return false;
            }
            missing_ = byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3;
            low_ = byte == 0xe0 ? 0xa0 : byte == 0xf0 ? 0x90 : 0x80;
            high_ = byte == 0xed ? 0x9f : byte == 0xf4 ? 0x8f : 0xbf;
        }
    }
    return true;
}

Spelling::Spelling(const llama_vocab * vocab) {
    const int n = llama_vocab_n_tokens(vocab);
    alone_.fill(-1);
    std::string piece(64, '\0');
    for (Token token = 0; token < n; ++token) {
        const auto read = [&] {
            return llama_token_to_piece(vocab, token, piece.data(), static_cast<int>(piece.size()), 0, true);
        };
        int length = read();
        if (length < 0) {
            piece.resize(static_cast<size_t>(-length));
            length = read();
        }
        const std::string_view spelled = std::string_view(piece).substr(0, static_cast<size_t>(length));
        start_.push_back(bytes_.size());
        bytes_ += spelled;
        Utf8 text;
        whole_.push_back(text.take(spelled) && text.complete());
        if (length == 1 && (piece[0] & 0x80) == 0 &&
            llama_vocab_get_attr(vocab, token) == LLAMA_TOKEN_ATTR_NORMAL) {
            alone_[static_cast<size_t>(piece[0])] = token;
        }
    }
    start_.push_back(bytes_.size());
}

} // namespace dflash
