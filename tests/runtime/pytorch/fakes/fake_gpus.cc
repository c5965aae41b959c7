// torch.ops.reshard_fake.*: the communicator of GPUs over the host's backend of a process group, on the fake driver of
// tests/nccl. So real processes run all of the device path but the driver and NCCL, on real values.

#include <ATen/Functions.h>
#include <torch/library.h>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reshard/runtime/redistributor.h"
#include "reshard/torch/redistribute.h"
#include "runtime/cuda/device.h"
#include "runtime/groups/c10d_cuda_communicator.h"
#include "runtime/groups/c10d_rendezvous_store.h"
#include "runtime/pytorch/cuda_transports.h"
#include "runtime/pytorch/tensors.h"
#include "tests/fakes/fake_cuda.h"
#include "tests/fakes/nccl_world.h"
#include "tests/runtime/pytorch/fakes/stream_backend.h"

namespace reshard {
namespace {

using testing::FakeCuda;
using Texts = c10::List<std::string>;

// One rank's GPU and what moves its tensors.
struct FakeGpu {
  cuda::CudaDevice* device = nullptr;
  cuda::CudaStream stream = nullptr;
  c10::intrusive_ptr<StreamBackend> backend;  // where ranks agree on the stream
  std::unique_ptr<groups::C10dCudaCommunicator> communicator;
  std::unique_ptr<Redistributor> redistributor;
};

template <typename T>
T OrThrow(absl::StatusOr<T> value) {
  if (!value.ok()) pytorch::Throw(value.status(), -1);
  return *std::move(value);
}

// `on_host`: ranks agree through the group's host tensors' communicator, and the backend takes messages one by one.
// Else they agree on the stream, over a backend that has one of its own and wants messages in groups, like NCCL's.
FakeGpu& GpuOf(const std::string& name, bool on_host) {
  static auto* const gpus = new std::map<std::pair<std::string, bool>, FakeGpu>;
  FakeGpu& gpu = (*gpus)[{name, on_host}];
  if (gpu.communicator != nullptr) return gpu;
  if (gpus->size() == 1) {
    FakeCuda::Reset(1);
    FakeCuda::Jitter(1);
    testing::RegisterKernels();
  }
  std::unique_ptr<cuda::CudaDevice> device =
      OrThrow(cuda::CudaDevice::Open(FakeCuda::Api(), 0, nullptr, static_cast<const void*>(testing::kFakeImage)));
  gpu.device = device.get();
  {
    const cuda::CudaDevice::Current current(*device);
    const absl::Status made =
        cuda::CudaStatus(FakeCuda::Api(), FakeCuda::Api().StreamCreate(&gpu.stream, 1), "a stream");
    if (!made.ok()) pytorch::Throw(made, -1);
  }
  const auto group = c10d::resolve_process_group(name);
  groups::C10dCudaOptions options;
  options.stream = [&gpu] { return gpu.stream; };
  if (on_host) options.agree_on_host = pytorch::AgreeThrough(TensorCommunicator::OfGroup(name));
  options.backend_of = at::kCPU;
  options.max_peers = on_host ? 3 : 0;
  if (!on_host) {
    options.backend_of = at::Device(at::kCUDA, 0);
    gpu.backend = c10::make_intrusive<StreamBackend>(group->getBackend(at::kCPU), *gpu.device, options.stream,
                                                     absl::ToChronoMilliseconds(options.timeout));
    group->setBackend(at::kCUDA, c10d::ProcessGroup::BackendType::CUSTOM, gpu.backend);
  }
  auto store = std::make_unique<groups::C10dRendezvousStore>(group, absl::StrCat("fake/", on_host, "/"));
  gpu.communicator = OrThrow(
      groups::C10dCudaCommunicator::Create(group, std::move(store), nullptr, std::move(device), std::move(options)));
  RedistributorOptions redistribution;
  redistribution.batch_bytes = int64_t{1} << 16;  // so that batches are cut
  gpu.redistributor = std::make_unique<Redistributor>(gpu.communicator.get(), redistribution);
  return gpu;
}

// A tensor's storage on the device.
struct OnDevice {
  cuda::DeviceBlock block;
  TensorView view;
};

absl::StatusOr<OnDevice> Reserve(FakeGpu& gpu, const at::Tensor& tensor) {
  absl::StatusOr<cuda::DeviceBlock> block =
      gpu.device->Allocate(static_cast<int64_t>(tensor.storage().nbytes()), gpu.stream);
  if (!block.ok()) return block.status();
  OnDevice made{*std::move(block), pytorch::MutableViewOf(tensor)};
  made.view.data = made.block ? made.block.data() + tensor.storage_offset() * tensor.element_size() : nullptr;
  made.view.memory = MemoryKind::kCuda;
  return made;
}

// Returns what the last one that was not waited for brought, too: everything is done when this returns.
absl::StatusOr<std::vector<at::Tensor>> Run(FakeGpu& gpu, at::TensorList tensors, const std::string& mesh,
                                            const Texts& sources, const Texts& targets,
                                            const std::string& target_mesh) {
  std::vector<Problem> problems;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const DType dtype = groups::DTypeOf(tensors[i].scalar_type()).value_or(DType::kU8);
    const std::string source = sources[i], target = targets[i];
    absl::StatusOr<Problem> problem = ParseProblem(mesh, source, target, target_mesh, dtype);
    if (!problem.ok()) return problem.status();
    problems.push_back(*problem);
  }
  const auto prepared = gpu.redistributor->PrepareBatch(problems);
  std::vector<at::Tensor> results;
  std::deque<at::Tensor> copied_from;  // until the stream is waited for
  std::vector<OnDevice> held;
  std::vector<ConstTensorView> from;
  std::vector<TensorView> to;
  if (prepared.ok()) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      const at::Tensor& tensor =
          copied_from.emplace_back((*prepared)->flattens() ? tensors[i].contiguous() : tensors[i]);
      const Dims& shape = (*prepared)->target(static_cast<int64_t>(i)).shape;
      results.push_back(at::empty(at::IntArrayRef(shape.data(), shape.size()), tensors[i].options()));
      for (const at::Tensor* each : {&tensor, &std::as_const(results.back())}) {
        absl::StatusOr<OnDevice> reserved = Reserve(gpu, *each);
        if (!reserved.ok()) return reserved.status();
        held.push_back(*std::move(reserved));
      }
      const absl::Status copied = gpu.device->Copy(held[2 * i].block.data(), tensor.storage().data(),
                                                   static_cast<int64_t>(tensor.storage().nbytes()), gpu.stream);
      if (!copied.ok()) return copied;
      from.push_back(held[2 * i].view);
      to.push_back(held[2 * i + 1].view);
    }
  }
  absl::Status status = gpu.redistributor->Run(prepared, from, to, ViewsAre::kFreshTargets).status();
  for (size_t i = 0; i < results.size() && status.ok(); ++i) {
    status = gpu.device->Copy(results[i].mutable_data_ptr(), held[2 * i + 1].block.data(),
                              static_cast<int64_t>(results[i].nbytes()), gpu.stream);
  }
  const absl::Status waited = gpu.communicator->Wait();
  const cuda::CudaDevice::Current current(*gpu.device);
  const absl::Status synchronized =
      cuda::CudaStatus(FakeCuda::Api(), FakeCuda::Api().StreamSynchronize(gpu.stream), "waiting for the stream");
  status.Update(waited);
  status.Update(synchronized);
  if (!status.ok()) return status;
  return results;
}

std::vector<at::Tensor> MoveOnFakes(at::TensorList tensors, c10::string_view mesh, const Texts& sources,
                                    const Texts& targets, c10::string_view target_mesh, c10::string_view group,
                                    bool on_host) {
  FakeGpu& gpu = GpuOf(std::string(group), on_host);
  absl::StatusOr<std::vector<at::Tensor>> results =
      Run(gpu, tensors, std::string(mesh), sources, targets, std::string(target_mesh));
  if (!results.ok()) pytorch::Throw(results.status(), gpu.communicator->rank());
  return *std::move(results);
}

std::vector<std::string> Complaints() { return FakeCuda::Complaints(); }

int64_t Launches(c10::string_view group, bool on_host) { return GpuOf(std::string(group), on_host).device->launches(); }

void LoseWork(c10::string_view group) { GpuOf(std::string(group), false).backend->LoseWork(); }

// The real thing, which has no GPU here.
void OfGroup(c10::string_view group, c10::string_view device) {
  TensorCommunicator::OfGroup(std::string(group), at::Device(std::string(device)));
}

}  // namespace

TORCH_LIBRARY(reshard_fake, library) {
  library.def(
      "redistribute(Tensor[] tensors, str mesh, str[] sources, str[] targets, str target_mesh, str group, "
      "bool on_host) -> Tensor[]",
      MoveOnFakes);
  library.def("complaints() -> str[]", Complaints);
  library.def("launches(str group, bool on_host) -> int", Launches);
  library.def("lose_work(str group) -> ()", LoseWork);
  library.def("of_group(str group, str device) -> ()", OfGroup);
}

}  // namespace reshard
