// Queries from Python that move no data.
#ifndef RESHARD_RUNTIME_PYTORCH_PLANNING_H_
#define RESHARD_RUNTIME_PYTORCH_PLANNING_H_

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace reshard::pytorch {

// "S(0)[1]S(0)[0]R" over "{X:2,Y:2,Z:2}" -> canonical layout text. Throws c10::ValueError, c10::NotImplementedError.
std::string LayoutFromDTensor(c10::string_view placements, c10::string_view mesh, at::IntArrayRef shape);
// Applies a layout rule to a tensor of this shape; returns canonical layout text. Throws the same.
std::string LayoutOfRule(c10::string_view rule, c10::string_view mesh, at::IntArrayRef shape);
// The global sizes of a tensor with this layout. Throws the same.
std::vector<int64_t> LayoutShape(c10::string_view layout, c10::string_view mesh);
// The inverse of LayoutFromDTensor, for a layout or a layout rule and a tensor of this shape. Throws the same.
std::string LayoutToDTensor(c10::string_view layout, c10::string_view mesh, at::IntArrayRef shape);

// [most bytes that one device receives, number of steps in which anything travels] of the plan on a network in which
// all devices are equally far apart: the same on every rank, whatever topology each is configured with. Throws the
// same. `dtype` is PyTorch's name for it, "torch.float32".
std::vector<int64_t> PlanFigures(c10::string_view mesh, c10::string_view source, c10::string_view target,
                                 c10::string_view dtype);

// Calls SetTopology (topology.h) with the preset `name` or, if `json` is given, with that, the content of a file
// `name`; with neither, forgets what was configured. Throws c10::ValueError.
void ConfigureTopology(std::optional<c10::string_view> name, std::optional<c10::string_view> json);
// Name and JSON of the configured topology, empty if there is none. Throws c10::ValueError.
std::tuple<std::string, std::string> TopologyConfigured();

// Communicator::FindGone of the group's communicator for the host.
std::vector<int64_t> GoneRanksOf(c10::string_view group, at::IntArrayRef ranks);

// As JSON: the operations of RecentOperations; and the times and bytes of the last call that succeeded,
// {"seconds":..,"pack_seconds":..,"communicate_seconds":..,"unpack_seconds":..,"received_bytes":..,
// "received_extra_bytes":..,"copied_local_bytes":..,"written_bytes":..}.
std::string RecentOperationsOf(c10::string_view group);
std::string LastTimingsOf(c10::string_view group);

}  // namespace reshard::pytorch

#endif  // RESHARD_RUNTIME_PYTORCH_PLANNING_H_
