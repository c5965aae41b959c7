#include "runtime/pytorch/planning.h"

#include <c10/util/Exception.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "json/document.h"
#include "reshard/layout/notation.h"
#include "reshard/layout/text.h"
#include "reshard/planner/option_text.h"
#include "reshard/planner/planner.h"
#include "reshard/planner/problem.h"
#include "reshard/planner/report.h"
#include "reshard/torch/redistribute.h"
#include "status/macros.h"
#include "status/no_throw.h"

namespace reshard::pytorch {
namespace {

absl::StatusOr<Topology> TopologyOf(const std::string& name) {
  absl::StatusOr<Topology> preset = Topology::Preset(name);
  if (preset.ok()) return preset;
  std::ifstream file(name);
  if (!file) return preset.status();
  std::ostringstream content;
  content << file.rdbuf();
  return Topology::FromJson(content.str(), name);
}

struct Options {
  PlanOptions plan;
  bool pieces = false;
};

absl::StatusOr<Options> OptionsOf(const std::string& text) {
  Options options;
  ASSIGN_OR_RETURN(const json::Document parsed, json::Document::Parse(text.empty() ? "{}" : text));
  const json::Value object = parsed.root();
  if (!object.is_object()) return absl::InvalidArgumentError("the options are not a JSON object");
  for (const std::string& name : object.Keys()) {
    const json::Value value = *object.Find(name);
    if (value.is_null()) continue;
    const bool known =
        name == "objective" || name == "ops" || name == "memory_limit" || name == "topology" || name == "pieces";
    if (!known) {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown option ", name, " (known: objective, ops, memory_limit, topology, pieces)"));
    }
    if (name == "pieces" && value.Bool()) {
      options.pieces = *value.Bool();
    } else if (name == "memory_limit" && value.Count()) {
      options.plan.memory_limit_bytes = *value.Count();
    } else if (!value.is_string()) {
      return absl::InvalidArgumentError(absl::StrCat("option ", name, " has a value of the wrong type"));
    } else if (name == "objective") {
      const std::optional<Objective> objective = ParseObjective(*value.Text());
      if (!objective) return absl::InvalidArgumentError("objective is time, bytes or steps");
      options.plan.objective = *objective;
    } else if (name == "ops") {
      RETURN_IF_ERROR(ParseOps(*value.Text(), options.plan));
    } else if (name == "memory_limit") {
      ASSIGN_OR_RETURN(options.plan.memory_limit_bytes, ParseBytes(*value.Text()));
    } else {
      ASSIGN_OR_RETURN(options.plan.topology, TopologyOf(*value.Text()));
    }
  }
  return options;
}

absl::StatusOr<std::string> MakePlanJson(const std::string& mesh_text, const std::string& source_text,
                                         const std::string& target_text, const std::string& target_mesh_text,
                                         const std::string& dtype_text, const std::string& options_text) {
  const std::optional<DType> dtype = FindDType(dtype_text);
  if (!dtype) return absl::InvalidArgumentError(absl::StrCat("\"", dtype_text, "\" is no dtype: ", KnownDTypes()));
  ASSIGN_OR_RETURN(const Problem problem, ParseProblem(mesh_text, source_text, target_text, target_mesh_text, *dtype));
  ASSIGN_OR_RETURN(const Options options, OptionsOf(options_text));
  const absl::StatusOr<Plan> plan = MakePlan(problem, options.plan);
  if (!plan.ok()) return plan.status();
  return PlanToJson(*plan, options.pieces);
}

// Planning asks nobody, so there is no rank to name.
std::string ValueOrThrow(const absl::StatusOr<std::string>& result) {
  if (result.ok()) return *result;
  const std::string message(result.status().message());
  if (absl::IsUnimplemented(result.status())) C10_THROW_ERROR(NotImplementedError, message);
  C10_THROW_ERROR(ValueError, message);
}

}  // namespace

std::string PlanJson(c10::string_view mesh, c10::string_view source, c10::string_view target,
                     c10::string_view target_mesh, c10::string_view dtype, c10::string_view options_json) {
  return ValueOrThrow(status::NoThrow("planning", [&] {
    return MakePlanJson(std::string(mesh), std::string(source), std::string(target), std::string(target_mesh),
                        std::string(dtype), std::string(options_json));
  }));
}

std::string LayoutFromDTensor(c10::string_view placements, c10::string_view mesh, at::IntArrayRef shape) {
  return ValueOrThrow(status::NoThrow("reading placements", [&]() -> absl::StatusOr<std::string> {
    ASSIGN_OR_RETURN(const Mesh parsed, ParseMesh(std::string(mesh)));
    ASSIGN_OR_RETURN(const Layout layout,
                     ImportLayout(Notation::kDTensor, std::string(placements), parsed, shape.vec()));
    return ToString(layout);
  }));
}

std::string RecentOperationsOf(c10::string_view group) {
  return TensorCommunicator::InUseOf(std::string(group))->RecentOperationsJson();
}

std::string LastTimingsOf(c10::string_view group) {
  const ExecuteResult result = TensorCommunicator::InUseOf(std::string(group))->last_result();
  const nlohmann::json object = {{"seconds", result.seconds},
                                 {"pack_seconds", result.moved.pack_seconds},
                                 {"communicate_seconds", result.moved.communicate_seconds},
                                 {"unpack_seconds", result.moved.unpack_seconds},
                                 {"received_bytes", result.moved.received},
                                 {"copied_local_bytes", result.moved.copied_local},
                                 {"written_bytes", result.moved.written}};
  return object.dump();
}

}  // namespace reshard::pytorch
