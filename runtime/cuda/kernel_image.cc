#include "runtime/cuda/kernel_image.h"

#ifdef RESHARD_KERNEL_IMAGE
// The file becomes part of this object as it is: no array of a million numbers to compile.
asm(".pushsection .rodata\n"
    ".balign 64\n"
    "reshard_kernel_image:\n"
    ".incbin \"" RESHARD_KERNEL_IMAGE
    "\"\n"
    ".popsection\n");
extern "C" __attribute__((visibility("hidden"))) const char reshard_kernel_image[];
#endif

namespace reshard::cuda {

const void* KernelImage() {
#ifdef RESHARD_KERNEL_IMAGE
  return reshard_kernel_image;
#else
  return nullptr;
#endif
}

}  // namespace reshard::cuda
