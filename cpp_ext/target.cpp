#include "target.h"

#include "llama_ext.h"
#include "state.h"

#include <algorithm>
#include <cstring>
#include <map>
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

FeatureRows newest(FeatureRows rows, llama_pos end, int window) {
    const llama_pos first = window > 0 ? std::max(end - window, 0) : 0;
    const int skipped = std::clamp(first - rows.pos, 0, rows.count);
    rows.pos += skipped;
    rows.row += skipped;
    rows.count -= skipped;
    return rows;
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
    }
    publish(true);
}

Context & Target::context() const {
    if (!context_) {
        throw std::runtime_error("no memory was left for the target's context; load the pair again, with a "
                                 "smaller context (-c)");
    }
    return *context_;
}

void Target::publish(bool features) {
    if (features == publishes_) {
        return;
    }
    publishes_ = features;
    for (const int tap : taps_) {
        llama_set_embeddings_layer_inp(context_->get(), static_cast<uint32_t>(tap), features);
    }
}

const float * Target::features(int tap) const {
    if (rows_of_ != context_->decodes() || rows_.empty()) {
        rows_.clear();
        for (const int layer : taps_) {
            rows_.push_back(llama_get_embeddings_layer_inp(context_->get(), static_cast<uint32_t>(layer)));
        }
        rows_of_ = context_->decodes();
    }
    return rows_[static_cast<size_t>(tap)];
}

void Target::copy_features(int row, float * to) const {
    const size_t width = static_cast<size_t>(n_embd());
    for (int tap = 0; tap < n_taps(); ++tap) {
        std::memcpy(to + static_cast<size_t>(tap) * width, features(tap) + static_cast<size_t>(row) * width,
                    width * sizeof(float));
    }
}

void Target::reshape(int n_rollback) {
    ContextParams params = context_->params();
    if (n_rollback == params.n_rollback) {
        return;
    }
    std::map<llama_seq_id, Bytes> states;
    for (llama_seq_id seq = 0; seq < params.n_seq; ++seq) {
        if (held(*context_, seq) > 0) {
            states[seq] = save_state(*context_, seq, Part::all);
        }
    }
    const std::shared_ptr<Model> model = context_->shared_model();
    const ThreadGovernor governor = context_->governor();
    const int before = params.n_rollback;
    rows_.clear();
    context_.reset(); // first, so that both never take memory at once
    const auto open = [&](int depth) {
        if (depth > room_) {
            throw std::runtime_error("a context of " + std::to_string(depth) + " snapshots has no room");
        }
        params.n_rollback = depth;
        context_ = std::make_shared<Context>(model, params);
    };
    std::string failure;
    try {
        open(n_rollback);
    } catch (const std::exception & error) {
        failure = error.what();
        open(before);
    }
    for (const auto & [seq, bytes] : states) {
        if (!load_state(*context_, seq, bytes, Part::all)) {
            throw std::runtime_error("llama.cpp does not take back the state of sequence " +
                                     std::to_string(seq));
        }
    }
    context_->govern(governor);
    const bool published = publishes_;
    publishes_ = false; // a new context gives out none
    publish(published);
    if (!failure.empty()) {
        throw std::runtime_error(failure);
    }
}

} // namespace dflash
