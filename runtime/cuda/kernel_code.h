// The code of the kernels, for the device and for the host alike: kernels.cu runs it on a GPU, tests run it block by
// block on the host.
#ifndef RESHARD_RUNTIME_CUDA_KERNEL_CODE_H_
#define RESHARD_RUNTIME_CUDA_KERNEL_CODE_H_

#include <cstdint>

namespace reshard {

struct CopyEntry {
  int64_t placeholder;
};
struct ReduceEntry {
  int64_t placeholder;
};

}  // namespace reshard

#endif  // RESHARD_RUNTIME_CUDA_KERNEL_CODE_H_
