#include "tests/fakes/nccl_world.h"

#include <mutex>
#include <utility>

#include "tests/fakes/run_on_host.h"

namespace reshard::testing {
namespace {

template <typename Entry, typename Run>
FakeCuda::Kernel KernelOf(Run run) {
  return {{sizeof(void*), sizeof(void*), sizeof(uint32_t), sizeof(cuda::KernelBases)},
          [run](void** parameters, unsigned, unsigned) {
            run(*static_cast<const Entry**>(parameters[0]), *static_cast<const uint32_t**>(parameters[1]),
                *static_cast<uint32_t*>(parameters[2]), *static_cast<cuda::KernelBases*>(parameters[3]));
          }};
}

}  // namespace

void RegisterKernels() {
  static std::once_flag once;
  std::call_once(once, [] {
    FakeCuda::RegisterKernel(cuda::kCopyKernel, KernelOf<cuda::CopyEntry>(&RunCopyOnHost));
    FakeCuda::RegisterKernel(cuda::kReduceKernel, KernelOf<cuda::ReduceEntry>(&RunReduceOnHost));
  });
}

std::vector<absl::Status> RunNcclRanks(int ranks, const NcclOptions& options,
                                       const std::function<absl::Status(NcclCommunicator&)>& body) {
  RegisterKernels();
  MapStore store;
  std::vector<absl::Status> statuses(static_cast<size_t>(ranks));
  RunRanks(ranks, [&](int rank) {
    statuses[rank] = [&]() -> absl::Status {
      absl::StatusOr<std::unique_ptr<cuda::CudaDevice>> device =
          cuda::CudaDevice::Open(FakeCuda::Api(), rank, nullptr, kFakeImage);
      if (!device.ok()) return device.status();
      absl::StatusOr<std::unique_ptr<NcclCommunicator>> comm =
          NcclCommunicator::CreateOn(FakeNccl::Api(), *std::move(device), rank, ranks, &store, options);
      if (!comm.ok()) return comm.status();
      const absl::Status status = body(**comm);
      return status.ok() ? (*comm)->Barrier() : status;
    }();
  });
  return statuses;
}

}  // namespace reshard::testing
