// A loaded GGUF: weights, metadata and vocabulary.
#pragma once

#include "decide.h"
#include "llama.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace dflash {

struct ModelParams {
    int n_gpu_layers = 0;                // -1: all
    std::vector<std::string> devices;    // empty: llama.cpp's choice
    std::function<bool(float)> progress; // 0..1; false stops the load
    bool mmap = true;                    // false: copied into memory, in large pages if there are any
    bool vocab_only = false;             // see Vocabulary
    bool no_alloc = false;               // see MemoryTrial
};

class Model {
  public:
    // Throws std::runtime_error with llama.cpp's own words if the file does not load, std::invalid_argument
    // for an unknown device.
    Model(const std::string & path, const ModelParams & params);

    llama_model * get() const { return model_.get(); }
    const llama_vocab * vocab() const { return llama_model_get_vocab(get()); }
    bool mapped() const { return mapped_; } // whether its weights on the host are pages of the file

    std::string arch() const { return meta("general.architecture").value_or(""); }
    std::string description() const;
    std::optional<std::string> meta(const std::string & key) const;
    int n_vocab() const { return llama_vocab_n_tokens(vocab()); }
    int n_embd() const { return llama_model_n_embd(get()); }
    int n_layer() const { return llama_model_n_layer(get()); }
    int n_ctx_train() const { return llama_model_n_ctx_train(get()); }
    bool has_state() const { return llama_model_is_hybrid(get()) || llama_model_is_recurrent(get()); }
    bool uses_mrope() const { return llama_model_rope_type(get()) == LLAMA_ROPE_TYPE_MROPE; }

    // DFlash drafters only: layers of the target whose inputs are read; empty for any other model.
    std::vector<int> taps() const;

    std::vector<Token> tokenize(const std::string & text, bool add_special, bool parse_special) const;
    // Raw bytes of a token, which may be a part of a character. Special tokens give their text if `special`.
    std::string piece(Token token, bool special) const;
    std::vector<Token> end_tokens() const;

    struct Special {
        Token id;
        std::string text;
        bool control; // false: a token of the user's own, such as <think>, whose text is shown
    };
    std::vector<Special> special_tokens() const;

  private:
    std::unique_ptr<llama_model, void (*)(llama_model *)> model_;
    bool mapped_;
};

// A GGUF's vocabulary without the weights. No Model: a context for one would end the process.
class Vocabulary {
  public:
    // Throws std::runtime_error as Model does.
    explicit Vocabulary(const std::string & path) : model_(path, ModelParams{0, {}, nullptr, true, true}) {}

    int n_vocab() const { return model_.n_vocab(); }

    // Ids of a text, its special tokens parsed.
    std::vector<Token> tokenize(const std::string & text) const { return model_.tokenize(text, false, true); }

  private:
    Model model_;
};

} // namespace dflash
