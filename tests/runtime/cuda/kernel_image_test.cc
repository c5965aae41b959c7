#include "runtime/cuda/kernel_image.h"

#include <cstdint>
#include <cstring>

#include "tests/catch.h"

namespace reshard {
namespace {

TEST_CASE("the kernels lie in the library as a fat binary") {
  if (cuda::KernelImage() == nullptr) RESHARD_SKIP("the kernels, since this was built without the CUDA toolkit");
  // Its header: a magic number, the version, its own size, and the size of what follows.
  CHECK(reinterpret_cast<uintptr_t>(cuda::KernelImage()) % 8 == 0);
  uint32_t magic = 0;
  uint64_t bytes = 0;
  std::memcpy(&magic, cuda::KernelImage(), sizeof(magic));
  std::memcpy(&bytes, static_cast<const char*>(cuda::KernelImage()) + 8, sizeof(bytes));
  CHECK(magic == 0xBA55ED50);
  CHECK(bytes > 10000);
}

}  // namespace
}  // namespace reshard
