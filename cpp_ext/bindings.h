// The Python face of this folder, one bind function per subject. Checks and conversions only; the work is
// elsewhere.
#pragma once

#include <pybind11/native_enum.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

namespace dflash {

namespace py = pybind11;

using release_gil = py::call_guard<py::gil_scoped_release>;

inline py::array_t<float> copy_rows(const float * from, py::ssize_t rows, py::ssize_t width) {
    return py::array_t<float>({rows, width}, from);
}

void bind_decisions(py::module_ & m);
void bind_sampling(py::module_ & m);
void bind_rejection(py::module_ & m);
void bind_models(py::module_ & m);
void bind_drafters(py::module_ & m);
void bind_prefix(py::module_ & m);
void bind_memory(py::module_ & m);
void bind_session(py::module_ & m);
void bind_controller(py::module_ & m);

} // namespace dflash
