// torch.ops.reshard._fingerprints: this library's fingerprints of tensors, summed over a group; _local_fingerprints: of
// tensors of this process, whatever they are parts of.
#include <ATen/Functions.h>
#include <torch/library.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "reshard/runtime/fingerprint.h"
#include "runtime/pytorch/layout_texts.h"
#include "runtime/pytorch/move.h"
#include "runtime/pytorch/tensors.h"
#include "status/macros.h"
#include "status/no_throw.h"

namespace reshard {
namespace {

// What this rank contributes to the fingerprint of a tensor; nothing outside the tensor's mesh.
absl::StatusOr<ContentFingerprint> PartOf(const at::Tensor& local, const std::string& name,
                                          const absl::StatusOr<Layout>& known, int64_t rank) {
  ASSIGN_OR_RETURN(const Layout layout, known);
  const std::optional<int64_t> position = layout.mesh().Position(rank);
  if (!position) return ContentFingerprint();
  // Tensors are copied from a GPU one at a time.
  const at::Tensor host = pytorch::Resolved(local.detach()).to(at::kCPU);
  RETURN_IF_ERROR(pytorch::CheckTensor(host, at::kCPU));
  return FingerprintOf(name, pytorch::ViewOf(host), layout, *position);
}

absl::Status AddParts(at::TensorList locals, const c10::List<std::string>& names, const c10::List<std::string>& meshes,
                      const c10::List<std::string>& layouts, int64_t rank, const at::Tensor& sums) {
  auto* const lanes = sums.mutable_data_ptr<int64_t>();
  for (size_t i = 0; i < locals.size(); ++i) {
    const std::string name = names.get(i);
    const absl::StatusOr<ContentFingerprint> part =
        PartOf(locals[i], name, pytorch::LayoutOf(meshes.get(i), layouts.get(i)), rank);
    if (!part.ok()) {
      return absl::Status(part.status().code(), absl::StrCat(name, ": ", part.status().message()));
    }
    std::memcpy(lanes + 2 * i, &part->low, sizeof(part->low));
    std::memcpy(lanes + 2 * i + 1, &part->high, sizeof(part->high));
  }
  return absl::OkStatus();
}

// Returns for each tensor the low and high halves of its fingerprint, as int64 with the same bits; the same on all
// ranks. Without a group name, this process is alone.
at::Tensor Fingerprints(at::TensorList locals, const c10::List<std::string>& names,
                        const c10::List<std::string>& meshes, const c10::List<std::string>& layouts,
                        const std::string& group) {
  const size_t count = locals.size();
  const at::Tensor sums = at::zeros({static_cast<int64_t>(count), 2}, at::kLong);
  const auto add_parts_of = [&](int64_t rank) {
    return status::NoThrow("taking fingerprints", [&]() -> absl::Status {
      if (names.size() != count || meshes.size() != count || layouts.size() != count) {
        return absl::InvalidArgumentError(absl::StrCat(count, " tensors, ", names.size(), " names, ", meshes.size(),
                                                       " meshes, ", layouts.size(), " layouts"));
      }
      return AddParts(locals, names, meshes, layouts, rank, sums);
    });
  };
  if (group.empty()) {
    const absl::Status own = add_parts_of(0);
    if (!own.ok()) pytorch::Throw(own, -1);
    return sums;
  }
  const std::shared_ptr<TensorCommunicator> communicator =
      TensorCommunicator::OfGroup(group, pytorch::DeviceOf(at::Tensor(), group));
  const absl::Status own = add_parts_of(communicator->communicator().rank());
  const auto moves = [&]() -> absl::StatusOr<std::vector<pytorch::Move>> {
    RETURN_IF_ERROR(own);
    const int64_t ranks = communicator->communicator().world_size();
    ASSIGN_OR_RETURN(const Mesh mesh, Mesh::Create({{"ranks", ranks}}));
    ASSIGN_OR_RETURN(const Layout whole, EvenLayout(mesh, sums.sizes().vec()));
    ASSIGN_OR_RETURN(const Layout parts, whole.WithPartial(Partial{ReduceOp::kSum, {{0, 1, ranks}}}));
    return std::vector<pytorch::Move>{{parts, whole, std::nullopt}};
  };
  const at::Tensor on_device = sums.to(communicator->device());
  return pytorch::RunMoves(at::TensorList(on_device), moves(), *communicator)[0].to(at::kCPU);
}

absl::StatusOr<ContentFingerprint> OfWhole(const at::Tensor& local) {
  return PartOf(local, "", EvenLayout(Mesh(), local.sizes().vec()), 0);
}

// Returns for each tensor the low and high halves of the fingerprint of the local tensor as a whole, without a name.
// Involves no other rank.
at::Tensor LocalFingerprints(at::TensorList locals) {
  const at::Tensor sums = at::zeros({static_cast<int64_t>(locals.size()), 2}, at::kLong);
  auto* const lanes = sums.mutable_data_ptr<int64_t>();
  for (size_t i = 0; i < locals.size(); ++i) {
    const ContentFingerprint whole =
        pytorch::ValueOrThrow(status::NoThrow("taking fingerprints", [&] { return OfWhole(locals[i]); }));
    std::memcpy(lanes + 2 * i, &whole.low, sizeof(whole.low));
    std::memcpy(lanes + 2 * i + 1, &whole.high, sizeof(whole.high));
  }
  return sums;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(reshard, library) {
  library.def("_local_fingerprints(Tensor[] locals) -> Tensor", LocalFingerprints);
  library.def("_fingerprints(Tensor[] locals, str[] names, str[] meshes, str[] layouts, str group) -> Tensor",
              Fingerprints);
}

}  // namespace reshard
