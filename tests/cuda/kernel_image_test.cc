#include "runtime/cuda/kernel_image.h"

#include <cstdint>
#include <cstring>

#include "tests/catch.h"

namespace reshard {
namespace {

TEST_CASE("the kernels lie in the library as a fat binary") {
  if (KernelImage() == nullptr) {
    WARN("built without the CUDA toolkit: there is nothing to look at");
    return;
  }
  // Its header: a magic number, the version, its own size, and the size of what follows.
  CHECK(reinterpret_cast<uintptr_t>(KernelImage()) % 8 == 0);
  uint32_t magic = 0;
  uint64_t bytes = 0;
  std::memcpy(&magic, KernelImage(), sizeof(magic));
  std::memcpy(&bytes, static_cast<const char*>(KernelImage()) + 8, sizeof(bytes));
  CHECK(magic == 0xBA55ED50);
  CHECK(bytes > 10000);
}

}  // namespace
}  // namespace reshard
