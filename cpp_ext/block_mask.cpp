#include "block_mask.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace dflash {

namespace {

// The cache that a view, a reshape or a view of those belongs to.
const ggml_tensor * root(const ggml_tensor * tensor) {
    while (tensor->view_src) {
        tensor = tensor->view_src;
    }
    return tensor;
}

// Layer of a tensor `cache_k_l<N>`, else -1.
int key_cache_layer(const char * name) {
    const char * prefix = "cache_k_l";
    return std::strncmp(name, prefix, std::strlen(prefix)) == 0 ? std::atoi(name + std::strlen(prefix)) : -1;
}

template <typename T> std::vector<T> values(const ggml_tensor * tensor, int64_t count) {
    std::vector<T> out(static_cast<size_t>(count));
    ggml_backend_tensor_get(tensor, out.data(), 0, out.size() * sizeof(T));
    return out;
}

bool contains(const std::vector<const ggml_tensor *> & list, const ggml_tensor * item) {
    return std::find(list.begin(), list.end(), item) != list.end();
}

} // namespace

// True where computing must pause after this node, so that the next layer's mask can differ.
bool BlockMask::see(ggml_tensor * node) {
    if (!active_ || !fault_.empty()) {
        return false;
    }
    switch (node->op) {
    case GGML_OP_ROPE:
        positions_ = node->src[1];
        return false;
    case GGML_OP_SET_ROWS:
        return store_of(node);
    case GGML_OP_FLASH_ATTN_EXT:
        attend(node->src[3]);
        return false;
    case GGML_OP_SOFT_MAX:
        attend(node->src[1]);
        return false;
    default:
        return false;
    }
}

bool BlockMask::store_of(const ggml_tensor * node) {
    const ggml_tensor * cache = root(node);
    const int layer = key_cache_layer(cache->name);
    if (layer < 0 || layer >= static_cast<int>(causal_.size())) {
        return false;
    }
    if (layer <= layer_ || passes_ == 0) {
        pass(); // llama.cpp has split the batch: another graph, other masks
    }
    const bool before = layer_ >= 0 && causal_[layer_];
    layer_ = layer;
    cells_ = node->src[1];
    cells_of_stream_ = cache->ne[1];
    return shared_ && before != causal_[layer];
}

void BlockMask::attend(const ggml_tensor * mask) {
    if (!mask || layer_ < 0) {
        return; // a softmax that is no attention
    }
    const bool causal = causal_[layer_];
    if (shared_ && !causal) {
        restore();
    } else if (!shared_ && contains(causal ? unhidden_ : hidden_, mask)) {
        fault_ = "layer " + std::to_string(layer_) + " shares its mask with a layer of another kind";
        return;
    }
    std::vector<const ggml_tensor *> & seen = causal ? hidden_ : unhidden_;
    if (!contains(seen, mask) || (shared_ && causal && !changed_)) {
        seen.push_back(mask);
        if (causal) {
            hide(const_cast<ggml_tensor *>(mask)); // an input of the graph, in place and not read yet
        }
    }
    corrected_ += causal ? 1 : 0;
}

// Mask: [cells, rows of a stream, 1, streams], 0 where a row (query) sees a cell (key).
void BlockMask::hide(ggml_tensor * mask) {
    const int64_t rows = mask->ne[1] * mask->ne[3];
    const bool half = mask->type == GGML_TYPE_F16;
    if (!positions_ || !cells_ || (!half && mask->type != GGML_TYPE_F32) || cells_->type != GGML_TYPE_I64 ||
        positions_->type != GGML_TYPE_I32 || cells_->ne[0] != rows || positions_->ne[0] < rows ||
        !ggml_is_contiguous(mask)) {
        fault_ = "llama.cpp's graph has another form than expected at layer " + std::to_string(layer_);
        return;
    }
    const std::vector<int32_t> positions = values<int32_t>(positions_, rows);
    std::vector<int64_t> cells = values<int64_t>(cells_, rows);
    for (int64_t & cell : cells) {
        cell %= cells_of_stream_; // counted over all streams
    }
    const size_t size = half ? sizeof(ggml_fp16_t) : sizeof(float);
    const std::vector<float> drop(static_cast<size_t>(mask->ne[0]), -INFINITY);
    std::vector<ggml_fp16_t> half_drop(half ? drop.size() : 0);
    ggml_fp32_to_fp16_row(drop.data(), half_drop.data(), static_cast<int64_t>(half_drop.size()));
    const void * from = half ? static_cast<const void *>(half_drop.data()) : drop.data();
    for (const CellRun & run : later_cells(positions, cells, static_cast<int>(mask->ne[1]))) {
        if (run.first < 0 || run.first + run.count > mask->ne[0]) {
            fault_ = "a key of the block lies outside of the mask of layer " + std::to_string(layer_);
            return;
        }
        const size_t offset = static_cast<size_t>(run.row * mask->ne[0] + run.first) * size;
        const size_t bytes = static_cast<size_t>(run.count) * size;
        if (shared_) {
            saved_.push_back({offset, std::vector<char>(bytes)});
            ggml_backend_tensor_get(mask, saved_.back().bytes.data(), offset, bytes);
        }
        ggml_backend_tensor_set(mask, from, offset, bytes);
    }
    changed_ = mask;
}

void BlockMask::restore() {
    for (const Saved & part : saved_) {
        ggml_backend_tensor_set(changed_, part.bytes.data(), part.offset, part.bytes.size());
    }
    saved_.clear();
    changed_ = nullptr;
}

void BlockMask::begin() {
    active_ = true;
    passes_ = corrected_ = 0;
    fault_.clear();
    positions_ = nullptr;
    layer_ = -1;
}

void BlockMask::pass() {
    ++passes_;
    layer_ = -1;
    cells_ = nullptr;
    hidden_.clear();
    unhidden_.clear();
    saved_.clear();
    changed_ = nullptr;
}

void BlockMask::end() {
    active_ = false;
    const int wanted =
        std::max(passes_, 1) * static_cast<int>(std::count(causal_.begin(), causal_.end(), true));
    if (fault_.empty() && corrected_ != wanted) {
        fault_ = "the masks of " + std::to_string(corrected_) +
                 " layers were found in llama.cpp's graph, expected " + std::to_string(wanted);
    }
    if (!fault_.empty()) {
        throw std::runtime_error("drafting with the trained mask failed: " + fault_);
    }
}

} // namespace dflash
