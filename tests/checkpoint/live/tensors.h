// Tensors whose elements say which they are, checkpoints of them, and who holds what by the oracle.
#ifndef RESHARD_TESTS_CHECKPOINT_LIVE_TENSORS_H_
#define RESHARD_TESTS_CHECKPOINT_LIVE_TENSORS_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "reshard/layout/dtype.h"

namespace reshard::testing {

struct TestTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  uint64_t seed = 0;  // other contents

  int64_t elements() const;
};

// The bytes of element number `index`, counted row-major over the whole tensor.
std::string ElementOf(const TestTensor& tensor, int64_t index);

// A safetensors file of whole tensors, made by hand. The dtypes are among kI8, kF16, kF32, kF64.
void WriteSafetensors(const std::string& path, const std::vector<TestTensor>& tensors);

// The global numbers of the elements that a device holds, in the order of its dense fragment, and the fragment's shape.
// By the oracle. Nothing for a device that is not in the mesh.
struct Held {
  std::vector<int64_t> shape;
  std::vector<int64_t> numbers;
};
Held HeldBy(const std::string& mesh, const std::string& layout, int64_t device);

class Random {
 public:
  explicit Random(uint64_t seed) : generator_(seed) {}
  int64_t Pick(int64_t low, int64_t high);  // both included
  bool Chance(int percent) { return Pick(1, 100) <= percent; }

  // Axes A, B, C of 1 to 4 devices together at most `devices`; among the ids 0 .. devices-1, in any order.
  std::string MeshText(int64_t devices);
  std::vector<int64_t> Shape();
  // Any of the mesh's axes on any of the dimensions in any order, reflected or behind a digit now and then, or a table
  // of slots.
  std::string LayoutText(const std::string& mesh, const std::vector<int64_t>& shape);
  std::vector<TestTensor> Tensors();

 private:
  std::string SlotsText(int64_t ranks, int64_t size);

  std::mt19937_64 generator_;
};

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_CHECKPOINT_LIVE_TENSORS_H_
