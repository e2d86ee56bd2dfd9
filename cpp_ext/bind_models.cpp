// Models and their contexts.
#include "bindings.h"
#include "memory_trial.h"
#include "target.h"

#include <algorithm>
#include <pybind11/functional.h>

namespace dflash {

namespace {

// One decode outside of a session, for tests and diagnosis.
void evaluate(Context & context, const std::vector<Token> & tokens, llama_pos pos, llama_seq_id seq) {
    const int n = static_cast<int>(tokens.size());
    if (n > context.params().n_outputs || pos < 0 || pos > context.params().n_ctx - n || seq < 0 ||
        seq >= context.params().n_seq) {
        throw std::invalid_argument(std::to_string(n) + " tokens at position " + std::to_string(pos) +
                                    " do not fit this context");
    }
    TokenBatch batch;
    for (const Token token : tokens) {
        if (token < 0 || token >= context.model().n_vocab()) {
            throw std::invalid_argument("token " + std::to_string(token) + " is outside the vocabulary");
        }
        batch.add(token, pos + batch.size(), seq, true);
    }
    context.decode(batch.view(), "evaluating");
}

// The types that llama.cpp's own tools take for a cache; any other may end the process.
ggml_type cache_type(const std::string & name, int type) {
    static const std::vector<ggml_type> known = {
        GGML_TYPE_F32,  GGML_TYPE_F16,    GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0,
        GGML_TYPE_Q4_1, GGML_TYPE_IQ4_NL, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1,
    };
    if (std::find(known.begin(), known.end(), static_cast<ggml_type>(type)) == known.end()) {
        throw std::invalid_argument(name + " is " + std::to_string(type) +
                                    ", expected a ggml_type that llama.cpp takes for caches");
    }
    return static_cast<ggml_type>(type);
}

// llama.cpp ends the process for any other.
llama_flash_attn_type flash_attention(int type) {
    if (type < LLAMA_FLASH_ATTN_TYPE_AUTO || type > LLAMA_FLASH_ATTN_TYPE_ENABLED) {
        throw std::invalid_argument("flash_attn is " + std::to_string(type) +
                                    ", expected -1 (as it pays), 0 (off) or 1 (on)");
    }
    return static_cast<llama_flash_attn_type>(type);
}

void bind_contexts(py::module_ & m) {
    py::class_<ContextParams>(m, "ContextParams")
        .def(py::init<>())
        .def_readwrite("n_ctx", &ContextParams::n_ctx)
        .def_readwrite("n_batch", &ContextParams::n_batch)
        .def_readwrite("n_ubatch", &ContextParams::n_ubatch)
        .def_readwrite("n_seq", &ContextParams::n_seq)
        .def_readwrite("n_rollback", &ContextParams::n_rollback)
        .def_readwrite("n_outputs", &ContextParams::n_outputs)
        .def_readwrite("n_threads", &ContextParams::n_threads)
        .def_readwrite("n_threads_batch", &ContextParams::n_threads_batch)
        .def_readwrite("unified", &ContextParams::unified)
        .def_readwrite("window", &ContextParams::window)
        .def_property(
            "type_k", [](const ContextParams & params) { return static_cast<int>(params.type_k); },
            [](ContextParams & params, int type) { params.type_k = cache_type("type_k", type); })
        .def_property(
            "type_v", [](const ContextParams & params) { return static_cast<int>(params.type_v); },
            [](ContextParams & params, int type) { params.type_v = cache_type("type_v", type); })
        .def_property(
            "type_kv", [](const ContextParams & params) { return static_cast<int>(params.type_k); },
            [](ContextParams & params, int type) {
                params.type_k = params.type_v = cache_type("type_kv", type);
            })
        .def_property(
            "flash_attn", [](const ContextParams & params) { return static_cast<int>(params.flash_attn); },
            [](ContextParams & params, int type) { params.flash_attn = flash_attention(type); });
    py::class_<Context, std::shared_ptr<Context>>(m, "Context")
        .def(py::init<std::shared_ptr<Model>, const ContextParams &>(), py::arg("model").none(false),
             py::arg("params"), release_gil())
        .def_property_readonly("n_rollback", &Context::n_rollback)
        .def_property_readonly("buffers", &buffers_of)
        .def("truncate", &Context::truncate, py::arg("seq"), py::arg("pos"))
        .def(
            "evaluate",
            [](Context & context, const std::vector<Token> & tokens, llama_pos pos, llama_seq_id seq) {
                evaluate(context, tokens, pos, seq);
                return copy_rows(context.logits(0), static_cast<py::ssize_t>(tokens.size()),
                                 context.model().n_vocab());
            },
            py::arg("tokens"), py::arg("pos"), py::arg("seq") = 0,
            "Decode tokens in one batch and return the logits after each, [len(tokens), n_vocab].");
    py::class_<Target, std::shared_ptr<Target>>(m, "Target")
        .def(py::init<std::shared_ptr<Context>, std::vector<int>>(), py::arg("context").none(false),
             py::arg("taps"))
        .def_property_readonly("depth", [](const Target & target) { return target.context().n_rollback(); })
        .def_property_readonly("sequences",
                               [](const Target & target) { return target.context().params().n_seq; })
        .def("reshape", &Target::reshape, py::arg("n_rollback"), release_gil())
        .def("pretend_room", &Target::pretend_room, py::arg("snapshots"))
        .def(
            "features",
            [](const Target & target, int tap, int rows) {
                if (tap < 0 || tap >= target.n_taps() || rows < 0 || rows > target.context().rows()) {
                    throw std::out_of_range("no such tap or rows");
                }
                return copy_rows(target.features(tap), rows, target.n_embd());
            },
            py::arg("tap"), py::arg("rows"), "Layer inputs of the last decode, [rows, n_embd].");
}

} // namespace

void bind_models(py::module_ & m) {
    py::class_<Model, std::shared_ptr<Model>>(m, "Model")
        .def(py::init([](const std::string & path, int n_gpu_layers, std::vector<std::string> names,
                         std::function<bool(float)> progress, bool mmap) {
                 return std::make_shared<Model>(
                     path, ModelParams{n_gpu_layers, std::move(names), std::move(progress), mmap});
             }),
             py::arg("path"), py::kw_only(), py::arg("n_gpu_layers") = 0,
             py::arg("devices") = std::vector<std::string>{}, py::arg("progress") = nullptr,
             py::arg("mmap") = true, release_gil())
        .def_property_readonly("arch", &Model::arch)
        .def_property_readonly("description", &Model::description)
        .def_property_readonly("n_vocab", &Model::n_vocab)
        .def_property_readonly("n_embd", &Model::n_embd)
        .def_property_readonly("n_layer", &Model::n_layer)
        .def_property_readonly("n_ctx_train", &Model::n_ctx_train)
        .def_property_readonly("has_state", &Model::has_state)
        .def_property_readonly("taps", &Model::taps)
        .def_property_readonly("end_tokens", &Model::end_tokens)
        .def_property_readonly("bos", [](const Model & model) { return llama_vocab_bos(model.vocab()); })
        .def_property_readonly("eos", [](const Model & model) { return llama_vocab_eos(model.vocab()); })
        .def("special_tokens",
             [](const Model & model) {
                 std::vector<std::tuple<Token, py::bytes, bool>> tokens;
                 for (const Model::Special & special : model.special_tokens()) {
                     tokens.emplace_back(special.id, py::bytes(special.text), special.control);
                 }
                 return tokens;
             })
        .def("meta", &Model::meta, py::arg("key"))
        .def("tokenize", &Model::tokenize, py::arg("text"), py::arg("add_special"), py::arg("parse_special"))
        .def(
            "piece",
            [](const Model & model, Token token, bool special) {
                return py::bytes(model.piece(token, special));
            },
            py::arg("token"), py::arg("special") = false);
    py::class_<Vocabulary>(m, "Vocabulary")
        .def(py::init<const std::string &>(), py::arg("path"), release_gil())
        .def_property_readonly("n_vocab", &Vocabulary::n_vocab)
        .def("tokenize", &Vocabulary::tokenize, py::arg("text"), release_gil());
    bind_contexts(m);
}

} // namespace dflash
