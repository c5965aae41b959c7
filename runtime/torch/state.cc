// torch.ops.reshard._load and _save: checkpoints, into and out of the tensors of a job.
#include <ATen/Functions.h>
#include <ATen/core/List.h>
#include <torch/library.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "reshard/state/load.h"
#include "reshard/torch/redistribute.h"
#include "runtime/core/no_throw.h"
#include "runtime/torch/tensors.h"

namespace reshard {
namespace {

using Texts = c10::List<std::string>;

// Runs a collective whose arguments may be wrong on this rank only: the error reaches the others through `collective`.
template <typename Summary, typename Prepare, typename Collective>
Summary RunCollective(const std::string& group, const Prepare& prepare, const Collective& collective) {
  const std::shared_ptr<TensorCommunicator> communicator = TensorCommunicator::OfGroup(group);
  absl::StatusOr<Summary> summary = absl::InternalError("it did not run");
  communicator->RunInOrder([&] {
    Communicator& ranks = communicator->communicator();
    const absl::Status own = NoThrow("looking at tensors", prepare);
    if (own.ok()) {
      summary = collective(ranks);
    } else {
      summary = ranks.Agree(own, Signature());
    }
  });
  if (!summary.ok()) Throw(summary.status(), communicator->communicator().rank());
  return *std::move(summary);
}

std::tuple<std::vector<at::Tensor>, std::string> LoadOp(at::TensorList tensors, c10::string_view path,
                                                        const Texts& names, const Texts& meshes, const Texts& layouts,
                                                        const Texts& item_names, c10::string_view group, bool read_once,
                                                        bool check, bool ignore_sidecar) {
  std::vector<LoadEntry> entries;
  std::vector<std::string> bytes(item_names.size());
  std::vector<LoadItem> items;
  for (size_t i = 0; i < item_names.size(); ++i) items.push_back({item_names[i], &bytes[i]});
  LoadOptions options;
  options.read = read_once ? ReadMode::kOnce : ReadMode::kOwn;
  options.check = check;
  options.ignore_sidecar = ignore_sidecar;
  const auto prepare = [&]() -> absl::Status {
    if (names.size() != tensors.size() || meshes.size() != tensors.size() || layouts.size() != tensors.size()) {
      return absl::InvalidArgumentError("tensors, names, meshes and layouts differ in number");
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (absl::Status checked = CheckTensor(tensors[i]); !checked.ok()) return checked;
      if (tensors[i].is_conj() || tensors[i].is_neg()) {
        return absl::InvalidArgumentError(absl::StrCat("tensor ", i, " is a lazy conjugate or negative"));
      }
      entries.push_back({names[i], meshes[i], layouts[i], MutableViewOf(tensors[i])});
    }
    return absl::OkStatus();
  };
  const auto summary = RunCollective<LoadSummary>(std::string(group), prepare, [&](Communicator& ranks) {
    return Load(std::string(path), entries, items, ranks, options);
  });
  std::vector<at::Tensor> contents;
  for (const std::string& text : bytes) {
    contents.push_back(at::empty({static_cast<int64_t>(text.size())}, at::kByte));
    std::copy(text.begin(), text.end(), reinterpret_cast<char*>(contents.back().mutable_data_ptr()));
  }
  return {std::move(contents),
          absl::StrFormat(R"({"tensors":%d,"bytes":%d,"read_bytes":%d,"received_bytes":%d,"seconds":%.6f})",
                          summary.tensors, summary.bytes, summary.read_bytes, summary.received_bytes, summary.seconds)};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(reshard, library) {
  library.def(
      "_load(Tensor(a!)[] tensors, str path, str[] names, str[] meshes, str[] layouts, str[] items, str group, "
      "bool read_once, bool check, bool ignore_sidecar) -> (Tensor[], str)",
      LoadOp);
}

}  // namespace reshard
