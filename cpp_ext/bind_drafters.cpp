// Drafters: the real one and its stand-ins.
#include "bindings.h"
#include "model_drafter.h"
#include "stand_ins.h"

namespace dflash {

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

} // namespace dflash
