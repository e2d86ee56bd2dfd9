#include "target.h"

#include "llama_ext.h"

#include <stdexcept>
#include <unordered_set>

namespace dflash {

namespace {

// Architectures of the pinned llama.cpp whose graphs publish every layer's input; any other ends the process
// at the next decode. From `t_layer_inp` in its src/models/.
const std::unordered_set<std::string> publishing = {
    "qwen3",       "qwen3moe", "qwen3next",    "qwen35",        "qwen35moe",  "llama",
    "llama-embed", "gpt-oss",  "gemma4",       "lfm2",          "lfm2moe",    "deepseek4",
    "minimax-m2",  "mimo2",    "hunyuan_vl",   "hunyuan-dense", "nemotron_h", "nemotron_h_moe",
    "bailingmoe3", "nanbeige", "muse-glimmer", "minimax-01",
};

} // namespace

bool publishes_features(const std::string & architecture) {
    return publishing.count(architecture) != 0;
}

Target::Target(std::shared_ptr<Context> context, std::vector<int> taps)
    : context_(std::move(context)), taps_(std::move(taps)) {
    if (taps_.empty()) {
        return;
    }
    const Model & model = context_->model();
    if (!publishes_features(model.arch())) {
        throw std::invalid_argument("target architecture '" + model.arch() +
                                    "' does not publish its layers' inputs");
    }
    for (const int tap : taps_) {
        if (tap < 0 || tap >= model.n_layer()) {
            throw std::invalid_argument("the drafter reads the input of layer " + std::to_string(tap) +
                                        ", the target has layers 0 to " +
                                        std::to_string(model.n_layer() - 1));
        }
        llama_set_embeddings_layer_inp(context_->get(), static_cast<uint32_t>(tap), true);
    }
}

const float * Target::features(int tap) const {
    return llama_get_embeddings_layer_inp(context_->get(), static_cast<uint32_t>(taps_[tap]));
}

} // namespace dflash
