// Sampling settings, and the sampler for tests.
#include "bindings.h"
#include "sampler.h"

#include <algorithm>

namespace dflash {

namespace {

using Logits = py::array_t<float, py::array::c_style | py::array::forcecast>;

// pybind11 tells the length of an array in its type, which a stub does not.
template <typename T, size_t n> std::vector<T> plain(const std::array<T, n> & values) {
    return {values.begin(), values.end()};
}

std::pair<std::vector<Token>, std::optional<std::vector<Token>>>
draft_block(const Sampling & sampling, const Logits & rows, std::int32_t position, Sharpness & learnt,
            int compared, const std::vector<Token> & written) {
    Sampler sampler(sampling, {});
    std::vector<Distribution> q;
    sampler.sharpen(learnt, compared);
    std::vector<Token> drafted;
    for (py::ssize_t i = 0; i < rows.shape(0); ++i) {
        const int before = static_cast<int>(i);
        const Row row{rows.data(i), static_cast<int>(rows.shape(1)), position + before, drafted.data(),
                      before};
        const Token token = sampler.draft(row, false, q);
        drafted.push_back(token);
    }
    sampler.learn(learnt, written);
    const std::optional<Picks> & picks = sampler.picks();
    return {drafted, picks ? std::optional(plain(*picks)) : std::nullopt};
}

void bind_sharpness(py::module_ & m) {
    py::class_<Sharpness>(m, "Sharpness")
        .def(py::init<>())
        .def_static("choices", [] { return plain(sharpness_choices); })
        .def("best", &Sharpness::best, py::arg("temperature"))
        .def("saw", &Sharpness::saw, py::arg("temperature"), py::arg("picks"), py::arg("written"))
        .def("places", &Sharpness::places, py::arg("temperature"))
        .def(
            "hits",
            [](const Sharpness & learnt, double temperature) { return plain(learnt.hits(temperature)); },
            py::arg("temperature"));
    m.def(
        "draft_block", &draft_block, py::arg("sampling"), py::arg("rows"), py::arg("position"),
        py::arg("learnt"), py::arg("compared"), py::arg("written"),
        "Draft a block from rows of logits [count, n_vocab] as has been learnt, and learn from what the "
        "target then wrote. Returns the tokens, and what each sharpness would draft in the compared place.");
    m.def("compared_place", &compared_place, py::arg("round"), py::arg("index"), py::arg("sequences"),
          py::arg("reached"));
}

} // namespace

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
    bind_sharpness(m);
    m.def("gumbel", &gumbel, py::arg("seed"), py::arg("position"), py::arg("token"));
    m.def(
        "choose",
        [](const Sampling & sampling, const Logits & logits, std::int32_t position,
           const std::vector<Token> & text, const std::vector<Token> & after) {
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
