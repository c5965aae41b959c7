// Queries from Python that move no data.
#ifndef RESHARD_RUNTIME_PYTORCH_PLANNING_H_
#define RESHARD_RUNTIME_PYTORCH_PLANNING_H_

#include <ATen/core/Tensor.h>

#include <string>

namespace reshard::pytorch {

// "S(0)[1]S(0)[0]R" over "{X:2,Y:2,Z:2}" -> canonical layout text. Throws c10::ValueError, c10::NotImplementedError.
std::string LayoutFromDTensor(c10::string_view placements, c10::string_view mesh, at::IntArrayRef shape);
// And back: a layout, or a layout rule, for a tensor of that shape. Throws the same.
std::string LayoutToDTensor(c10::string_view layout, c10::string_view mesh, at::IntArrayRef shape);

// As JSON: see RecentOperations; and {"seconds":..,"pack_seconds":..,"communicate_seconds":..,"unpack_seconds":..,
// "received_bytes":..,"copied_local_bytes":..,"written_bytes":..} of the last call that succeeded.
std::string RecentOperationsOf(c10::string_view group);
std::string LastTimingsOf(c10::string_view group);

}  // namespace reshard::pytorch

#endif  // RESHARD_RUNTIME_PYTORCH_PLANNING_H_
