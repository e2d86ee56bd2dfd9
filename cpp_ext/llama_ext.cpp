#include "llama_ext.h"

namespace dflash {

std::vector<std::string> missing_symbols() {
    std::vector<std::string> missing;
    const auto check = [&](const char * name, auto * function) {
        // volatile: the compiler must not fold the test of a function's address to true
        void * volatile address = reinterpret_cast<void *>(function);
        if (address == nullptr) {
            missing.emplace_back(name);
        }
    };
#define DFLASH_CHECK(name) check(#name, &name)
    DFLASH_CHECK(llama_set_embeddings_layer_inp);
    DFLASH_CHECK(llama_get_embeddings_layer_inp);
    DFLASH_CHECK(llama_model_target_layer_ids);
    DFLASH_CHECK(llama_model_target_layer_ids_n);
    DFLASH_CHECK(llama_model_dflash_selector_top_k);
    DFLASH_CHECK(llama_set_embeddings_nextn);
    DFLASH_CHECK(llama_get_embeddings_nextn);
    DFLASH_CHECK(llama_get_memory_breakdown);
    DFLASH_CHECK(llama_internal_get_tensor_map);
    DFLASH_CHECK(llama_quant_init);
    DFLASH_CHECK(llama_quant_free);
    DFLASH_CHECK(llama_quant_model_from_metadata);
    DFLASH_CHECK(llama_quant_tensor_allows_quantization);
    DFLASH_CHECK(llama_quant_compute_types);
#undef DFLASH_CHECK
    return missing;
}

} // namespace dflash
