// How fast the copy kernel is, beside the driver's own copy.
#ifndef RESHARD_TESTS_RUNTIME_CUDA_GPU_BANDWIDTH_H_
#define RESHARD_TESTS_RUNTIME_CUDA_GPU_BANDWIDTH_H_

#include "absl/status/status.h"
#include "runtime/cuda/device.h"

namespace reshard::testing {

// Prints one line a kind of copy: GB/s of payload, median of 20 launches, and its ratio to the driver's copy of as many
// bytes from device to device. Takes 2 GiB of memory.
absl::Status PrintBandwidth(cuda::CudaDevice& device, cuda::CudaStream stream);

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_RUNTIME_CUDA_GPU_BANDWIDTH_H_
