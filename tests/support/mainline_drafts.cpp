// What mainline llama.cpp drafts, for tests/regenerate_drafts.py, which compiles it against the pinned sources.
//
//     mainline_drafts TARGET DRAFT TYPE N_MAX < texts
//
// A line of stdin is a text in token ids, its last token the anchor; a line of stdout is the draft behind it.
#include "common.h"
#include "llama.h"
#include "speculative.h"

#include <iostream>
#include <sstream>
#include <string>

int main(int argc, char ** argv) {
    if (argc != 5) {
        std::cerr << "expected TARGET DRAFT TYPE N_MAX\n";
        return 1;
    }
    common_init();
    llama_backend_init();
    common_params params;
    params.model.path = argv[1];
    params.n_ctx = 256;
    params.n_predict = 64;
    params.warmup = false;
    params.fit_params = false;
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1;
    params.cache_type_k = params.cache_type_v = GGML_TYPE_F32;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    params.speculative.types = {common_speculative_type_from_name(argv[3])};
    common_params_speculative_draft & draft = params.speculative.draft;
    draft.mparams.path = argv[2];
    draft.n_max = std::stoi(argv[4]);
    draft.cpuparams = draft.cpuparams_batch = params.cpuparams;
    draft.cache_type_k = draft.cache_type_v = GGML_TYPE_F32;
    draft.backend_sampling = false;
    const auto limits = common_speculative_get_output_limits(params.n_batch, 1, draft.n_max);
    params.n_outputs_max = limits.total;
    params.n_outputs_max_per_seq = limits.per_seq;

    auto target = common_init_from_params(params);
    common_params own = common_base_params_to_speculative(params);
    own.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    auto made = common_speculative_init_from_params(own, target->model(), target->context());
    draft.ctx_tgt = target->context();
    draft.ctx_dft = made->context();
    common_speculative * drafter = common_speculative_init(params.speculative, 1);
    if (!drafter) {
        std::cerr << "no drafter\n";
        return 1;
    }
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line);
        llama_tokens text;
        for (llama_token token; words >> token;) {
            text.push_back(token);
        }
        const llama_token anchor = text.back();
        text.pop_back();
        llama_memory_clear(llama_get_memory(draft.ctx_tgt), true);
        llama_memory_clear(llama_get_memory(draft.ctx_dft), true);
        common_batch batch(draft.ctx_tgt);
        for (size_t i = 0; i < text.size(); ++i) {
            batch.add(text[i], static_cast<llama_pos>(i), 0, false);
        }
        if (llama_process(draft.ctx_tgt, LLAMA_PROCESS_TYPE_DECODE, batch.get()) != 0 ||
            !common_speculative_process(drafter, batch)) {
            std::cerr << "the text could not be read\n";
            return 1;
        }
        common_speculative_begin(drafter, 0, text);
        llama_tokens drafted;
        common_speculative_get_draft_params(drafter, 0) = {
            true, draft.n_max, static_cast<llama_pos>(text.size()), anchor, &text, &drafted};
        common_speculative_draft(drafter);
        for (size_t i = 0; i < drafted.size(); ++i) {
            std::cout << (i ? " " : "") << drafted[i];
        }
        std::cout << std::endl;
    }
    common_speculative_free(drafter);
}
