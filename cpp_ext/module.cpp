// dflash_gguf._core.
#include "bindings.h"
#include "devices.h"
#include "llama_ext.h"
#include "log.h"
#include "quantize.h"
#include "target.h"

using namespace dflash;

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
        .def_readonly("remote", &Device::remote)
        .def_readonly("memory_free", &Device::memory_free)
        .def_readonly("memory_total", &Device::memory_total);
    m.def("devices", &devices);
    m.def("is_remote", &is_remote, py::arg("backend"));
    m.def("publishes_features", &publishes_features, py::arg("architecture"));
    bind_decisions(m);
    bind_sampling(m);
    bind_rejection(m);
    bind_models(m);
    bind_drafters(m);
    bind_prefix(m);
    bind_memory(m);
    bind_session(m);
    bind_controller(m);
    bind_quantize(m);
    llama_backend_init();
    capture_log(0);
}
