// Sessions, their counters and times.
#include "bare_loop.h"
#include "bind_controller.h"
#include "bindings.h"
#include "session.h"

namespace dflash {

void bind_session(py::module_ & m) {
    py::class_<GrammarText>(m, "GrammarText")
        .def(py::init([](std::string gbnf, std::unordered_set<Token> tokens, bool any_token) {
                 return GrammarText{std::move(gbnf), std::move(tokens), any_token};
             }),
             py::arg("gbnf") = "", py::arg("tokens") = std::unordered_set<Token>{},
             py::arg("any_token") = false);
    py::class_<Counters>(m, "Counters")
        .def_readonly("prompt_tokens", &Counters::prompt_tokens)
        .def_readonly("reused_tokens", &Counters::reused_tokens)
        .def_readonly("injected", &Counters::injected)
        .def_readonly("emitted", &Counters::emitted)
        .def_readonly("rounds", &Counters::rounds)
        .def_readonly("drafting_rounds", &Counters::drafting_rounds)
        .def_readonly("drafted", &Counters::drafted)
        .def_readonly("accepted", &Counters::accepted)
        .def_readonly("drafted_at", &Counters::drafted_at)
        .def_readonly("accepted_at", &Counters::accepted_at)
        .def_property_readonly("shifts",
                               [](const Counters & counters) {
                                   const Shifts & seen = counters.shifts;
                                   return std::make_tuple(seen.blocks, seen.right, seen.early, seen.late);
                               })
        .def_readonly("prefill_ns", &Counters::prefill_ns)
        .def_readonly("first_token_ns", &Counters::first_token_ns)
        .def_readonly("last_token_ns", &Counters::last_token_ns);
    py::class_<Times>(m, "Times")
        .def_readonly("total", &Times::total)
        .def_readonly("prefill", &Times::prefill)
        .def_readonly("draft", &Times::draft)
        .def_readonly("verify", &Times::verify)
        .def_readonly("inject", &Times::inject)
        .def_readonly("rollback", &Times::rollback);
    py::class_<Output>(m, "Output")
        .def_readonly("id", &Output::id)
        .def_readonly("tokens", &Output::tokens)
        .def_readonly("finish", &Output::finish)
        .def_property_readonly("ended", [](const Output & output) { return output.finish != Finish::none; })
        .def_readonly("problem", &Output::problem)
        .def_property_readonly("logprobs",
                               [](const Output & output) {
                                   std::vector<std::pair<float, std::vector<std::pair<Token, float>>>> rows;
                                   for (const Logprobs & row : output.logprobs) {
                                       rows.emplace_back(row.own, row.top);
                                   }
                                   return rows;
                               })
        .def_property_readonly("text", [](const Output & output) { return py::bytes(output.text); });
    py::class_<Interrupt, std::shared_ptr<Interrupt>>(m, "Interrupt")
        .def("set", &Interrupt::set)
        .def("set_after", &Interrupt::set_after, py::arg("nodes"))
        .def_property_readonly("is_set", &Interrupt::is_set);
    py::class_<Session>(m, "Session")
        .def(py::init([](std::shared_ptr<Target> target, std::shared_ptr<Drafter> drafter, int max_block,
                         bool replay, size_t prefix_memory) {
                 return std::make_unique<Session>(std::move(target), std::move(drafter), max_block,
                                                  replay ? RollbackKind::replay : RollbackKind::snapshots,
                                                  prefix_memory);
             }),
             py::arg("target").none(false), py::arg("drafter"), py::arg("max_block"), py::kw_only(),
             py::arg("replay") = false, py::arg("prefix_memory") = 0)
        .def(
            "add",
            [](Session & session, std::vector<Token> prompt, int max_tokens, int block,
               std::unordered_set<Token> stops, std::vector<std::string> stop_strings,
               const Sampling & sampling, int logprobs, int border, const GrammarText & grammar) {
                return session.add(std::move(prompt),
                                   {max_tokens, block, std::move(stops), std::move(stop_strings), logprobs},
                                   sampling, border, grammar);
            },
            py::arg("prompt"), py::kw_only(), py::arg("max_tokens"), py::arg("block"), py::arg("stops"),
            py::arg("stop_strings") = std::vector<std::string>{}, py::arg("sampling") = Sampling{},
            py::arg("logprobs") = -1, py::arg("border") = -1, py::arg("grammar") = GrammarText{})
        .def(
            "steer",
            [](Session & session, const std::vector<CostRow> & points, int depth,
               const std::vector<SlotRow> & slots, double rebuild, double shift,
               const std::vector<std::pair<double, double>> & outcomes, bool rough) {
                session.steer(calibration(points, depth, slots, rebuild, shift, rough), outcomes);
            },
            py::arg("points"), py::kw_only(), py::arg("depth"), py::arg("slots"), py::arg("rebuild"),
            py::arg("shift"), py::arg("outcomes"), py::arg("rough") = false, release_gil())
        .def_property_readonly("outcomes",
                               [](const Session & session) {
                                   const Controller * controller = session.controller();
                                   return controller ? controller->survival().outcomes()
                                                     : std::vector<std::pair<double, double>>{};
                               })
        .def(
            "estimates",
            [](const Session & session, int sequences, int depth) {
                return session.controller()
                           ? estimates(*session.controller(), session.max_block(), sequences, depth)
                           : std::vector<Estimate>{};
            },
            py::arg("sequences") = 1, py::arg("depth") = 0,
            "For every width: nanoseconds of a draft and of a verify, and tokens per nanosecond if so many "
            "rows are drafted, as the controller has them now.")
        .def_property_readonly("sharpness", [](const Session & session) { return session.sharpness(); })
        .def_property_readonly("depth", &Session::depth)
        .def("interrupt", &Session::interrupt, py::arg("id"))
        .def("step", &Session::step, release_gil())
        .def(
            "held", [](const Session & session, llama_seq_id id) { return py::bytes(session.held(id)); },
            py::arg("id"))
        .def("remove", &Session::remove, py::arg("id"))
        .def(
            "counters", [](const Session & session, llama_seq_id id) { return session.counters(id); },
            py::arg("id"))
        .def(
            "copy_prefix",
            [](Session & session, const std::vector<Token> & tokens) {
                const PrefixStore & prefixes = session.prefixes();
                return prefixes.copied(tokens);
            },
            py::arg("tokens"), release_gil())
        .def(
            "adopt_prefix", [](Session & session, Kept kept) { session.prefixes().adopt(std::move(kept)); },
            py::arg("kept"), release_gil())
        .def("forget_prefixes", [](Session & session) { session.prefixes().clear(); })
        .def_property_readonly("prefix_memory", [](Session & session) { return session.prefixes().budget(); })
        .def_property_readonly("kept_bytes", [](Session & session) { return session.prefixes().bytes(); })
        .def_property_readonly("times", [](const Session & session) { return session.times(); })
        .def_property("prefill_rows", &Session::prefill_rows, &Session::set_prefill_rows)
        .def_property_readonly("n_ctx", &Session::n_ctx)
        .def_property_readonly("max_block", &Session::max_block)
        .def_property_readonly("shift_failure", &Session::shift_failure)
        .def_property_readonly("draft_failure", &Session::draft_failure);
    m.def(
        "bare_rounds",
        [](Target & target, Drafter * drafter, int sequences, int width, int kept, int rounds, int context,
           bool chooses) {
            const BareRounds plan{sequences, width, kept, rounds, context, chooses};
            std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>> costs;
            for (const RoundCost & cost : bare_rounds(target, drafter, plan)) {
                costs.emplace_back(cost.draft, cost.verify, cost.inject, cost.rollback);
            }
            return costs;
        },
        py::arg("target"), py::arg("drafter"), py::kw_only(), py::arg("sequences") = 1, py::arg("width") = 1,
        py::arg("kept") = 1, py::arg("rounds") = 1, py::arg("context") = 0, py::arg("chooses") = false,
        release_gil(),
        "Nanoseconds (draft, verify, inject, rollback) of each of some rounds of bare llama.cpp calls.");
}

} // namespace dflash
