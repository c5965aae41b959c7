#include "tests/runtime/cuda/gpu/bandwidth.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "reshard/runtime/strided_copy.h"
#include "reshard/runtime/tensor_view.h"
#include "runtime/cuda/copy_table.h"

namespace reshard::testing {
namespace {

// Far beyond the caches of any GPU.
constexpr int64_t kBufferBytes = int64_t{1} << 30;
constexpr int64_t kPayload = kBufferBytes / 2;
constexpr int kWarmUps = 3;
constexpr int kRuns = 20;

// One tensor of a case: a copy from some byte of the one buffer to some byte of the other.
struct TensorCopy {
  StridedCopy copy;
  int64_t from = 0;
  int64_t to = 0;
};

class Bench {
 public:
  Bench(cuda::CudaDevice& device, cuda::CudaStream stream) : device_(device), stream_(stream) {}

  absl::Status Start() {
    for (cuda::DeviceBlock* buffer : {&from_, &to_}) {
      absl::StatusOr<cuda::DeviceBlock> block = device_.Allocate(kBufferBytes, stream_);
      if (!block.ok()) return block.status();
      *buffer = *std::move(block);
    }
    // Every page is touched once.
    absl::Status status = device_.Copy(from_.data(), to_.data(), kBufferBytes, stream_);
    if (status.ok()) status = device_.Copy(to_.data(), from_.data(), kBufferBytes, stream_);
    const cuda::CudaDevice::Current current(device_);
    for (cuda::CudaEvent* event : {&begin_, &end_}) {
      if (status.ok()) status = Checked(device_.api().EventCreate(event, 0), "making an event");
    }
    return status;
  }

  // One line. Every piece has two base addresses of its own, like the tensors of a step.
  absl::Status Line(const std::string& name, const std::vector<TensorCopy>& pieces) {
    std::vector<cuda::CopyJob> jobs;
    std::vector<void*> bases;
    int64_t bytes = 0;
    for (const TensorCopy& piece : pieces) {
      const int base = static_cast<int>(bases.size());
      jobs.push_back({&piece.copy, base, 0, base + 1, 0});
      bases.push_back(from_.data() + piece.from);
      bases.push_back(to_.data() + piece.to);
      bytes += piece.copy.bytes();
    }
    absl::StatusOr<cuda::UploadedTable> table = device_.Upload(cuda::MakeCopyTable(jobs));
    if (!table.ok()) return table.status();
    const absl::StatusOr<double> kernel = Median([&] { return device_.Launch(*table, bases, stream_); });
    if (!kernel.ok()) return kernel.status();
    const absl::StatusOr<double> driver =
        Median([&] { return device_.Copy(to_.data(), from_.data(), bytes, stream_); });
    if (!driver.ok()) return driver.status();
    const double megabytes = static_cast<double>(bytes) / 1e6;
    std::printf("%-44s %9.1f %9.1f %9.1f %9.1f %7.3f\n", name.c_str(), megabytes, *kernel * 1e3, megabytes / *kernel,
                megabytes / *driver, *driver / *kernel);
    std::fflush(stdout);
    return absl::OkStatus();
  }

  void Stop() {
    const cuda::CudaDevice::Current current(device_);
    for (cuda::CudaEvent event : {begin_, end_}) {
      if (event != nullptr) device_.api().EventDestroy(event);
    }
  }

 private:
  absl::Status Checked(cuda::CudaResult result, absl::string_view what) {
    return cuda::CudaStatus(device_.api(), result, what);
  }

  // Milliseconds.
  absl::StatusOr<double> Median(absl::FunctionRef<absl::Status()> enqueue) {
    std::vector<double> times;
    for (int run = -kWarmUps; run < kRuns; ++run) {
      const cuda::CudaDevice::Current current(device_);
      float milliseconds = 0;
      absl::Status status = Checked(device_.api().EventRecord(begin_, stream_), "recording an event");
      if (status.ok()) status = enqueue();
      if (status.ok()) status = Checked(device_.api().EventRecord(end_, stream_), "recording an event");
      if (status.ok()) status = Checked(device_.api().StreamSynchronize(stream_), "waiting for a copy");
      if (status.ok()) status = Checked(device_.api().EventElapsedTime(&milliseconds, begin_, end_), "its time");
      if (!status.ok()) return status;
      if (run >= 0) times.push_back(milliseconds);
    }
    std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
    return times[kRuns / 2];
  }

  cuda::CudaDevice& device_;
  const cuda::CudaStream stream_;
  cuda::DeviceBlock from_;
  cuda::DeviceBlock to_;
  cuda::CudaEvent begin_ = nullptr;
  cuda::CudaEvent end_ = nullptr;
};

// Runs of so many bytes: every second one of the one side, without gaps on the other.
TensorCopy Runs(int64_t bytes, int64_t run, bool pack) {
  const Dims gaps = {2 * run, 1};
  const Dims dense = {run, 1};
  return {StridedCopy(WholeRegion({bytes / run, run}), 1, pack ? gaps : dense, pack ? dense : gaps), 0, 0};
}

TensorCopy Transpose(int64_t rows, int64_t columns, int64_t element_size) {
  return {StridedCopy(WholeRegion({rows, columns}), element_size, {1, rows}, {columns, 1}), 0, 0};
}

// `count` tensors of so many bytes, one behind the other, each every second run of `run` bytes.
std::vector<TensorCopy> Small(int64_t count, int64_t bytes, int64_t run) {
  std::vector<TensorCopy> pieces;
  for (int64_t i = 0; i < count; ++i) {
    TensorCopy piece = Runs(bytes, run, true);
    piece.from = i * bytes * 2;
    piece.to = i * bytes;
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

absl::Status PrintLines(Bench& bench) {
  std::printf("%-44s %9s %9s %9s %9s %7s\n", "copy", "MB", "us", "GB/s", "driver", "ratio");
  absl::Status status;
  const auto line = [&](const std::string& name, const std::vector<TensorCopy>& pieces) {
    if (status.ok()) status = bench.Line(name, pieces);
  };
  line("contiguous", {{StridedCopy(WholeRegion({kPayload}), 1, {1}, {1}), 0, 0}});
  line("contiguous, 4 bytes off a vector on one side", {{StridedCopy(WholeRegion({kPayload}), 1, {1}, {1}), 4, 0}});
  line("contiguous, 2 bytes off a vector on one side", {{StridedCopy(WholeRegion({kPayload}), 1, {1}, {1}), 2, 0}});
  for (bool pack : {true, false}) {
    for (int64_t run : {4, 8, 16, 32, 64, 128, 256, 1024, 65536}) {
      line(absl::StrCat(pack ? "pack" : "unpack", ", runs of ", run, " bytes"), {Runs(kPayload, run, pack)});
    }
  }
  // Rows that no vector divides; then the heads of an attention, without a batch and with one.
  line("pack, runs of 1028 bytes", {Runs(kPayload / 1028 * 1028, 1028, true)});
  line("pack, runs of 1026 bytes", {Runs(kPayload / 1026 * 1026, 1026, true)});
  line("runs of 256 bytes in two loops",
       {{StridedCopy(WholeRegion({4096, 512, 128}), 2, {128, 4096 * 128, 1}, {512 * 128, 128, 1}), 0, 0}});
  line("runs of 256 bytes in three loops",
       {{StridedCopy(WholeRegion({4, 512, 1024, 128}), 2, {1024 * 512 * 128, 128, 512 * 128, 1},
                     {1024 * 512 * 128, 1024 * 128, 128, 1}),
         0, 0}});
  for (int64_t size : {1, 2, 4, 8, 16}) {
    const int64_t columns = 8192;
    line(absl::StrCat("transpose of ", size, "-byte elements"), {Transpose(kPayload / size / columns, columns, size)});
  }
  line("transpose of 2-byte elements, odd sizes", {Transpose(32767, 8191, 2)});
  line("1,000 tensors of 512 KiB, runs of 1 KiB", Small(1000, 512 << 10, 1024));
  line("1,000 tensors of 64 KiB, runs of 128 bytes", Small(1000, 64 << 10, 128));
  line("1,000 tensors of 4 KiB, runs of 256 bytes", Small(1000, 4 << 10, 256));
  line("10,000 tensors of 1 KiB, runs of 256 bytes", Small(10000, 1 << 10, 256));
  return status;
}

}  // namespace

absl::Status PrintBandwidth(cuda::CudaDevice& device, cuda::CudaStream stream) {
  Bench bench(device, stream);
  absl::Status status = bench.Start();
  if (status.ok()) status = PrintLines(bench);
  bench.Stop();
  return status;
}

}  // namespace reshard::testing
