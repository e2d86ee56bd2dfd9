// Drafters: the real one and its stand-ins.
#include "bindings.h"
#include "dspark_drafter.h"
#include "lattice_drafter.h"
#include "stand_ins.h"

namespace dflash {

namespace {

using Turn = std::tuple<llama_seq_id, llama_pos, Token, int>;

// With a sampler they are asked for confidences too.
std::vector<DraftRequest> requests_of(const std::vector<Turn> & turns, Sampler * sampler) {
    std::vector<DraftRequest> requests;
    for (const auto & [seq, pos, anchor, count] : turns) {
        requests.push_back({seq, pos, anchor, count, {}, {}, {}, sampler, sampler != nullptr});
    }
    return requests;
}

py::array_t<float> block_logits(ModelDrafter & drafter, llama_seq_id seq, llama_pos pos, Token anchor,
                                int count) {
    std::vector<DraftRequest> request = requests_of({{seq, pos, anchor, count}}, nullptr);
    drafter.draft(request);
    return copy_rows(drafter.block_logits(0), drafter.block_rows(count), drafter.context().model().n_vocab());
}

void bind_models_of_families(py::module_ & m) {
    const auto model = py::arg("model").none(false);
    const auto target = py::arg("target").none(false);
    py::class_<ModelDrafter, Drafter, std::shared_ptr<ModelDrafter>>(m, "ModelDrafter")
        .def(py::init<std::shared_ptr<Model>, const ContextParams &, std::shared_ptr<Context>, Token,
                      const std::vector<bool> &>(),
             model, py::arg("params"), target, py::arg("mask"), py::arg("causal"), release_gil())
        .def("probe", &ModelDrafter::probe, release_gil())
        .def(
            "draft",
            [](ModelDrafter & drafter, const std::vector<Turn> & turns) {
                std::vector<DraftRequest> requests = requests_of(turns, nullptr);
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
            "draft_sampled",
            [](ModelDrafter & drafter, const std::vector<Turn> & turns, const Sampling & sampling) {
                Sampler sampler(sampling, {});
                std::vector<DraftRequest> requests = requests_of(turns, &sampler);
                drafter.draft(requests);
                std::vector<std::pair<std::vector<Token>, std::vector<float>>> drafted;
                for (DraftRequest & request : requests) {
                    drafted.emplace_back(std::move(request.drafted), std::move(request.confidence));
                }
                return drafted;
            },
            py::arg("turns"), py::arg("sampling"),
            "As draft, with a sampler that has seen no text; return the tokens and confidences of each.")
        .def("block_logits", &block_logits, py::arg("seq"), py::arg("pos"), py::arg("anchor"),
             py::arg("count"), "Draft one block and return the logits of all its rows, [rows, n_vocab].");
    py::class_<LatticeDrafter, ModelDrafter, std::shared_ptr<LatticeDrafter>>(m, "LatticeDrafter")
        .def(py::init<std::shared_ptr<Model>, const ContextParams &, std::shared_ptr<Context>, Token,
                      const std::vector<bool> &>(),
             model, py::arg("params"), target, py::arg("mask"), py::arg("causal"), release_gil())
        .def(
            "lattice",
            [](LatticeDrafter & drafter, llama_seq_id seq, llama_pos pos, Token anchor, int count) {
                std::vector<DraftRequest> request = requests_of({{seq, pos, anchor, count}}, nullptr);
                drafter.draft(request);
                return copy_rows(drafter.lattice_row(0), count + 1, drafter.context().model().n_embd());
            },
            py::arg("seq"), py::arg("pos"), py::arg("anchor"), py::arg("count"),
            "Draft one block and return what its selector left, [count + 1, n_embd].");
    py::class_<DsparkDrafter, ModelDrafter, std::shared_ptr<DsparkDrafter>>(m, "DsparkDrafter")
        .def(py::init<std::shared_ptr<Model>, const ContextParams &, std::shared_ptr<Context>, Token,
                      const std::vector<bool> &, bool, bool>(),
             model, py::arg("params"), target, py::arg("mask"), py::arg("causal"), py::kw_only(),
             py::arg("from_anchor"), py::arg("confidence"), release_gil());
}

} // namespace

void bind_drafters(py::module_ & m) {
    py::class_<Drafter, std::shared_ptr<Drafter>>(m, "Drafter");
    bind_models_of_families(m);
    py::class_<ScriptedDrafter, Drafter, std::shared_ptr<ScriptedDrafter>>(m, "ScriptedDrafter")
        .def(py::init<int>(), py::arg("n_vocab"))
        .def("script", &ScriptedDrafter::script, py::arg("seq"), py::arg("tokens"), py::arg("counts"))
        .def("fail_at", &ScriptedDrafter::fail_at, py::arg("seq"), py::arg("round"))
        .def("fail_behind", &ScriptedDrafter::fail_behind, py::arg("rows"))
        .def("injected", &ScriptedDrafter::injected, py::arg("seq"));
    py::class_<SimulatedDrafter, Drafter, std::shared_ptr<SimulatedDrafter>>(m, "SimulatedDrafter")
        .def(py::init<std::vector<double>, std::uint64_t, std::shared_ptr<Drafter>>(), py::arg("survival"),
             py::arg("seed"), py::arg("inner") = nullptr);
}

} // namespace dflash
