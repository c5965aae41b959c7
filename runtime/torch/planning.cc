#include "runtime/torch/planning.h"

#include <c10/util/Exception.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/layout/no_throw.h"
#include "reshard/layout/notation.h"
#include "reshard/layout/text.h"
#include "reshard/planner/option_text.h"
#include "reshard/planner/planner.h"
#include "reshard/planner/report.h"
#include "reshard/torch/redistribute.h"

namespace reshard {
namespace {

using nlohmann::json;

absl::StatusOr<std::shared_ptr<const Mesh>> MeshOf(const std::string& text) {
  absl::StatusOr<Mesh> mesh = ParseMesh(text);
  if (!mesh.ok()) return mesh.status();
  return std::make_shared<const Mesh>(*std::move(mesh));
}

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
  const json object = json::parse(text.empty() ? "{}" : text, nullptr, false);
  if (!object.is_object()) return absl::InvalidArgumentError("the options are not a JSON object");
  for (const auto& [name, value] : object.items()) {
    if (value.is_null()) continue;
    absl::Status status;
    const bool known =
        name == "objective" || name == "ops" || name == "memory_limit" || name == "topology" || name == "pieces";
    if (!known) {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown option ", name, " (known: objective, ops, memory_limit, topology, pieces)"));
    }
    if (name == "pieces" && value.is_boolean()) {
      options.pieces = value.get<bool>();
    } else if (name == "memory_limit" && value.is_number_integer()) {
      options.plan.memory_limit_bytes = value.get<int64_t>();
    } else if (!value.is_string()) {
      status = absl::InvalidArgumentError(absl::StrCat("option ", name, " has a value of the wrong type"));
    } else if (name == "objective") {
      const std::optional<Objective> objective = ParseObjective(value.get<std::string>());
      if (objective) options.plan.objective = *objective;
      if (!objective) status = absl::InvalidArgumentError("objective is time, bytes or steps");
    } else if (name == "ops") {
      status = ParseOps(value.get<std::string>(), options.plan);
    } else if (name == "memory_limit") {
      const absl::StatusOr<int64_t> bytes = ParseBytes(value.get<std::string>());
      status = bytes.status();
      if (bytes.ok()) options.plan.memory_limit_bytes = *bytes;
    } else {
      absl::StatusOr<Topology> topology = TopologyOf(value.get<std::string>());
      status = topology.status();
      if (topology.ok()) options.plan.topology = *std::move(topology);
    }
    if (!status.ok()) return status;
  }
  return options;
}

absl::StatusOr<std::string> MakePlanJson(const std::string& mesh_text, const std::string& source_text,
                                         const std::string& target_text, const std::string& target_mesh_text,
                                         const std::string& dtype_text, const std::string& options_text) {
  const absl::StatusOr<std::shared_ptr<const Mesh>> mesh = MeshOf(mesh_text);
  if (!mesh.ok()) return mesh.status();
  const absl::StatusOr<std::shared_ptr<const Mesh>> target_mesh =
      target_mesh_text.empty() ? mesh : MeshOf(target_mesh_text);
  if (!target_mesh.ok()) return target_mesh.status();
  const absl::StatusOr<Layout> source = ParseLayout(source_text, *mesh);
  if (!source.ok()) return source.status();
  const absl::StatusOr<Layout> target = ParseLayout(target_text, *target_mesh);
  if (!target.ok()) return target.status();
  const std::optional<DType> dtype = ParseDType(dtype_text);
  if (!dtype) return absl::InvalidArgumentError(absl::StrCat("\"", dtype_text, "\" is no dtype"));
  const absl::StatusOr<Options> options = OptionsOf(options_text);
  if (!options.ok()) return options.status();
  const absl::StatusOr<Plan> plan = MakePlan(*source, *target, *dtype, options->plan);
  if (!plan.ok()) return plan.status();
  return PlanToJson(*plan, options->pieces);
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
  return ValueOrThrow(NoThrow("planning", [&] {
    return MakePlanJson(std::string(mesh), std::string(source), std::string(target), std::string(target_mesh),
                        std::string(dtype), std::string(options_json));
  }));
}

std::string LayoutFromDTensor(c10::string_view placements, c10::string_view mesh, at::IntArrayRef shape) {
  return ValueOrThrow(NoThrow("reading placements", [&]() -> absl::StatusOr<std::string> {
    const absl::StatusOr<std::shared_ptr<const Mesh>> parsed = MeshOf(std::string(mesh));
    if (!parsed.ok()) return parsed.status();
    const absl::StatusOr<Layout> layout =
        ImportLayout(Notation::kDTensor, std::string(placements), *parsed, shape.vec());
    if (!layout.ok()) return layout.status();
    return ToString(*layout);
  }));
}

std::string RecentOperationsOf(c10::string_view group) {
  return TensorCommunicator::InUseOf(std::string(group))->RecentOperationsJson();
}

std::string LastTimingsOf(c10::string_view group) {
  const ExecuteResult result = TensorCommunicator::InUseOf(std::string(group))->last_result();
  const json object = {{"seconds", result.seconds},
                       {"pack_seconds", result.moved.pack_seconds},
                       {"communicate_seconds", result.moved.communicate_seconds},
                       {"unpack_seconds", result.moved.unpack_seconds},
                       {"received_bytes", result.moved.received},
                       {"copied_local_bytes", result.moved.copied_local},
                       {"written_bytes", result.moved.written}};
  return object.dump();
}

}  // namespace reshard
