// Decisions of a round, for tests.
#include "bindings.h"
#include "blocks.h"
#include "decide.h"
#include "lattice.h"
#include "stop_strings.h"
#include "thread_governor.h"

#include <pybind11/functional.h>

namespace dflash {

void bind_decisions(py::module_ & m) {
    py::native_enum<Finish>(m, "Finish", "enum.Enum")
        .value("none", Finish::none)
        .value("stop", Finish::stop)
        .value("length", Finish::length)
        .value("failed", Finish::failed)
        .value("cancelled", Finish::cancelled)
        .finalize();
    m.def("plan_width", &plan_width, py::arg("block"), py::arg("remaining"));
    m.def(
        "argmax",
        [](const py::array_t<float, py::array::c_style | py::array::forcecast> & values) {
            return argmax(values.data(), static_cast<int>(values.size()));
        },
        py::arg("values"));
    m.def(
        "accept_greedy",
        [](const std::vector<Token> & drafted, const std::function<Token(int)> & choose) {
            const Accepted taken = accept_greedy(drafted, choose);
            return py::make_tuple(taken.count, taken.bonus);
        },
        py::arg("drafted"), py::arg("choose"));
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
    m.def(
        "equal_blocks",
        [](const std::vector<int> & counts, const std::vector<int> & rooms) {
            std::vector<std::pair<int, std::vector<size_t>>> groups;
            for (BlockGroup & group : equal_blocks(counts, rooms)) {
                groups.emplace_back(group.count, std::move(group.members));
            }
            return groups;
        },
        py::arg("counts"), py::arg("rooms"));
    m.def(
        "walk_lattice",
        [](const py::array_t<float, py::array::c_style | py::array::forcecast> & rows, int top_k,
           int n_vocab) {
            if (rows.ndim() != 2 || rows.shape(0) < 1 || top_k < 1 || rows.shape(1) < top_k * (top_k + 1)) {
                throw std::invalid_argument("rows of top_k ids and top_k x top_k scores are needed");
            }
            const Lattice lattice{rows.data(), static_cast<int>(rows.shape(1)), top_k, n_vocab};
            const Walk walk = walk_lattice(
                lattice, static_cast<int>(rows.shape(0)) - 1,
                [&](const auto &, const float * scores, const auto &) { return argmax(scores, top_k); });
            return py::make_tuple(walk.tokens, walk.confidence);
        },
        py::arg("rows"), py::arg("top_k"), py::arg("n_vocab"),
        "The best way through a lattice [1 + positions, stride], and its confidences.");
    m.def(
        "cut_output",
        [](const std::vector<Token> & tokens, int remaining, const std::unordered_set<Token> & stops) {
            const Cut cut = cut_output(tokens, remaining, stops);
            return py::make_tuple(cut.keep, cut.finish);
        },
        py::arg("tokens"), py::arg("remaining"), py::arg("stops"));
    m.def("worth_verifying", &worth_verifying, py::arg("drafted"), py::arg("stops"));
    py::class_<ThreadGovernor>(m, "ThreadGovernor")
        .def(py::init<int>(), py::arg("most"))
        .def_property_readonly("threads", &ThreadGovernor::threads)
        .def(
            "saw",
            [](ThreadGovernor & governor, int threads, double wall, double cpu, long preempted, double now) {
                governor.saw({threads, wall, cpu, preempted}, now);
            },
            py::kw_only(), py::arg("threads"), py::arg("wall"), py::arg("cpu"), py::arg("preempted"),
            py::arg("now"));
    py::class_<StopStrings>(m, "StopStrings")
        .def(py::init<const std::vector<std::string> &>(), py::arg("strings"))
        .def(
            "read",
            [](StopStrings & stops, const std::string & bytes) {
                std::string text;
                const bool found = stops.read(bytes, text);
                return py::make_tuple(py::bytes(text), found);
            },
            py::arg("bytes"), "Text that is sure, and whether a stop string is complete.")
        .def_property_readonly("held", [](const StopStrings & stops) { return py::bytes(stops.held()); });
}

} // namespace dflash
