// Distributions and the acceptance of drawn tokens, for tests.
#include "bindings.h"
#include "rejection.h"

#include <pybind11/functional.h>

namespace dflash {

void bind_rejection(py::module_ & m) {
    using Logits = py::array_t<float, py::array::c_style | py::array::forcecast>;
    py::class_<Distribution>(m, "Distribution")
        .def_static("certain", &Distribution::certain, py::arg("token"))
        .def_static(
            "whole",
            [](const Logits & logits, double temperature) {
                return Distribution::whole(std::vector<float>(logits.data(), logits.data() + logits.size()),
                                           temperature);
            },
            py::arg("logits"), py::arg("temperature"))
        .def_static(
            "filtered",
            [](const Logits & logits, const Sampling & sampling) {
                return Distribution::among(filtered(logits.data(), static_cast<int>(logits.size()), sampling),
                                           sampling.temperature);
            },
            py::arg("logits"), py::arg("sampling"))
        .def("of", &Distribution::of, py::arg("token"))
        .def("residual", &Distribution::residual, py::arg("other"), py::arg("u"));
    m.def(
        "accept_drawn",
        [](const std::vector<Token> & drafted, const std::vector<Distribution> & q,
           std::function<Distribution(int)> target, std::function<Token(int)> choose,
           std::function<double(int)> stays, std::function<double(int)> replacement) {
            const Accepted taken = accept_drawn(
                drafted, q, {std::move(target), std::move(choose), std::move(stays), std::move(replacement)});
            return py::make_tuple(taken.count, taken.bonus);
        },
        py::arg("drafted"), py::arg("q"), py::arg("target"), py::arg("choose"), py::arg("stays"),
        py::arg("replacement"));
}

} // namespace dflash
