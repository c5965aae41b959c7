// The GPUs of this machine, as their driver lists them.
#ifndef RESHARD_NCCL_GPUS_H_
#define RESHARD_NCCL_GPUS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace reshard {

struct Gpu {
  std::string name;  // "NVIDIA H100 80GB HBM3"
  int major = 0;     // compute capability: 9.0
  int minor = 0;
};

struct GpuList {
  int driver_version = 0;  // the newest CUDA that the driver supports: 13000 is 13.0
  std::vector<Gpu> gpus;   // at least one; those that CUDA_VISIBLE_DEVICES hides are not among them
};

// Loads the driver; makes no context. Unavailable: there is no driver, or no GPU.
absl::StatusOr<GpuList> ListGpus();

// Whether this library was built with its GPU kernels. Without them it cannot move tensors on a GPU.
bool HasGpuKernels();

}  // namespace reshard

#endif  // RESHARD_NCCL_GPUS_H_
