// What a pair would take in memory.
#include "bindings.h"
#include "huge_pages.h"
#include "memory_trial.h"

namespace dflash {

void bind_memory(py::module_ & m) {
    using Names = std::vector<std::string>;
    py::class_<BufferUse>(m, "BufferUse")
        .def_readonly("place", &BufferUse::place)
        .def_readonly("weights", &BufferUse::weights)
        .def_readonly("mapped", &BufferUse::mapped)
        .def_readonly("caches", &BufferUse::caches)
        .def_readonly("compute", &BufferUse::compute);
    py::class_<ContextUse>(m, "ContextUse")
        .def_readonly("buffers", &ContextUse::buffers)
        .def_readonly("books", &ContextUse::books)
        .def_readonly("cells", &ContextUse::cells)
        .def_readonly("graphs", &ContextUse::graphs);
    m.def(
        "added_memory",
        [](const std::string & before, const std::string & now) {
            std::vector<std::pair<std::uintptr_t, std::uintptr_t>> regions;
            for (const Region & region : added(anonymous_regions(before), anonymous_regions(now))) {
                regions.emplace_back(region.from, region.to);
            }
            return regions;
        },
        py::arg("before"), py::arg("now"),
        "Addresses, from and to, of anonymous memory that the second table of a process's has and the first "
        "has "
        "not.");
    m.def("own_memory", &own_memory, "Bytes of this process that are no file's pages; -1 if unknown.");
    py::class_<MemoryTrial>(m, "MemoryTrial")
        .def(py::init([](const std::string & target, int layers, Names devices, bool mmap) {
                 return std::make_unique<MemoryTrial>(target,
                                                      ModelParams{layers, std::move(devices), nullptr, mmap});
             }),
             py::arg("target"), py::arg("layers"), py::arg("devices"), py::kw_only(), py::arg("mmap") = true,
             release_gil())
        .def(
            "open_draft",
            [](MemoryTrial & trial, const std::string & draft, int layers, Names devices, bool mmap) {
                trial.open_draft(draft, ModelParams{layers, std::move(devices), nullptr, mmap});
            },
            py::arg("draft"), py::arg("layers"), py::arg("devices"), py::kw_only(), py::arg("mmap") = true,
            release_gil())
        .def_property_readonly("n_ctx_train",
                               [](const MemoryTrial & trial) { return trial.model().n_ctx_train(); })
        .def_property_readonly("n_vocab", [](const MemoryTrial & trial) { return trial.model().n_vocab(); })
        .def_property_readonly("n_embd", [](const MemoryTrial & trial) { return trial.model().n_embd(); })
        .def_property_readonly("has_state",
                               [](const MemoryTrial & trial) { return trial.model().has_state(); })
        .def_property_readonly("n_taps", &MemoryTrial::n_taps)
        .def_property_readonly("headers", &MemoryTrial::headers)
        .def_property_readonly("state", &MemoryTrial::state)
        .def("keeps_snapshots", &MemoryTrial::keeps_snapshots, release_gil())
        .def("target", &MemoryTrial::target, py::arg("params"), release_gil())
        .def("draft", &MemoryTrial::draft, py::arg("params"), release_gil());
}

} // namespace dflash
