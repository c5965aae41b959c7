// Boxes of an open checkpoint: any box, into memory of any strides.
#include "reshard/live/stored_checkpoint.h"

#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/checkpoint/io/temp_directory.h"
#include "tests/checkpoint/live/tensors.h"

namespace reshard::testing {
namespace {

constexpr char kUntouched = '\x5A';

TEST_CASE("any box of any tensor is read, dense or strided") {
  const uint64_t seed = Seed();
  for (uint64_t run = 0; run < 100; ++run) {
    INFO("seed " << seed << ", run " << run);
    Random random(seed + run);
    const TempDirectory directory;
    const std::vector<TestTensor> tensors = random.Tensors();
    WriteSafetensors(directory / "model.safetensors", tensors);
    absl::StatusOr<StoredCheckpoint> stored = StoredCheckpoint::Open(directory / "model.safetensors", {});
    REQUIRE(stored.status().ToString() == "OK");
    for (const TestTensor& tensor : tensors) {
      const Catalog::Tensor* const found = stored->catalog().FindTensor(tensor.name);
      REQUIRE(found != nullptr);
      BoxRead box;
      box.tensor = found - stored->catalog().tensors().data();
      Dims size;
      for (const int64_t whole : tensor.shape) {
        box.offset.push_back(random.Pick(0, whole));
        size.push_back(random.Pick(0, whole - box.offset.back()));
      }
      const int64_t step = random.Pick(1, 3), element = SizeOf(tensor.dtype), count = NumElements(size);
      std::vector<char> memory(static_cast<size_t>(count * element * step), kUntouched);
      box.into = DenseView(static_cast<void*>(memory.data()), tensor.dtype, size);
      for (int64_t& stride : box.into.strides) stride *= step;
      REQUIRE(stored->Read({&box, 1}, static_cast<int>(random.Pick(1, 3))).ToString() == "OK");
      size_t wrong = 0;
      for (int64_t i = 0; i < count; ++i) {
        int64_t rest = i, number = 0;
        std::vector<int64_t> index(size.size());
        for (size_t d = size.size(); d-- > 0; rest /= size[d]) index[d] = box.offset[d] + rest % size[d];
        for (size_t d = 0; d < size.size(); ++d) number = number * tensor.shape[d] + index[d];
        const size_t at = static_cast<size_t>(i * element * step);
        wrong += std::string(&memory[at], static_cast<size_t>(element)) != ElementOf(tensor, number);
        if (step > 1) wrong += memory[at + static_cast<size_t>(element)] != kUntouched;
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("boxes that do not fit are refused, with the tensor") {
  const TempDirectory directory;
  const std::vector<TestTensor> tensors = {{"w", DType::kF32, {4, 6}}};
  WriteSafetensors(directory / "model.safetensors", tensors);
  absl::StatusOr<StoredCheckpoint> stored = StoredCheckpoint::Open(directory / "model.safetensors", {});
  REQUIRE(stored.ok());
  std::vector<float> memory(24);
  const auto refused = [&](BoxRead box) { return std::string(stored->Read({&box, 1}).message()); };
  const auto view = [&](Dims shape) { return DenseView(static_cast<void*>(memory.data()), DType::kF32, shape); };
  CHECK(refused({1, {0, 0}, view({4, 6})}) == "there is no tensor 1");
  CHECK(refused({0, {1, 0}, view({4, 6})}) ==
        "tensor \"w\": the box of [4, 6] at [1, 0] is not within its shape [4, 6]");
  CHECK(refused({0, {INT64_MAX, 0}, view({1, 1})}).find("not within its shape") != std::string::npos);
  CHECK(refused({0, {0, -1}, view({1, 1})}).find("not within its shape") != std::string::npos);
  CHECK(refused({0, {0}, view({4})}).find("not within its shape") != std::string::npos);
  TensorView other = view({4, 6});
  other.dtype = DType::kF64;
  CHECK(refused({0, {0, 0}, other}) == "tensor \"w\": the checkpoint has f32, not f64");
  TensorView folded = view({4, 6});
  folded.strides = {0, 1};
  CHECK(refused({0, {0, 0}, folded}).find("several indices") != std::string::npos);
  CHECK(stored->ReadItem(0).status().message() == "there is no byte item 0");
  CHECK(absl::IsNotFound(StoredCheckpoint::Open(directory / "nothing", {}).status()));
}

}  // namespace
}  // namespace reshard::testing
