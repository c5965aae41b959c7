// The compiled kernels of kernels.cu, as they lie in this library.
#ifndef RESHARD_RUNTIME_CUDA_KERNEL_IMAGE_H_
#define RESHARD_RUNTIME_CUDA_KERNEL_IMAGE_H_

namespace reshard::cuda {

// A fat binary with code for sm_80, sm_90 and sm_100 and PTX for others; null when the library was built without the
// CUDA toolkit.
const void* KernelImage();

}  // namespace reshard::cuda

#endif  // RESHARD_RUNTIME_CUDA_KERNEL_IMAGE_H_
