#include "runtime/pytorch/planning.h"

#include <c10/util/Exception.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reshard/layout/notation.h"
#include "reshard/layout/text.h"
#include "reshard/planner/planner.h"
#include "reshard/torch/redistribute.h"
#include "reshard/torch/topology.h"
#include "runtime/host/reduce.h"
#include "runtime/pytorch/layout_texts.h"
#include "runtime/pytorch/tensors.h"
#include "status/macros.h"
#include "status/no_throw.h"

namespace reshard::pytorch {
std::string LayoutFromDTensor(c10::string_view placements, c10::string_view mesh, at::IntArrayRef shape) {
  return ValueOrThrow(status::NoThrow("reading placements", [&]() -> absl::StatusOr<std::string> {
    return TextOf(mesh, [&](const Mesh& over) {
      return ImportLayout(Notation::kDTensor, std::string(placements), over, shape.vec());
    });
  }));
}

std::string LayoutOfRule(c10::string_view rule, c10::string_view mesh, at::IntArrayRef shape) {
  return ValueOrThrow(status::NoThrow("reading a layout", [&]() -> absl::StatusOr<std::string> {
    return TextOf(mesh, [&](const Mesh& over) { return ParseLayoutRule(std::string(rule), over, shape.vec()); });
  }));
}

std::vector<int64_t> LayoutShape(c10::string_view layout, c10::string_view mesh) {
  return ValueOrThrow(status::NoThrow("reading a layout", [&]() -> absl::StatusOr<std::vector<int64_t>> {
    ASSIGN_OR_RETURN(const Layout parsed, LayoutOf(mesh, layout));
    return parsed.shape();
  }));
}

std::string LayoutToDTensor(c10::string_view layout, c10::string_view mesh, at::IntArrayRef shape) {
  return ValueOrThrow(status::NoThrow("reading a layout", [&]() -> absl::StatusOr<std::string> {
    ASSIGN_OR_RETURN(const Mesh parsed, ParseMesh(std::string(mesh)));
    ASSIGN_OR_RETURN(const Layout meant, ImportLayout(Notation::kReshard, std::string(layout), parsed, shape.vec()));
    return ExportLayout(Notation::kDTensor, meant);
  }));
}

std::vector<int64_t> PlanFigures(c10::string_view mesh, c10::string_view source, c10::string_view target,
                                 c10::string_view dtype) {
  return ValueOrThrow(status::NoThrow("planning", [&]() -> absl::StatusOr<std::vector<int64_t>> {
    const std::optional<DType> known = FindDType(std::string(dtype));
    if (!known) return absl::UnimplementedError(absl::StrCat("no layout has tensors of ", std::string(dtype)));
    ASSIGN_OR_RETURN(const Layout from, LayoutOf(mesh, source));
    ASSIGN_OR_RETURN(const Layout to, LayoutOf(mesh, target));
    ASSIGN_OR_RETURN(const Plan plan, MakePlan({from, to, *known}, {}));
    if (from.partial() && to.partial() != from.partial()) {
      RETURN_IF_ERROR(host::CheckReduction(from.partial()->op, *known));
    }
    int64_t moving = 0;
    for (const Step& step : plan.steps) moving += step.op == Op::kSlice ? 0 : 1;
    return std::vector<int64_t>{plan.totals.recv_bytes_max, moving};
  }));
}

void ConfigureTopology(std::optional<c10::string_view> name, std::optional<c10::string_view> json) {
  if (!name) {
    SetTopology(std::nullopt);
    return;
  }
  const std::string text(*name);
  SetTopology(ValueOrThrow(status::NoThrow("reading a topology", [&]() -> absl::StatusOr<Topology> {
    return json ? Topology::FromJson(std::string(*json), text) : Topology::Preset(text);
  })));
}

std::tuple<std::string, std::string> TopologyConfigured() {
  const std::optional<Topology> configured = ValueOrThrow(ConfiguredTopology());
  if (!configured) return {"", ""};
  nlohmann::json levels = nlohmann::json::array();
  for (const Topology::Level& level : configured->levels) {
    nlohmann::json entry = {{"gb_per_s", static_cast<double>(level.bytes_per_second) / 1e9},
                            {"latency_us", static_cast<double>(level.latency_ns) / 1e3}};
    if (level.devices != 0) entry["devices"] = level.devices;
    if (level.nics != 0) entry["nics"] = level.nics;
    levels.push_back(std::move(entry));
  }
  return {configured->name, nlohmann::json{{"levels", levels}}.dump()};
}

std::string RecentOperationsOf(c10::string_view group) {
  return TensorCommunicator::InUseOf(std::string(group))->RecentOperationsJson();
}

std::vector<int64_t> GoneRanksOf(c10::string_view group, at::IntArrayRef ranks) {
  return TensorCommunicator::OfGroup(std::string(group))
      ->communicator()
      .FindGone(absl::MakeConstSpan(ranks.data(), ranks.size()));
}

std::string LastTimingsOf(c10::string_view group) {
  const ExecuteResult result = TensorCommunicator::InUseOf(std::string(group))->last_result();
  const nlohmann::json object = {{"seconds", result.seconds},
                                 {"pack_seconds", result.moved.pack_seconds},
                                 {"communicate_seconds", result.moved.communicate_seconds},
                                 {"unpack_seconds", result.moved.unpack_seconds},
                                 {"received_bytes", result.moved.received},
                                 {"received_extra_bytes", result.moved.received_extra},
                                 {"copied_local_bytes", result.moved.copied_local},
                                 {"written_bytes", result.moved.written}};
  return object.dump();
}

}  // namespace reshard::pytorch
