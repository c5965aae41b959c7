// Executes steps on a GPU over a backend that carries contiguous messages: packs, moves, unpacks, reduces. Everything
// is enqueued on one stream; nothing here waits for the device.
//
// A step is at most one pack launch, one exchange and one unpack launch, for all peers and all tensors together. A
// transfer whose bytes lie contiguously in the fragment is sent from there or received into it directly; where all are,
// nothing is launched. What a rank keeps is copied by whichever launch there is, else by a copy of the driver when it
// is one contiguous run, else by a launch of its own.
//
// Where all members of a group trade equal parts in the order of the group, the step is one collective of the backend;
// otherwise sends and receives. Reductions are the backend's where it has the operation for the type; else all-to-alls
// of contributions that a kernel combines in the order of the ranks.
#ifndef RESHARD_RUNTIME_CUDA_DEVICE_STEP_H_
#define RESHARD_RUNTIME_CUDA_DEVICE_STEP_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/runtime/communicator.h"
#include "reshard/runtime/program.h"
#include "reshard/runtime/tensor_view.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/device_transport.h"

namespace reshard::cuda {

// One step of a program compiled for CopyFor::kMessages, on rank `rank`. All views are in memory of the device. `memo`
// keeps the tables of the step between calls; the first call with other strides makes new ones. FailedPrecondition: the
// stream is being captured and the step has not been run before with these strides. ResourceExhausted: no memory for
// staging. Otherwise what the driver or the transport reports.
absl::StatusOr<MoveStats> ExecuteDeviceStep(const StepProgram& step, int64_t rank,
                                            absl::Span<const ConstTensorView> inputs,
                                            absl::Span<const TensorView> outputs, CudaDevice& device, CudaStream stream,
                                            DeviceTransport& transport, std::unique_ptr<StepMemo>* memo);

}  // namespace reshard::cuda

#endif  // RESHARD_RUNTIME_CUDA_DEVICE_STEP_H_
