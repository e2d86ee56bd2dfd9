// Kept texts: what can be taken over from one, and its way to a file and back.
#include "bindings.h"
#include "prefix.h"

#include <string_view>

namespace dflash {

namespace {

py::bytes to_python(const Bytes & bytes) {
    return py::bytes(reinterpret_cast<const char *>(bytes.data()), bytes.size());
}

Bytes from_python(const py::bytes & bytes) {
    const std::string_view view(bytes);
    return Bytes(view.begin(), view.end());
}

std::shared_ptr<const Bytes> shared_part(const py::bytes & bytes) {
    Bytes part = from_python(bytes);
    return part.empty() ? nullptr : std::make_shared<const Bytes>(std::move(part));
}

using PythonPoint = std::tuple<int, py::bytes, py::bytes>;

} // namespace

void bind_prefix(py::module_ & m) {
    m.def(
        "reusable_prefix",
        [](const std::vector<Token> & prompt, const std::vector<Token> & tokens,
           const std::vector<int> & points, int least_cut,
           int limit) { return reusable(prompt, tokens, points, least_cut, limit); },
        py::arg("prompt"), py::arg("tokens"), py::arg("points"), py::arg("least_cut"), py::arg("limit"));
    py::class_<Kept>(m, "KeptPrefix")
        .def(py::init([](std::vector<Token> tokens, const py::bytes & target, const py::bytes & draft,
                         int fed, int least_cut, const std::vector<PythonPoint> & points) {
                 Kept kept;
                 kept.tokens = std::move(tokens);
                 kept.target = from_python(target);
                 kept.draft = from_python(draft);
                 kept.fed = fed;
                 kept.least_cut = least_cut;
                 for (const auto & [count, target_part, draft_part] : points) {
                     kept.points.push_back({count, shared_part(target_part), shared_part(draft_part), 0});
                 }
                 return kept;
             }),
             py::arg("tokens"), py::arg("target"), py::arg("draft"), py::arg("fed"), py::arg("least_cut"),
             py::arg("points"))
        .def_readonly("tokens", &Kept::tokens)
        .def_readonly("fed", &Kept::fed)
        .def_readonly("least_cut", &Kept::least_cut)
        .def_property_readonly("target", [](const Kept & kept) { return to_python(kept.target); })
        .def_property_readonly("draft", [](const Kept & kept) { return to_python(kept.draft); })
        .def_property_readonly("points", [](const Kept & kept) {
            std::vector<PythonPoint> points;
            for (const Point & point : kept.points) {
                points.emplace_back(point.count, to_python(point.target ? *point.target : Bytes{}),
                                    to_python(point.draft ? *point.draft : Bytes{}));
            }
            return points;
        });
}

} // namespace dflash
