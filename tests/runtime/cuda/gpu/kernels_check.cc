// The kernels on a GPU: what they write, against StridedCopy and ReduceBox, and how fast they copy.
//
//   gpu_kernels [--check]     --check: without the bandwidths
//
// Where there is no GPU it says so and ends with 77, which CTest reports as skipped. $RESHARD_TEST_SEED is the seed of
// the problems.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/cuda/cuda_api.h"
#include "runtime/cuda/device.h"
#include "tests/runtime/cases.h"
#include "tests/runtime/cuda/copy_problems.h"
#include "tests/runtime/cuda/gpu/bandwidth.h"
#include "tests/runtime/cuda/reduce_problems.h"

namespace reshard::testing {
namespace {

// Buffers of the host on the device, each at a multiple of 256 bytes.
class Buffers {
 public:
  explicit Buffers(cuda::CudaDevice& device, cuda::CudaStream stream) : device_(device), stream_(stream) {}

  void Add(const std::vector<char>& bytes) {
    at_.push_back(static_cast<int64_t>(host_.size()));
    host_.insert(host_.end(), bytes.begin(), bytes.end());
    host_.resize((host_.size() + 255) / 256 * 256);
  }
  // Buffer i at data(i).
  absl::Status Send() {
    absl::StatusOr<cuda::DeviceBlock> block = device_.Allocate(static_cast<int64_t>(host_.size()), stream_);
    if (!block.ok()) return block.status();
    block_ = *std::move(block);
    return device_.Copy(block_.data(), host_.data(), static_cast<int64_t>(host_.size()), stream_);
  }
  absl::Status Fetch() {
    const absl::Status status = device_.Copy(host_.data(), block_.data(), static_cast<int64_t>(host_.size()), stream_);
    if (!status.ok()) return status;
    const cuda::CudaDevice::Current current(device_);
    return cuda::CudaStatus(device_.api(), device_.api().StreamSynchronize(stream_), "waiting for a kernel");
  }
  char* data(size_t i) const { return block_.data() + at_[i]; }
  std::vector<char> Fetched(size_t i, size_t bytes) const {
    const auto begin = host_.begin() + at_[i];
    return {begin, begin + static_cast<int64_t>(bytes)};
  }

 private:
  cuda::CudaDevice& device_;
  const cuda::CudaStream stream_;
  std::vector<char> host_;
  std::vector<int64_t> at_;
  cuda::DeviceBlock block_;
};

// Launches a table whose problems have buffers 2i and 2i+1.
template <typename Launch>
absl::Status Run(cuda::CudaDevice& device, cuda::CudaStream stream, const Launch& launch, Buffers* buffers) {
  absl::Status status = buffers->Send();
  if (!status.ok()) return status;
  absl::StatusOr<cuda::UploadedTable> table = device.Upload(launch.table);
  if (!table.ok()) return table.status();
  std::vector<void*> bases;
  for (size_t i = 0; i < launch.base_at.size(); ++i) bases.push_back(buffers->data(i) + launch.base_at[i]);
  status = device.Launch(*table, bases, stream);
  return status.ok() ? buffers->Fetch() : status;
}

absl::Status CheckCopies(cuda::CudaDevice& device, cuda::CudaStream stream, std::mt19937_64& random,
                         const std::vector<CopyProblem>& problems, int64_t entry_limit = cuda::kCopyEntryLimit) {
  Buffers buffers(device, stream);
  for (const CopyProblem& p : problems) {
    buffers.Add(p.from.bytes);
    buffers.Add(p.to.bytes);
  }
  const CopyLaunch launch = LaunchOf(random, problems, entry_limit);
  const absl::Status status = Run(device, stream, launch, &buffers);
  if (!status.ok()) return status;
  for (size_t i = 0; i < problems.size(); ++i) {
    const std::vector<char> expected = Expected(problems[i]);
    const std::vector<char> got = buffers.Fetched(2 * i + 1, expected.size());
    for (size_t byte = 0; byte < expected.size(); ++byte) {
      if (got[byte] != expected[byte]) {
        return absl::DataLossError(absl::StrCat("copy ", i, " of ", problems.size(), ": byte ", byte, " of ",
                                                expected.size(), " differs; elements of ", problems[i].element_size,
                                                " bytes, entries up to ", entry_limit));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status CheckReductions(cuda::CudaDevice& device, cuda::CudaStream stream, std::mt19937_64& random,
                             const std::vector<ReduceProblem>& problems) {
  Buffers buffers(device, stream);
  for (const ReduceProblem& p : problems) {
    buffers.Add(p.in);
    buffers.Add(p.before);
  }
  const absl::Status status = Run(device, stream, LaunchOf(random, problems), &buffers);
  if (!status.ok()) return status;
  for (size_t i = 0; i < problems.size(); ++i) {
    const std::string difference = Difference(problems[i], buffers.Fetched(2 * i + 1, problems[i].before.size()));
    if (!difference.empty()) return absl::DataLossError(difference);
  }
  return absl::OkStatus();
}

std::vector<CopyProblem> RandomCopies(std::mt19937_64& random, size_t count, size_t dims, int64_t longest) {
  std::vector<CopyProblem> problems;
  for (size_t i = 0; i < count; ++i) problems.push_back(RandomCopy(random, dims, longest));
  return problems;
}

// Copies that fill whole blocks and tiles.
std::vector<CopyProblem> LargeCopies(std::mt19937_64& random) {
  std::vector<CopyProblem> problems;
  for (int64_t size : {1, 2, 4, 8, 16}) {
    const int64_t off = size == 16 ? 0 : size;
    problems.push_back(WholeCopy(random, {700, 515}, size, {1, 700}, {515, 1}, off, off));
    problems.push_back(WholeCopy(random, {512, 512}, size, {-1, 512}, {512, 1}));
    problems.push_back(WholeCopy(random, {300, 300}, size, {1, 300}, {300, 1}, 1, 1));
    problems.push_back(WholeCopy(random, {3, 80, 2, 130}, size, {20800, 1, 10400, 80}, {20800, 260, 130, 1}));
    problems.push_back(WholeCopy(random, {1001, 777}, size, {780, 1}, {777, 1}, off, 0));
    problems.push_back(WholeCopy(random, {30, 20, 50, 64}, size, {64 * 1100, 64 * 55, 64, 1}, {64000, 3200, 64, 1}));
    problems.push_back(WholeCopy(random, {1000003}, size, {1}, {1}, off, 0));
    problems.push_back(WholeCopy(random, {3, 70001}, size, {70003, 1}, {70001, 1}, 3, 5));
  }
  return problems;
}

absl::Status CheckAll(cuda::CudaDevice& device, cuda::CudaStream stream, uint64_t seed) {
  std::mt19937_64 random(seed);
  absl::Status status;
  for (int round = 0; status.ok() && round < 300; ++round) {
    std::vector<CopyProblem> problems = RandomCopies(random, random() % 6, 4, 6);
    for (CopyProblem& p : RandomCopies(random, random() % 4, 2, 200)) problems.push_back(std::move(p));
    status = CheckCopies(device, stream, random, problems, round % 3 == 0 ? 4096 : cuda::kCopyEntryLimit);
  }
  if (status.ok()) status = CheckCopies(device, stream, random, RandomCopies(random, 5000, 2, 6));
  if (status.ok()) status = CheckCopies(device, stream, random, LargeCopies(random));
  if (!status.ok()) return status;
  std::printf("copies: what StridedCopy writes\n");

  for (DType dtype : kAllTypes) {
    if (status.ok()) status = CheckReductions(device, stream, random, AllReductions(random, dtype));
    if (!status.ok()) return status;
    std::vector<ReduceProblem> large;
    large.push_back(RandomReduction(random, dtype, ReduceOp::kSum, 1000003, 8, 0, 16 - 1000003 * SizeOf(dtype) % 16));
    large.push_back(RandomReduction(random, dtype, ReduceOp::kProd, 300000, 3, SizeOf(dtype), 0));
    status = CheckReductions(device, stream, random, large);
  }
  if (status.ok()) std::printf("reductions: what ReduceBox writes, for all types and operations\n");
  return status;
}

absl::Status Main(const cuda::CudaApi& api, bool only_check) {
  absl::StatusOr<std::unique_ptr<cuda::CudaDevice>> opened = cuda::CudaDevice::Open(api, 0);
  if (!opened.ok()) return opened.status();
  cuda::CudaDevice& device = **opened;
  const char* given = std::getenv("RESHARD_TEST_SEED");
  const uint64_t seed = given == nullptr ? 20240607 : std::strtoull(given, nullptr, 10);
  std::printf("%s, RESHARD_TEST_SEED=%llu\n", device.name().c_str(), static_cast<unsigned long long>(seed));
  cuda::CudaStream stream = nullptr;
  absl::Status status;
  {
    const cuda::CudaDevice::Current current(device);
    status = cuda::CudaStatus(api, api.StreamCreate(&stream, cuda::kCudaStreamNonBlocking), "making a stream");
  }
  if (status.ok()) status = CheckAll(device, stream, seed);
  if (status.ok() && !only_check) status = PrintBandwidth(device, stream);
  const cuda::CudaDevice::Current current(device);
  if (stream != nullptr) {
    api.StreamSynchronize(stream);
    api.StreamDestroy(stream);
  }
  return status;
}

}  // namespace
}  // namespace reshard::testing

int main(int argc, char** argv) {
  const bool only_check = argc > 1 && std::strcmp(argv[1], "--check") == 0;
  const absl::StatusOr<const reshard::cuda::CudaApi*> api = reshard::cuda::LoadCudaApi();
  if (!api.ok()) {
    std::printf("test skipped: the kernels on a GPU: %s\n", api.status().ToString().c_str());
    return 77;
  }
  const absl::Status status = reshard::testing::Main(**api, only_check);
  if (!status.ok()) std::printf("%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
