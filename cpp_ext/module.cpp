// dflash_gguf._core: the Python face of this folder. Checks and conversions only; the work is elsewhere.
#include "devices.h"
#include "llama_ext.h"
#include "log.h"
#include "model_drafter.h"
#include "quantize.h"
#include "session.h"
#include "stand_ins.h"

#include <algorithm>
#include <pybind11/functional.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

namespace py = pybind11;
using namespace dflash;

namespace {

using release_gil = py::call_guard<py::gil_scoped_release>;

py::array_t<float> copy_rows(const float * from, py::ssize_t rows, py::ssize_t width) {
    return py::array_t<float>({rows, width}, from);
}

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

void bind_decisions(py::module_ & m) {
    py::enum_<Finish>(m, "Finish")
        .value("none", Finish::none)
        .value("stop", Finish::stop)
        .value("length", Finish::length);
    m.def("plan_width", &plan_width, py::arg("block"), py::arg("remaining"));
    m.def("argmax", [](const py::array_t<float, py::array::c_style | py::array::forcecast> & values) {
        return argmax(values.data(), static_cast<int>(values.size()));
    });
    m.def("accept_greedy", [](const std::vector<Token> & drafted, const std::function<Token(int)> & choose) {
        const Accepted taken = accept_greedy(drafted, choose);
        return py::make_tuple(taken.count, taken.bonus);
    });
    m.def("survivors", &survivors, py::arg("survival"), py::arg("u"), py::arg("drafted"));
    m.def(
        "later_cells",
        [](const std::vector<std::int32_t> & positions, const std::vector<std::int64_t> & cells,
           int per_stream) {
            if (positions.size() != cells.size() || per_stream < 1) {
                throw std::invalid_argument("one position and one cell per row, streams of 1 row or more");
            }
            std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>> runs;
            for (const CellRun & run : later_cells(positions, cells, per_stream)) {
                runs.emplace_back(run.row, run.first, run.count);
            }
            return runs;
        },
        py::arg("positions"), py::arg("cells"), py::arg("per_stream"));
    m.def("cut_output",
          [](const std::vector<Token> & tokens, int remaining, const std::unordered_set<Token> & stops) {
              const Cut cut = cut_output(tokens, remaining, stops);
              return py::make_tuple(cut.keep, cut.finish);
          });
}

void bind_sampling(py::module_ & m) {
    py::class_<Sampling>(m, "Sampling")
        .def(py::init<>())
        .def_readwrite("temperature", &Sampling::temperature)
        .def_readwrite("top_k", &Sampling::top_k)
        .def_readwrite("typical", &Sampling::typical)
        .def_readwrite("top_p", &Sampling::top_p)
        .def_readwrite("min_p", &Sampling::min_p)
        .def_readwrite("repeat", &Sampling::repeat)
        .def_readwrite("frequency", &Sampling::frequency)
        .def_readwrite("presence", &Sampling::presence)
        .def_readwrite("last_n", &Sampling::last_n)
        .def_readwrite("bias", &Sampling::bias)
        .def_readwrite("seed", &Sampling::seed);
    m.def("gumbel", &gumbel, py::arg("seed"), py::arg("position"), py::arg("token"));
    m.def(
        "choose",
        [](const Sampling & sampling,
           const py::array_t<float, py::array::c_style | py::array::forcecast> & logits,
           std::int32_t position, const std::vector<Token> & text, const std::vector<Token> & after) {
            const int n = static_cast<int>(logits.size());
            const auto inside = [n](Token token) { return token >= 0 && token < n; };
            if (!std::all_of(text.begin(), text.end(), inside) ||
                !std::all_of(after.begin(), after.end(), inside) ||
                !std::all_of(sampling.bias.begin(), sampling.bias.end(),
                             [&](const auto & entry) { return inside(entry.first); })) {
                throw std::invalid_argument("a token is outside the vocabulary of " + std::to_string(n));
            }
            return Sampler(sampling, text)
                .choose(logits.data(), n, position, after.data(), static_cast<int>(after.size()));
        },
        py::arg("sampling"), py::arg("logits"), py::arg("position"), py::arg("text") = std::vector<Token>{},
        py::arg("after") = std::vector<Token>{}, "The token a sampler chooses from logits [n_vocab].");
}

void bind_model(py::module_ & m) {
    py::class_<Model, std::shared_ptr<Model>>(m, "Model")
        .def(py::init([](const std::string & path, int n_gpu_layers, std::vector<std::string> names,
                         std::function<bool(float)> progress) {
                 return std::make_shared<Model>(
                     path, ModelParams{n_gpu_layers, std::move(names), std::move(progress)});
             }),
             py::arg("path"), py::kw_only(), py::arg("n_gpu_layers") = 0,
             py::arg("devices") = std::vector<std::string>{}, py::arg("progress") = nullptr, release_gil())
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
        .def("meta", &Model::meta)
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
        .def_property(
            "type_kv", [](const ContextParams & params) { return static_cast<int>(params.type_k); },
            [](ContextParams & params, int type) {
                if (type != GGML_TYPE_F32 && type != GGML_TYPE_F16 && type != GGML_TYPE_BF16 &&
                    type != GGML_TYPE_Q8_0) {
                    throw std::invalid_argument("type_kv is " + std::to_string(type) +
                                                ", expected f32 (0), f16 (1), q8_0 (8) or bf16 (30)");
                }
                params.type_k = params.type_v = static_cast<ggml_type>(type);
            })
        .def_property(
            "flash_attn", [](const ContextParams & params) { return static_cast<int>(params.flash_attn); },
            [](ContextParams & params, int type) {
                params.flash_attn = static_cast<llama_flash_attn_type>(type);
            });
    py::class_<Context, std::shared_ptr<Context>>(m, "Context")
        .def(py::init<std::shared_ptr<Model>, const ContextParams &>(), py::arg("model").none(false),
             py::arg("params"), release_gil())
        .def_property_readonly("n_rollback", &Context::n_rollback)
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

void bind_drafters(py::module_ & m) {
    py::class_<Drafter, std::shared_ptr<Drafter>>(m, "Drafter");
    py::class_<ModelDrafter, Drafter, std::shared_ptr<ModelDrafter>>(m, "ModelDrafter")
        .def(py::init<std::shared_ptr<Model>, const ContextParams &, std::shared_ptr<Context>, Token,
                      const std::vector<bool> &>(),
             py::arg("model").none(false), py::arg("params"), py::arg("target").none(false), py::arg("mask"),
             py::arg("causal"), release_gil())
        .def("probe", &ModelDrafter::probe, release_gil())
        .def(
            "draft",
            [](ModelDrafter & drafter,
               const std::vector<std::tuple<llama_seq_id, llama_pos, Token, int>> & turns) {
                std::vector<DraftRequest> requests;
                for (const auto & [seq, pos, anchor, count] : turns) {
                    requests.push_back({seq, pos, anchor, count, {}, {}, nullptr});
                }
                drafter.draft(requests);
                std::vector<std::vector<Token>> drafted;
                for (DraftRequest & request : requests) {
                    drafted.push_back(std::move(request.drafted));
                }
                return drafted;
            },
            py::arg("turns"),
            "Draft a block for each (seq, pos, anchor, count); return the drafted tokens of each.")
        .def(
            "block_logits",
            [](ModelDrafter & drafter, llama_seq_id seq, llama_pos pos, Token anchor, int count) {
                std::vector<DraftRequest> request{{seq, pos, anchor, count, {}, {}, nullptr}};
                drafter.draft(request);
                return copy_rows(drafter.block_logits(0), count + 1, drafter.context().model().n_vocab());
            },
            py::arg("seq"), py::arg("pos"), py::arg("anchor"), py::arg("count"),
            "Draft one block and return the logits of all its rows, [count + 1, n_vocab].");
    py::class_<ScriptedDrafter, Drafter, std::shared_ptr<ScriptedDrafter>>(m, "ScriptedDrafter")
        .def(py::init<int>(), py::arg("n_vocab"))
        .def("script", &ScriptedDrafter::script, py::arg("seq"), py::arg("tokens"), py::arg("counts"))
        .def("fail_at", &ScriptedDrafter::fail_at, py::arg("seq"), py::arg("round"))
        .def("injected", &ScriptedDrafter::injected, py::arg("seq"));
    py::class_<SimulatedDrafter, Drafter, std::shared_ptr<SimulatedDrafter>>(m, "SimulatedDrafter")
        .def(py::init<std::vector<double>, std::uint64_t, std::shared_ptr<Drafter>>(), py::arg("survival"),
             py::arg("seed"), py::arg("inner") = nullptr);
}

void bind_session(py::module_ & m) {
    py::class_<Counters>(m, "Counters")
        .def_readonly("prompt_tokens", &Counters::prompt_tokens)
        .def_readonly("injected", &Counters::injected)
        .def_readonly("emitted", &Counters::emitted)
        .def_readonly("rounds", &Counters::rounds)
        .def_readonly("drafting_rounds", &Counters::drafting_rounds)
        .def_readonly("drafted", &Counters::drafted)
        .def_readonly("accepted", &Counters::accepted)
        .def_readonly("drafted_at", &Counters::drafted_at)
        .def_readonly("accepted_at", &Counters::accepted_at)
        .def_readonly("prefill_ns", &Counters::prefill_ns)
        .def_readonly("first_token_ns", &Counters::first_token_ns)
        .def_readonly("last_token_ns", &Counters::last_token_ns);
    py::class_<Times>(m, "Times")
        .def_readonly("total", &Times::total)
        .def_readonly("prefill", &Times::prefill)
        .def_readonly("draft", &Times::draft)
        .def_readonly("verify", &Times::verify)
        .def_readonly("inject", &Times::inject)
        .def_readonly("rollback", &Times::rollback);
    py::class_<Output>(m, "Output")
        .def_readonly("id", &Output::id)
        .def_readonly("tokens", &Output::tokens)
        .def_readonly("finish", &Output::finish);
    py::class_<Session>(m, "Session")
        .def(py::init<std::shared_ptr<Target>, std::shared_ptr<Drafter>, int>(),
             py::arg("target").none(false), py::arg("drafter"), py::arg("max_block"))
        .def(
            "add",
            [](Session & session, std::vector<Token> prompt, int max_tokens, int block,
               std::unordered_set<Token> stops, const Sampling & sampling) {
                return session.add(std::move(prompt), {max_tokens, block, std::move(stops)}, sampling);
            },
            py::arg("prompt"), py::kw_only(), py::arg("max_tokens"), py::arg("block"), py::arg("stops"),
            py::arg("sampling") = Sampling{})
        .def("step", &Session::step, release_gil())
        .def("remove", &Session::remove, py::arg("id"))
        .def("counters", [](const Session & session, llama_seq_id id) { return session.counters(id); })
        .def_property_readonly("times", [](const Session & session) { return session.times(); })
        .def_property_readonly("n_ctx", &Session::n_ctx)
        .def_property_readonly("max_block", &Session::max_block)
        .def_property_readonly("draft_failure", &Session::draft_failure);
}

} // namespace

PYBIND11_MODULE(_core, m) {
    m.def("missing_symbols", &missing_symbols);
    m.def("capture_log", &capture_log, py::arg("verbosity"));
    m.def("supports_gpu_offload", &llama_supports_gpu_offload);
    m.def("system_info", []() { return std::string(llama_print_system_info()); });
    py::class_<Device>(m, "Device")
        .def_readonly("name", &Device::name)
        .def_readonly("description", &Device::description)
        .def_readonly("backend", &Device::backend)
        .def_readonly("kind", &Device::kind)
        .def_readonly("memory_free", &Device::memory_free)
        .def_readonly("memory_total", &Device::memory_total);
    m.def("devices", &devices);
    m.def("publishes_features", &publishes_features, py::arg("architecture"));
    bind_decisions(m);
    bind_sampling(m);
    bind_model(m);
    bind_contexts(m);
    bind_drafters(m);
    bind_session(m);
    bind_quantize(m);
    llama_backend_init();
    capture_log(0);
}
