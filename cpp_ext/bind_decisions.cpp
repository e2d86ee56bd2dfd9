// Decisions of a round, for tests.
#include "bindings.h"
#include "decide.h"

#include <pybind11/functional.h>

namespace dflash {

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

} // namespace dflash
