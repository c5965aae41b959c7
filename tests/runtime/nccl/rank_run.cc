#include "tests/runtime/nccl/rank_run.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/cuda/device.h"
#include "tests/runtime/spread.h"

namespace reshard::testing {
namespace {

// Copies between host and device, waiting for the end.
absl::Status CopyNow(cuda::CudaDevice& device, void* to, const void* from, int64_t bytes) {
  const absl::Status copied = device.Copy(to, from, bytes, nullptr);
  if (!copied.ok()) return copied;
  const cuda::CudaDevice::Current current(device);
  return cuda::CudaStatus(device.api(), device.api().StreamSynchronize(nullptr), "waiting for a copy");
}

// A host buffer and its copy on the device.
class DeviceCopy {
 public:
  static absl::StatusOr<DeviceCopy> Create(cuda::CudaDevice& device, std::vector<char>* host) {
    absl::StatusOr<cuda::DeviceBlock> block = device.Allocate(static_cast<int64_t>(host->size()), nullptr);
    if (!block.ok()) return block.status();
    return DeviceCopy(device, host, *std::move(block));
  }
  absl::Status ToDevice() {
    return CopyNow(*device_, block_.data(), host_->data(), static_cast<int64_t>(host_->size()));
  }
  absl::Status ToHost() { return CopyNow(*device_, host_->data(), block_.data(), static_cast<int64_t>(host_->size())); }
  TensorView View(TensorView host_view) const {
    host_view.data = block_.data();
    host_view.memory = MemoryKind::kCuda;
    return host_view;
  }

 private:
  DeviceCopy(cuda::CudaDevice& device, std::vector<char>* host, cuda::DeviceBlock block)
      : device_(&device), host_(host), block_(std::move(block)) {}
  cuda::CudaDevice* device_;
  std::vector<char>* host_;
  cuda::DeviceBlock block_;
};

}  // namespace

absl::Status RunOnRank(const Plan& plan, const self_test::LogicalContent& content, NcclCommunicator& comm,
                       const RankRun& how) {
  absl::StatusOr<Program> compiled = CompileProgram(plan, comm.rank(), {comm.copies(), true});
  if (!compiled.ok()) return compiled.status();
  const auto program = std::make_shared<const Program>(*std::move(compiled));
  absl::StatusOr<Executor> executor = Executor::Create(program, &comm, how.agreement);
  if (!executor.ok()) return executor.status();
  const Buffer& from = program->source();
  const Buffer& to = program->target();
  const std::optional<int64_t> in = plan.source.mesh().Position(comm.rank());
  const std::optional<int64_t> out = plan.target.mesh().Position(comm.rank());

  std::vector<char> source(static_cast<size_t>(from.bytes));
  std::vector<char> target(static_cast<size_t>(to.bytes));
  if (in) content.Fill(plan.source, *in, source.data());
  Spread wide_source(from);
  Spread wide_target(to);
  wide_source.CopyFrom(source.data());
  std::vector<char>* const host_source = how.strided ? &wide_source.memory : &source;
  std::vector<char>* const host_target = how.strided ? &wide_target.memory : &target;
  const std::vector<char> before = *host_source;

  absl::StatusOr<DeviceCopy> device_source = DeviceCopy::Create(comm.device(), host_source);
  if (!device_source.ok()) return device_source.status();
  absl::StatusOr<DeviceCopy> device_target = DeviceCopy::Create(comm.device(), host_target);
  if (!device_target.ok()) return device_target.status();
  const TensorView source_view = device_source->View(
      how.strided ? wide_source.View() : DenseView(static_cast<void*>(nullptr), from.dtype, from.shape));
  const TensorView target_view = device_target->View(
      how.strided ? wide_target.View() : DenseView(static_cast<void*>(nullptr), to.dtype, to.shape));
  int64_t planned = 0;
  for (const StepProgram& step : program->steps) planned += step.recv_bytes;

  absl::Status status = device_source->ToDevice();
  for (int time = 0; time < how.times && status.ok(); ++time) {
    std::fill(target.begin(), target.end(), kGap);
    std::fill(wide_target.memory.begin(), wide_target.memory.end(), kGap);
    status = device_target->ToDevice();
    if (!status.ok()) return status;
    const absl::StatusOr<ExecuteResult> result = executor->Execute(source_view, target_view);
    if (!result.ok()) return result.status();
    status = comm.Wait();
    if (status.ok()) status = device_target->ToHost();
    if (!status.ok()) return status;
    if (how.strided) {
      wide_target.CopyTo(target.data());
      if (!wide_target.GapsIntact()) return absl::DataLossError("bytes between the elements were written");
    }
    if (result->moved.received != planned) {
      return absl::DataLossError(absl::StrCat("received ", result->moved.received, " bytes, planned ", planned));
    }
    int64_t first = 0;
    const int64_t wrong = out ? content.CountMismatches(plan.target, *out, target.data(), &first) : 0;
    if (wrong > 0) return absl::DataLossError(absl::StrCat(wrong, " wrong elements, the first is number ", first));
  }
  if (status.ok()) status = device_source->ToHost();
  if (status.ok() && *host_source != before) return absl::DataLossError("the source has changed");
  return status;
}

}  // namespace reshard::testing
