#include "reshard/torch/bound_batch.h"

#include <ATen/core/grad_mode.h>
#include <torch/library.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/pytorch/layout_texts.h"
#include "runtime/pytorch/move.h"
#include "runtime/pytorch/tensors.h"
#include "status/macros.h"
#include "status/no_throw.h"

namespace reshard {

BoundBatch::StorageRange BoundBatch::RangeOf(const at::Tensor& tensor) {
  const auto element = static_cast<int64_t>(tensor.element_size());
  StorageRange place;
  place.storage = tensor.storage().unsafeGetStorageImpl();
  place.origin = tensor.storage_offset() * element;
  place.first = place.origin;
  place.end = place.origin;
  if (tensor.numel() == 0) return place;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    const int64_t reach = (tensor.size(d) - 1) * tensor.stride(d) * element;
    (reach < 0 ? place.first : place.end) += reach;
  }
  place.end += element;
  return place;
}

BoundBatch::BoundBatch(std::vector<at::Tensor> tensors, std::vector<at::Tensor> outs,
                       const absl::StatusOr<std::vector<Problem>>& problems,
                       std::shared_ptr<TensorCommunicator> communicator, std::optional<int64_t> memory_limit_bytes)
    : communicator_(std::move(communicator)), tensors_(std::move(tensors)), outs_(std::move(outs)) {
  absl::Status status;
  communicator_->RunInOrder([&] {
    Communicator& ranks = communicator_->communicator();
    const absl::Status own = status::NoThrow("binding tensors", [&] { return Prepare(problems, memory_limit_bytes); });
    if (!own.ok()) prepared_ = own;
    static const Signature* const kNothing = new Signature;
    // Without agreement the others find out at the first Run, by waiting for this rank.
    status = communicator_->redistributor().options().agreement == Agreement::kOff
                 ? own
                 : ranks.Agree(own, own.ok() ? (*prepared_)->signature() : *kNothing);
  });
  if (!status.ok()) pytorch::Throw(status, communicator_->communicator().rank());
}

absl::Status BoundBatch::Prepare(const absl::StatusOr<std::vector<Problem>>& given,
                                 std::optional<int64_t> memory_limit_bytes) {
  if (!given.ok()) return given.status();
  std::vector<Problem> problems = *given;
  const size_t count = tensors_.size();
  if (outs_.size() != count || problems.size() != count) {
    return absl::InvalidArgumentError(absl::StrCat(count, " tensors, but ", outs_.size(), " destinations and ",
                                                   problems.size(), " sources and targets"));
  }
  for (size_t i = 0; i < count; ++i) {
    for (at::Tensor* tensor : {&tensors_[i], &outs_[i]}) {
      RETURN_IF_ERROR(pytorch::CheckTensor(*tensor, communicator_->device()));
      if (at::GradMode::is_enabled() && tensor->requires_grad() && tensor == &outs_[i]) {
        return absl::InvalidArgumentError(
            absl::StrCat("destination ", i, " requires a gradient; bind it under torch.no_grad(), or detach it"));
      }
      if (tensor->is_conj() || tensor->is_neg()) {
        return absl::InvalidArgumentError(
            absl::StrCat("tensor ", i, " is a lazy conjugate or negative, which would be made anew at every call"));
      }
      *tensor = tensor->detach();
    }
    problems[i].dtype = groups::DTypeOf(tensors_[i].scalar_type()).value_or(DType::kU8);
  }
  RETURN_IF_ERROR(communicator_->FollowTopology());
  prepared_ = communicator_->redistributor().PrepareBatch(problems, memory_limit_bytes);
  if (!prepared_.ok()) return prepared_.status();
  for (size_t i = 0; i < count; ++i) {
    tensor_ranges_.push_back(RangeOf(tensors_[i]));
    out_ranges_.push_back(RangeOf(outs_[i]));
    sources_.push_back(pytorch::ViewOf(tensors_[i]));
    targets_.push_back(pytorch::MutableViewOf(outs_[i]));
  }
  return communicator_->redistributor().Check(**prepared_, sources_, targets_);
}

absl::Status BoundBatch::FindAgain(bool* moved) {
  const auto find = [moved](const StorageRange& place, const auto& view, auto* data) -> bool {
    if (place.first == place.end) return true;
    if (static_cast<int64_t>(place.storage->nbytes()) < place.end) return false;
    char* const at = static_cast<char*>(place.storage->mutable_data()) + place.origin;
    *moved |= at != view.data;
    *data = at;
    return true;
  };
  for (size_t i = 0; i < sources_.size(); ++i) {
    // Thousands of storages are scattered over memory, so they are prefetched.
    constexpr size_t kAhead = 8;
    if (i + kAhead < sources_.size()) {
      __builtin_prefetch(tensor_ranges_[i + kAhead].storage);
      __builtin_prefetch(out_ranges_[i + kAhead].storage);
    }
    if (find(tensor_ranges_[i], sources_[i], &sources_[i].data) && find(out_ranges_[i], targets_[i], &targets_[i].data))
      continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the storage of bound tensor ", i, " or of its destination was freed or made smaller"));
  }
  return absl::OkStatus();
}

void BoundBatch::Run() {
  absl::Status status;
  communicator_->RunInOrder([&] {
    bool moved = false;
    absl::Status found = FindAgain(&moved);
    if (found.ok() && moved) found = communicator_->redistributor().Check(**prepared_, sources_, targets_);
    const absl::StatusOr<ExecuteResult> run =
        found.ok() ? communicator_->redistributor().Run(prepared_, sources_, targets_, ViewsAre::kChecked)
                   : communicator_->redistributor().Run(found, {}, {});
    if (run.ok()) communicator_->SetLastResult(*run);
    status = run.status();
  });
  if (!status.ok()) pytorch::Throw(status, communicator_->communicator().rank());
}

namespace {

c10::intrusive_ptr<BoundBatch> Bind(std::vector<at::Tensor> tensors, std::vector<at::Tensor> outs,
                                    const absl::StatusOr<std::vector<Problem>>& problems, const std::string& group,
                                    std::optional<int64_t> memory_limit) {
  const at::Device device = pytorch::DeviceOf(tensors.empty() ? at::Tensor() : tensors[0], group);
  return c10::make_intrusive<BoundBatch>(std::move(tensors), std::move(outs), problems,
                                         TensorCommunicator::OfGroup(group, device), memory_limit);
}

c10::intrusive_ptr<BoundBatch> BindOverMesh(std::vector<at::Tensor> tensors, std::vector<at::Tensor> outs,
                                            const std::string& mesh, const std::string& target_mesh,
                                            const std::vector<std::string>& sources,
                                            const std::vector<std::string>& targets, const std::string& group,
                                            std::optional<int64_t> memory_limit) {
  absl::StatusOr<std::vector<Problem>> problems =
      absl::InvalidArgumentError(absl::StrCat(sources.size(), " sources, but ", targets.size(), " targets"));
  if (sources.size() == targets.size()) {
    problems = pytorch::ProblemsOf(sources.size(), [&](size_t i) -> pytorch::ProblemTexts {
      return {mesh, target_mesh, sources[i], targets[i]};
    });
  }
  return Bind(std::move(tensors), std::move(outs), problems, group, memory_limit);
}

c10::intrusive_ptr<BoundBatch> BindOverMeshes(std::vector<at::Tensor> tensors, std::vector<at::Tensor> outs,
                                              const std::vector<std::string>& meshes,
                                              const std::vector<std::string>& target_meshes,
                                              const std::vector<std::string>& sources,
                                              const std::vector<std::string>& targets, const std::string& group,
                                              std::optional<int64_t> memory_limit) {
  const size_t count = sources.size();
  absl::StatusOr<std::vector<Problem>> problems =
      absl::InvalidArgumentError(absl::StrCat(count, " sources, but ", meshes.size(), " meshes, ", target_meshes.size(),
                                              " target meshes and ", targets.size(), " targets"));
  if (meshes.size() == count && target_meshes.size() == count && targets.size() == count) {
    problems = pytorch::ProblemsOf(count, [&](size_t i) -> pytorch::ProblemTexts {
      return {meshes[i], target_meshes[i], sources[i], targets[i]};
    });
  }
  return Bind(std::move(tensors), std::move(outs), problems, group, memory_limit);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(reshard, library) {
  using ::torch::arg;
  // An empty target mesh is the mesh of the source.
  library.class_<BoundBatch>("BoundBatch")
      .def(::torch::init(&BindOverMesh), "",
           {arg("tensors"), arg("outs"), arg("mesh"), arg("target_mesh"), arg("sources"), arg("targets"), arg("group"),
            arg("memory_limit") = arg::none()})
      .def_static("over_meshes", &BindOverMeshes)
      .def("run", &BoundBatch::Run);
}

}  // namespace reshard
