// llama.cpp functions that libllama exports but llama.h does not declare (its src/llama-ext.h is not
// installed). Weak, so that a library without one of them loads and missing_symbols() can name it.
#pragma once

#include "llama.h"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#define DFLASH_WEAK __attribute__((weak))

DFLASH_WEAK void llama_set_embeddings_layer_inp(llama_context * ctx, uint32_t layer, bool value);
DFLASH_WEAK float * llama_get_embeddings_layer_inp(llama_context * ctx, uint32_t layer);

DFLASH_WEAK const int32_t * llama_model_target_layer_ids(const llama_model * model);
DFLASH_WEAK uint32_t llama_model_target_layer_ids_n(const llama_model * model);
DFLASH_WEAK int32_t llama_model_dflash_selector_top_k(const llama_model * model);

// Rows of n_embd floats that a graph puts out beside its logits: DFlash2's lattice, DSpark's confidences. Not
// masked: a row for each of the batch, whether it asked for logits or not.
DFLASH_WEAK void llama_set_embeddings_nextn(llama_context * ctx, bool value, bool masked);
DFLASH_WEAK float * llama_get_embeddings_nextn(llama_context * ctx);

// Bytes by kind of buffer: tensors of the model, of the context's caches, of its graphs.
struct llama_memory_breakdown_data {
    size_t model = 0;
    size_t context = 0;
    size_t compute = 0;
};

using llama_memory_breakdown = std::map<ggml_backend_buffer_type_t, llama_memory_breakdown_data>;

DFLASH_WEAK llama_memory_breakdown llama_get_memory_breakdown(const llama_context * ctx);

// Every tensor of a model, by name.
DFLASH_WEAK const std::vector<std::pair<std::string, ggml_tensor *>> &
llama_internal_get_tensor_map(const llama_model * model);

struct quantize_state_impl;

struct llama_quant_model_desc {
    const char * architecture;
    uint32_t n_embd;
    uint32_t n_ff;
    uint32_t n_layer;
    uint32_t n_head;
    uint32_t n_head_kv;
    uint32_t n_expert;
    uint32_t n_embd_head_k;
    uint32_t n_embd_head_v;
};

DFLASH_WEAK quantize_state_impl * llama_quant_init(const llama_model * model,
                                                   const llama_model_quantize_params * params);
DFLASH_WEAK void llama_quant_free(quantize_state_impl * state);
DFLASH_WEAK llama_model * llama_quant_model_from_metadata(const llama_quant_model_desc * desc);
DFLASH_WEAK bool llama_quant_tensor_allows_quantization(const quantize_state_impl * state,
                                                        const ggml_tensor * tensor);
DFLASH_WEAK void llama_quant_compute_types(quantize_state_impl * state, llama_ftype ftype,
                                           ggml_tensor ** tensors, ggml_type * result_types,
                                           size_t n_tensors);

namespace dflash {

// Names of the functions above that the loaded libllama does not have; empty when all resolve.
std::vector<std::string> missing_symbols();

} // namespace dflash
