// torch.ops.reshard._load and _save: checkpoints, into and out of the tensors of a job.
#include <ATen/Functions.h>
#include <ATen/core/List.h>
#include <torch/library.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "planner/layout/no_throw.h"
#include "reshard/state/load.h"
#include "reshard/state/save.h"
#include "reshard/torch/redistribute.h"
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

absl::Status CheckCounts(at::TensorList tensors, const Texts& names, const Texts& meshes, const Texts& layouts) {
  if (names.size() == tensors.size() && meshes.size() == tensors.size() && layouts.size() == tensors.size()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("tensors, names, meshes and layouts differ in number");
}

absl::Status CheckState(const at::Tensor& tensor, const std::string& name) {
  absl::Status checked = CheckTensor(tensor, at::kCPU);
  if (checked.ok() && (tensor.is_conj() || tensor.is_neg())) {
    checked = absl::InvalidArgumentError("a lazy conjugate or negative; resolve it first");
  }
  if (checked.ok()) return checked;
  return absl::Status(checked.code(), absl::StrCat("tensor ", name, ": ", checked.message()));
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
    if (absl::Status same = CheckCounts(tensors, names, meshes, layouts); !same.ok()) return same;
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (absl::Status checked = CheckState(tensors[i], names[i]); !checked.ok()) return checked;
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

// [["model", "layers", 3, "w"], ..]
std::vector<std::vector<Catalog::PathStep>> ParsePaths(c10::string_view json) {
  std::vector<std::vector<Catalog::PathStep>> paths;
  for (const nlohmann::json& list : nlohmann::json::parse(json.begin(), json.end())) {
    paths.emplace_back();
    for (const nlohmann::json& step : list) {
      if (step.is_string()) {
        paths.back().emplace_back(step.get<std::string>());
      } else {
        paths.back().emplace_back(step.get<int64_t>());
      }
    }
  }
  return paths;
}

// `paths` of the tensors, then of the items; `items` are bytes on the ranks that have them and empty elsewhere.
std::string SaveOp(at::TensorList tensors, c10::string_view path, const Texts& names, const Texts& meshes,
                   const Texts& layouts, at::IntArrayRef requires_grad, at::TensorList items, const Texts& item_names,
                   at::IntArrayRef item_ranks, at::IntArrayRef item_lengths, c10::string_view paths_json,
                   c10::string_view group, bool overwrite) {
  std::vector<SaveEntry> entries;
  std::vector<SaveItem> byte_items;
  const auto prepare = [&]() -> absl::Status {
    if (absl::Status same = CheckCounts(tensors, names, meshes, layouts); !same.ok()) return same;
    std::vector<std::vector<Catalog::PathStep>> paths = ParsePaths(paths_json);
    if (paths.size() != tensors.size() + items.size() || requires_grad.size() != tensors.size() ||
        item_names.size() != items.size() || item_ranks.size() != items.size() || item_lengths.size() != items.size()) {
      return absl::InvalidArgumentError("lists of what is to be saved differ in length");
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (absl::Status checked = CheckState(tensors[i], names[i]); !checked.ok()) return checked;
      const ConstTensorView view = ViewOf(tensors[i]);
      entries.push_back(
          {names[i], std::move(paths[i]), meshes[i], layouts[i], view.dtype, requires_grad[i] != 0, view});
    }
    for (size_t i = 0; i < items.size(); ++i) {
      byte_items.push_back({item_names[i],
                            std::move(paths[tensors.size() + i]),
                            item_ranks[i],
                            item_lengths[i],
                            {static_cast<const char*>(items[i].const_data_ptr()), items[i].nbytes()}});
    }
    return absl::OkStatus();
  };
  SaveOptions options;
  options.overwrite = overwrite;
  const auto summary = RunCollective<SaveSummary>(std::string(group), prepare, [&](Communicator& ranks) {
    return Save(std::string(path), entries, byte_items, ranks, options);
  });
  return absl::StrFormat(R"({"tensors":%d,"written_bytes":%d,"seconds":%.6f})", summary.tensors, summary.written_bytes,
                         summary.seconds);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(reshard, library) {
  library.def(
      "_load(Tensor(a!)[] tensors, str path, str[] names, str[] meshes, str[] layouts, str[] items, str group, "
      "bool read_once, bool check, bool ignore_sidecar) -> (Tensor[], str)",
      LoadOp);
  library.def(
      "_save(Tensor[] tensors, str path, str[] names, str[] meshes, str[] layouts, int[] requires_grad, "
      "Tensor[] items, str[] item_names, int[] item_ranks, int[] item_lengths, str paths, str group, "
      "bool overwrite) -> str",
      SaveOp);
}

}  // namespace reshard
