#include "model.h"

#include "ggml-backend.h"
#include "huge_pages.h"
#include "llama_ext.h"
#include "log.h"
#include "mapped_pages.h"

#include <stdexcept>

namespace dflash {

namespace {

std::vector<ggml_backend_dev_t> find_devices(const std::vector<std::string> & names) {
    std::vector<ggml_backend_dev_t> devices;
    for (const std::string & name : names) {
        ggml_backend_dev_t device = ggml_backend_dev_by_name(name.c_str());
        if (device == nullptr) {
            throw std::invalid_argument("no device named '" + name + "'");
        }
        devices.push_back(device);
    }
    devices.push_back(nullptr); // llama.cpp reads up to the null
    return devices;
}

bool on_progress(float fraction, void * user_data) {
    const auto & report = *static_cast<const std::function<bool(float)> *>(user_data);
    return !report || report(fraction);
}

} // namespace

Model::Model(const std::string & path, const ModelParams & params)
    : model_(nullptr, llama_model_free), mapped_(params.mmap) {
    std::vector<ggml_backend_dev_t> devices = find_devices(params.devices);
    llama_model_params raw = llama_model_default_params();
    raw.n_gpu_layers = params.n_gpu_layers;
    raw.vocab_only = params.vocab_only;
    raw.no_alloc = params.no_alloc;
    if (params.no_alloc || !params.mmap) { // without memory there is nothing to map either
        raw.load_mode = LLAMA_LOAD_MODE_NONE;
    }
    raw.progress_callback = on_progress;
    raw.progress_callback_user_data = const_cast<std::function<bool(float)> *>(&params.progress);
    if (!params.devices.empty()) {
        raw.devices = devices.data();
    }
    clear_errors();
    model_.reset(llama_model_load_from_file(path.c_str(), raw));
    if (!model_) {
        const std::string why = last_errors();
        throw std::runtime_error(why.empty() ? "the load was stopped" : why);
    }
    if (!params.no_alloc && !params.vocab_only) {
        params.mmap ? drop_copied_pages(get()) : use_huge_pages(get());
    }
}

std::string Model::description() const {
    char text[256];
    llama_model_desc(get(), text, sizeof(text));
    return text;
}

std::optional<std::string> Model::meta(const std::string & key) const {
    const int length = llama_model_meta_val_str(get(), key.c_str(), nullptr, 0);
    if (length < 0) {
        return std::nullopt;
    }
    std::string value(static_cast<size_t>(length) + 1, '\0');
    llama_model_meta_val_str(get(), key.c_str(), value.data(), value.size());
    value.resize(static_cast<size_t>(length));
    return value;
}

std::vector<int> Model::taps() const {
    const int32_t * ids = llama_model_target_layer_ids(get());
    return {ids, ids + llama_model_target_layer_ids_n(get())};
}

std::vector<Token> Model::tokenize(const std::string & text, bool add_special, bool parse_special) const {
    std::vector<Token> tokens(text.size() + 2);
    int n = llama_tokenize(vocab(), text.data(), static_cast<int32_t>(text.size()), tokens.data(),
                           static_cast<int32_t>(tokens.size()), add_special, parse_special);
    if (n < 0) {
        tokens.resize(static_cast<size_t>(-n));
        n = llama_tokenize(vocab(), text.data(), static_cast<int32_t>(text.size()), tokens.data(),
                           static_cast<int32_t>(tokens.size()), add_special, parse_special);
    }
    if (n < 0) {
        throw std::runtime_error("the text does not tokenise");
    }
    tokens.resize(static_cast<size_t>(n));
    return tokens;
}

std::string Model::piece(Token token, bool special) const {
    if (token < 0 || token >= n_vocab()) {
        throw std::out_of_range("token " + std::to_string(token) + " is outside the vocabulary of " +
                                std::to_string(n_vocab()));
    }
    std::string text(32, '\0');
    int n = llama_token_to_piece(vocab(), token, text.data(), static_cast<int32_t>(text.size()), 0, special);
    if (n < 0) {
        text.resize(static_cast<size_t>(-n));
        n = llama_token_to_piece(vocab(), token, text.data(), static_cast<int32_t>(text.size()), 0, special);
    }
    text.resize(static_cast<size_t>(n));
    return text;
}

std::vector<Token> Model::end_tokens() const {
    std::vector<Token> tokens;
    for (Token token = 0; token < n_vocab(); ++token) {
        if (llama_vocab_is_eog(vocab(), token)) {
            tokens.push_back(token);
        }
    }
    return tokens;
}

std::vector<Model::Special> Model::special_tokens() const {
    std::vector<Special> tokens;
    for (Token token = 0; token < n_vocab(); ++token) {
        const llama_token_attr attr = llama_vocab_get_attr(vocab(), token);
        if ((attr & (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN | LLAMA_TOKEN_ATTR_USER_DEFINED)) !=
            0) {
            const bool control = (attr & LLAMA_TOKEN_ATTR_USER_DEFINED) == 0;
            tokens.push_back({token, llama_vocab_get_text(vocab(), token), control});
        }
    }
    return tokens;
}

} // namespace dflash
