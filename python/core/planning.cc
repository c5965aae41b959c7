#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "python/core/module.h"
#include "python/core/names.h"
#include "python/core/status.h"
#include "reshard/check/check.h"
#include "reshard/checkpoint/model.h"
#include "reshard/layout/notation.h"
#include "reshard/layout/text.h"
#include "reshard/planner/batch.h"
#include "reshard/planner/calibrate.h"
#include "reshard/planner/html.h"
#include "reshard/planner/option_text.h"
#include "reshard/planner/planner.h"
#include "reshard/planner/problem_text.h"
#include "reshard/planner/relabel.h"
#include "reshard/planner/report.h"
#include "reshard/planner/simulate.h"
#include "status/macros.h"

namespace reshard::core {
namespace {

namespace nb = nanobind;
using nb::literals::operator""_a;
using Shape = std::optional<std::vector<int64_t>>;

// Calls work() without the GIL. Nothing in it touches Python.
template <typename Work>
auto WithoutLock(const Work& work) {
  const nb::gil_scoped_release release;
  return work();
}

absl::StatusOr<Problem> ReadProblem(const std::string& mesh, const std::string& source, const std::string& target,
                                    const std::optional<std::string>& target_mesh, const std::string& dtype_name,
                                    const Shape& shape, const std::string& source_format,
                                    const std::string& target_format) {
  ASSIGN_OR_RETURN(const DType dtype, ReadDType(dtype_name));
  ProblemText text{mesh, source, target, target_mesh, shape};
  ASSIGN_OR_RETURN(text.from_format, ReadNotation(source_format));
  ASSIGN_OR_RETURN(text.to_format, ReadNotation(target_format));
  return ::reshard::ReadProblem(text, dtype, "target_mesh");
}

absl::StatusOr<PlanOptions> ReadOptions(const std::string& objective, const std::string& ops,
                                        std::optional<int64_t> memory_limit, const std::string& topology,
                                        const std::optional<std::string>& topology_json, bool overlap) {
  PlanOptions options;
  options.overlap = overlap;
  const std::optional<Objective> goal = ParseObjective(objective);
  if (!goal)
    return absl::InvalidArgumentError(absl::StrCat("\"", Clipped(objective), "\" is not time, bytes or steps"));
  options.objective = *goal;
  RETURN_IF_ERROR(ParseOps(ops, options));
  options.memory_limit_bytes = memory_limit;
  if (topology_json) {
    ASSIGN_OR_RETURN(options.topology, Topology::FromJson(*topology_json, topology));
  } else {
    const absl::StatusOr<Topology> preset = Topology::Preset(topology);
    if (!preset.ok()) return absl::InvalidArgumentError(preset.status().message());
    options.topology = *preset;
  }
  return options;
}

void AddProblems(nb::module_& module) {
  nb::class_<Problem>(module, "Problem").def_prop_ro("world", [](const Problem& problem) {
    return std::max(problem.source.mesh().world(), problem.target.mesh().world());
  });
  module.def(
      "problem_of",
      [](const Layout& source, const Layout& target, const std::string& dtype) {
        return Problem{source, target, ValueOrRaise(ReadDType(dtype))};
      },
      "source"_a, "target"_a, "dtype"_a);
  module.def(
      "problem",
      [](const std::string& mesh, const std::string& source, const std::string& target,
         const std::optional<std::string>& target_mesh, const std::string& dtype, const Shape& shape,
         const std::string& source_format, const std::string& target_format) {
        return ValueOrRaise(ReadProblem(mesh, source, target, target_mesh, dtype, shape, source_format, target_format));
      },
      "mesh"_a, "source"_a, "target"_a, "target_mesh"_a.none(), "dtype"_a, "shape"_a.none(), "source_format"_a,
      "target_format"_a);
  nb::class_<PlanOptions>(module, "Options")
      .def_prop_ro("topology_name", [](const PlanOptions& options) { return options.topology.name; })
      .def("set_nodes", [](PlanOptions& options, int64_t nodes, int64_t devices) {
        const absl::Status status = options.topology.SetNodes(nodes, devices);
        if (!status.ok()) Raise(status);
      });
  module.def(
      "options",
      [](const std::string& objective, const std::string& ops, std::optional<int64_t> memory_limit,
         const std::string& topology, const std::optional<std::string>& topology_json, bool overlap) {
        return ValueOrRaise(ReadOptions(objective, ops, memory_limit, topology, topology_json, overlap));
      },
      "objective"_a, "ops"_a, "memory_limit"_a.none(), "topology"_a, "topology_json"_a.none(), "overlap"_a);
  module.def("parse_bytes", [](const std::string& text) { return ValueOrRaise(ParseBytes(text)); });
}

void AddPlans(nb::module_& module) {
  nb::class_<Plan>(module, "Plan")
      .def("text", [](const Plan& plan) { return PlanToText(plan) + DescribeDomains(plan); })
      .def("explain", &ExplainPlan)
      .def("svg", &PlanToSvg)
      .def("html", [](const Plan& plan) { return ValueOrRaise(WithoutLock([&] { return PlanToHtml(plan); })); })
      .def("json", [](const Plan& plan,
                      bool pieces) { return ValueOrRaise(WithoutLock([&] { return PlanToJson(plan, pieces); })); })
      .def("simulate", [](const Plan& plan) {
        const Simulation simulation = ValueOrRaise(WithoutLock([&] { return Simulate(plan); }));
        return SimulationToText(plan, simulation);
      });
  module.def("plan", [](const Problem& problem, const PlanOptions& options) {
    return ValueOrRaise(WithoutLock([&] { return MakePlan(problem, options); }));
  });
  module.def(
      "relabel",
      [](const std::vector<Problem>& problems, const std::vector<std::string>& names) {
        return ValueOrRaise(
            WithoutLock([&]() -> absl::StatusOr<std::tuple<std::vector<Problem>, std::vector<int64_t>>> {
              ASSIGN_OR_RETURN(const Relabeling found, Relabel(problems, names));
              std::vector<Problem> moved = problems;
              for (Problem& problem : moved) {
                ASSIGN_OR_RETURN(problem.target, OnMesh(problem.target, found.target_mesh));
              }
              return std::tuple(std::move(moved), found.devices());
            }));
      },
      "problems"_a, "names"_a);
}

// (text, whether it is rules as JSON, mesh)
using ModelText = std::tuple<std::string, bool, std::optional<std::string>>;

absl::StatusOr<ModelLayout> ReadModelLayout(const char* name, const ModelText& said,
                                            const std::vector<ModelTensor>& model) {
  const auto& [text, is_rules, mesh_text] = said;
  if (is_rules) {
    absl::StatusOr<LayoutRules> rules = LayoutRules::Parse(text);
    if (!rules.ok()) return Named(name, rules.status());
    return ModelLayout::Of(*std::move(rules));
  }
  if (!mesh_text) return absl::InvalidArgumentError(absl::StrCat(name, ": \"", Clipped(text), "\" needs a mesh"));
  ASSIGN_OR_RETURN(const Mesh mesh, ReadNamedMesh("mesh", *mesh_text));
  absl::StatusOr<ModelLayout> layout = ModelLayout::Parse(text, mesh, model);
  if (!layout.ok()) return Named(name, layout.status());
  return layout;
}

void AddBatches(nb::module_& module) {
  nb::class_<BatchPlan>(module, "Batch")
      .def("text", [](const BatchPlan& batch) { return BatchToText(batch) + CostliestTensors(batch); })
      .def("json", [](const BatchPlan& batch) { return ValueOrRaise(BatchToJson(batch)); })
      .def("explain", [](const BatchPlan& batch) { return ExplainBatch(batch); })
      .def("html", [](const BatchPlan& batch) { return ValueOrRaise(WithoutLock([&] { return BatchToHtml(batch); })); })
      .def("plan_of", &BatchPlan::PlanOf)
      .def("__len__", [](const BatchPlan& batch) { return batch.tensors.size(); });
  module.def(
      "calibration_probes",
      [](int64_t nodes, int64_t devices, int64_t bytes) {
        std::vector<std::tuple<std::string, std::string, std::string, int64_t, bool>> out;
        for (const Probe& probe : ValueOrRaise(CalibrationProbes({nodes, devices, bytes}))) {
          const Layout& source = probe.problem.source;
          out.emplace_back(ToString(source.mesh()), ToString(source), ToString(probe.problem.target), source.shape()[1],
                           probe.is_large);
        }
        return out;
      },
      "nodes"_a, "devices"_a, "bytes"_a);
  module.def(
      "fit_topology",
      [](int64_t nodes, int64_t devices, int64_t bytes, const std::vector<double>& seconds) {
        return TopologyToJson(ValueOrRaise(FitTopology({nodes, devices, bytes}, seconds)));
      },
      "nodes"_a, "devices"_a, "bytes"_a, "seconds"_a);
  // The problems of a model and the names of its tensors. `model` is a path, or JSON; source and target are rules as
  // JSON, or a text that ModelLayout::Parse reads over a mesh.
  module.def(
      "model_problems",
      [](const std::string& model, bool is_json, const std::string& dtype_name, const ModelText& source,
         const ModelText& target) {
        const DType dtype = ValueOrRaise(ReadDType(dtype_name));
        const absl::StatusOr<std::vector<ModelTensor>> tensors =
            WithoutLock([&] { return is_json ? ParseModel(model, dtype) : ReadModel(model, dtype); });
        if (!tensors.ok()) RaiseCheckpoint(tensors.status());
        const ModelLayout from = ValueOrRaise(ReadModelLayout("source", source, *tensors));
        const ModelLayout to = ValueOrRaise(ReadModelLayout("target", target, *tensors));
        std::vector<std::string> names;
        for (const ModelTensor& tensor : *tensors) names.push_back(tensor.name);
        return std::tuple(ValueOrRaise(ModelProblems(*tensors, from, to)), std::move(names));
      },
      "model"_a, "is_json"_a, "dtype"_a, "source"_a, "target"_a);
  module.def(
      "plan_batch",
      [](const std::vector<Problem>& problems, const std::vector<std::string>& names, const PlanOptions& options,
         std::optional<int64_t> bucket_bytes) {
        return ValueOrRaise(WithoutLock([&] { return PlanBatch(problems, {options, bucket_bytes}, names); }));
      },
      "problems"_a, "names"_a, "options"_a, "bucket_bytes"_a.none());
}

void AddVerdicts(nb::module_& module) {
  // (agrees, the text, the JSON, the page)
  module.def("check", [](const std::string& text) {
    const CheckReport report = ValueOrRaise(WithoutLock([&] { return CheckPlans(text); }));
    if (const absl::Status status = report.status(); !status.ok()) Raise(status);
    return std::tuple(report.agrees(), CheckToText(report), CheckToJson(report), CheckToHtml(report));
  });
}

}  // namespace

void AddPlanning(nb::module_& module) {
  AddProblems(module);
  AddPlans(module);
  AddBatches(module);
  AddVerdicts(module);
}

}  // namespace reshard::core
