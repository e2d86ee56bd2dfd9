// The controller, for tests: the session has one of its own.
#include "bind_controller.h"

#include "bindings.h"

#include <stdexcept>
#include <string>

namespace dflash {

Calibration calibration(const std::vector<CostRow> & points, int depth, const std::vector<SlotRow> & slots,
                        double rebuild, double shift, bool rough) {
    Calibration made{{}, depth, {}, rebuild, shift, rough};
    for (const auto & [sequences, width, ns] : slots) {
        made.slots.push_back({sequences, width, ns});
    }
    for (const auto & [sequences, width, draft, verify, inject, injected] : points) {
        made.points.push_back({sequences, width, draft, verify, inject, injected});
    }
    return made;
}

std::vector<Estimate> estimates(const Controller & controller, int widest, int sequences, int depth) {
    std::vector<Estimate> rows;
    for (int width = 1; width <= widest; ++width) {
        rows.emplace_back(width, controller.costs().draft(sequences, width),
                          controller.costs().verify(sequences, width, depth),
                          controller.rate(sequences, width, depth));
    }
    return rows;
}

namespace {

Controller::Return way_of(const std::string & name) {
    if (name == "free") {
        return Controller::Return::free;
    }
    if (name != "snapshots" && name != "replay") {
        throw std::invalid_argument("the way back is '" + name + "', expected free, snapshots or replay");
    }
    return name == "replay" ? Controller::Return::replay : Controller::Return::snapshots;
}

} // namespace

void bind_controller(py::module_ & m) {
    py::class_<Order>(m, "Order")
        .def_readonly("width", &Order::width)
        .def_readonly("probe", &Order::probe)
        .def_readonly("depth", &Order::depth)
        .def_readonly("features", &Order::features);
    py::class_<Controller>(m, "Controller")
        .def(py::init([](const std::vector<CostRow> & points, int widest, const std::string & way, int depth,
                         const std::vector<SlotRow> & slots, double rebuild, double shift,
                         const std::vector<std::pair<double, double>> & outcomes, bool rough) {
                 CostTable costs(calibration(points, 0, slots, rebuild, shift, rough), widest);
                 return Controller(std::move(costs), widest, way_of(way), depth, outcomes);
             }),
             py::arg("points"), py::kw_only(), py::arg("widest"), py::arg("way") = "free",
             py::arg("depth") = 0, py::arg("slots") = std::vector<SlotRow>{}, py::arg("rebuild") = 0.0,
             py::arg("shift") = 0.0, py::arg("outcomes") = std::vector<std::pair<double, double>>{},
             py::arg("rough") = false)
        .def("order", &Controller::order, py::arg("sequences"), py::arg("most"), py::arg("probing"))
        .def("trim", &Controller::trim, py::arg("confidence"), py::arg("drafted_width"))
        .def("wake", &Controller::wake)
        .def("first_depth", &Controller::first_depth)
        .def("saw_block", &Controller::saw_block, py::arg("confidence"), py::arg("tested"),
             py::arg("accepted"))
        .def("saw_probe", &Controller::saw_probe, py::arg("confidence"), py::arg("tested"),
             py::arg("accepted"))
        .def("saw_probe_cost", &Controller::saw_probe_cost, py::arg("ns"))
        .def(
            "saw_round",
            [](Controller & controller, int sequences, int drafted_width, int width, bool rebuilt,
               std::int64_t draft, std::int64_t verify, std::int64_t total) {
                controller.saw_round({sequences, drafted_width, width, rebuilt, draft, verify, total});
            },
            py::kw_only(), py::arg("sequences") = 1, py::arg("drafted_width") = 1, py::arg("width") = 1,
            py::arg("rebuilt") = false, py::arg("draft") = 0, py::arg("verify") = 0, py::arg("total") = 0)
        .def("could_not_shift", &Controller::could_not_shift)
        .def("saw_shift", &Controller::saw_shift, py::arg("depth"), py::arg("ns"))
        .def(
            "chance",
            [](const Controller & controller, int position, std::optional<float> confidence) {
                const Survival & survival = controller.survival();
                return confidence ? survival.chance(position, *confidence) : survival.chance(position);
            },
            py::arg("position"), py::arg("confidence") = py::none())
        .def("estimates", &estimates, py::arg("widest"), py::arg("sequences") = 1, py::arg("depth") = 0);
}

} // namespace dflash
