// Sampling settings, and the sampler for tests.
#include "bindings.h"
#include "sampler.h"

#include <algorithm>

namespace dflash {

void bind_sampling(py::module_ & m) {
    py::native_enum<DraftSampling>(m, "DraftSampling", "enum.Enum")
        .value("gumbel", DraftSampling::gumbel)
        .value("rejection", DraftSampling::rejection)
        .finalize();
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
        .def_readwrite("seed", &Sampling::seed)
        .def_readwrite("draft", &Sampling::draft);
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
                .choose({logits.data(), n, position, after.data(), static_cast<int>(after.size())});
        },
        py::arg("sampling"), py::arg("logits"), py::arg("position"), py::arg("text") = std::vector<Token>{},
        py::arg("after") = std::vector<Token>{}, "The token a sampler chooses from logits [n_vocab].");
}

} // namespace dflash
