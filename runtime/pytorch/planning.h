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
// And back: a layout, or a layout rule, for a tensor of that shape. Throws the same.
// A layout rule for a tensor of this shape, as a layout.
std::string LayoutOfRule(c10::string_view rule, c10::string_view mesh, at::IntArrayRef shape);
// The tensor's sizes.
std::vector<int64_t> LayoutShape(c10::string_view layout, c10::string_view mesh);
std::string LayoutToDTensor(c10::string_view layout, c10::string_view mesh, at::IntArrayRef shape);

// [bytes that one device receives at most, steps in which anything travels] of the plan on a network in which all
// devices are equally far: the same on every rank, whatever topology each was configured. Throws the same; the dtype is
// PyTorch's name for it, "torch.float32".
std::vector<int64_t> PlanFigures(c10::string_view mesh, c10::string_view source, c10::string_view target,
                                 c10::string_view dtype);

// What SetTopology (topology.h) does with a preset's name, or with the JSON that a file of that name holds; without
// both it forgets what was configured. Throws c10::ValueError.
void ConfigureTopology(std::optional<c10::string_view> name, std::optional<c10::string_view> json);
// Name and JSON of what is told, empty if nothing is. Throws c10::ValueError.
std::tuple<std::string, std::string> TopologyConfigured();

// Communicator::FindGone of the group's communicator for the host.
std::vector<int64_t> GoneRanksOf(c10::string_view group, at::IntArrayRef ranks);

// As JSON: see RecentOperations; and {"seconds":..,"pack_seconds":..,"communicate_seconds":..,"unpack_seconds":..,
// "received_bytes":..,"received_extra_bytes":..,"copied_local_bytes":..,"written_bytes":..} of the last call that
// succeeded.
std::string RecentOperationsOf(c10::string_view group);
std::string LastTimingsOf(c10::string_view group);

}  // namespace reshard::pytorch

#endif  // RESHARD_RUNTIME_PYTORCH_PLANNING_H_
