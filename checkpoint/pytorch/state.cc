// Loads checkpoints into the tensors of a job, and saves them: StoredCheckpoint.load and torch.ops.reshard._save.
#include <ATen/Functions.h>
#include <ATen/core/List.h>
#include <torch/library.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "checkpoint/live/missing_names.h"
#include "checkpoint/pytorch/progress.h"
#include "checkpoint/pytorch/stored_checkpoint.h"
#include "json/document.h"
#include "reshard/checkpoint/error.h"
#include "reshard/checkpoint/pattern.h"
#include "reshard/live/load.h"
#include "reshard/live/save.h"
#include "reshard/runtime/local_world.h"
#include "reshard/torch/redistribute.h"
#include "runtime/pytorch/layout_texts.h"
#include "runtime/pytorch/tensors.h"
#include "status/macros.h"
#include "status/no_throw.h"

namespace reshard {
namespace {

using TextList = c10::List<std::string>;

// RunCollective without a group: this process alone.
template <typename Summary, typename Prepare, typename Collective>
absl::StatusOr<Summary> RunAlone(const Prepare& prepare, const Collective& collective) {
  LocalWorld world(1);
  absl::StatusOr<Summary> summary = absl::InternalError("it did not run");
  const absl::Status own = status::NoThrow("looking at tensors", prepare);
  if (own.ok()) {
    world.RunEach([&](Communicator& ranks) {
      summary = collective(ranks, Topology::Flat());
      return absl::OkStatus();
    });
  } else {
    summary = own;
  }
  if (!summary.ok() && KindOf(summary.status()) != CheckpointError::kSystem) pytorch::Throw(summary.status(), -1);
  return summary;
}

// Runs `prepare`, then `collective` on the ranks of the group (empty: this process alone). `prepare` may fail on this
// rank only; the others get its error in their `collective`. Returns errors of the system and throws all others: no C++
// exception becomes Python's FileNotFoundError.
template <typename Summary, typename Prepare, typename Collective>
absl::StatusOr<Summary> RunCollective(const std::string& group, const Prepare& prepare, const Collective& collective) {
  if (group.empty()) return RunAlone<Summary>(prepare, collective);
  const std::shared_ptr<TensorCommunicator> communicator = TensorCommunicator::OfGroup(group);
  absl::StatusOr<Summary> summary = absl::InternalError("it did not run");
  communicator->RunInOrder([&] {
    Communicator& ranks = communicator->communicator();
    absl::Status own = status::NoThrow("looking at tensors", prepare);
    if (own.ok()) own = communicator->FollowTopology();
    if (own.ok()) {
      summary = collective(ranks, communicator->redistributor().options().plan.topology);
    } else {
      summary = ranks.Agree(own, Signature());
    }
  });
  if (summary.ok()) return summary;
  const int64_t rank = communicator->communicator().rank();
  if (NamesRanks(summary.status()) || KindOf(summary.status()) != CheckpointError::kSystem) {
    pytorch::Throw(summary.status(), rank);
  }
  return absl::Status(summary.status().code(), absl::StrCat("rank ", rank, ": ", summary.status().message()));
}

// InvalidArgument unless there is one name, mesh and layout per tensor.
template <typename List>
absl::Status CheckCounts(at::TensorList tensors, const List& names, const List& meshes, const List& layouts) {
  if (names.size() == tensors.size() && meshes.size() == tensors.size() && layouts.size() == tensors.size()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("tensors, names, meshes and layouts differ in number");
}

absl::Status CheckState(const at::Tensor& tensor, const std::string& name) {
  absl::Status checked = pytorch::CheckTensor(tensor, at::kCPU);
  if (checked.ok() && (tensor.is_conj() || tensor.is_neg())) {
    checked = absl::InvalidArgumentError("a lazy conjugate or negative; resolve it first");
  }
  if (checked.ok()) return checked;
  return absl::Status(checked.code(), absl::StrCat("tensor ", name, ": ", checked.message()));
}

absl::StatusOr<Layout> LayoutOfTensor(const std::string& name, const std::string& mesh, const std::string& layout) {
  absl::StatusOr<Layout> parsed = pytorch::LayoutOf(mesh, layout);
  if (parsed.ok()) return parsed;
  return absl::Status(parsed.status().code(), absl::StrCat("tensor ", name, ": ", parsed.status().message()));
}

// Parses [["model", "layers", 3, "w"], ..].
absl::StatusOr<std::vector<std::vector<Catalog::PathStep>>> ParsePaths(std::string_view text) {
  ASSIGN_OR_RETURN(const json::Document document, json::Document::Parse(text));
  std::vector<std::vector<Catalog::PathStep>> paths;
  for (size_t i = 0; i < document.root().size(); ++i) {
    const json::Value list = document.root().at(i);
    paths.emplace_back();
    for (size_t s = 0; s < list.size(); ++s) {
      const json::Value step = list.at(s);
      if (step.is_string()) {
        paths.back().emplace_back(*step.Text());
      } else if (step.Integer()) {
        paths.back().emplace_back(*step.Integer());
      } else {
        return absl::InvalidArgumentError(
            absl::StrCat("the path ", list.Shown(), " has a step that is not a name or index"));
      }
    }
  }
  return paths;
}

// Saves. `paths_json` has the paths of the tensors, then of the items. `items` are bytes on the ranks that have them,
// and empty elsewhere.
std::string SaveOp(at::TensorList tensors, c10::string_view path, const TextList& names, const TextList& meshes,
                   const TextList& layouts, at::IntArrayRef requires_grad, at::TensorList items,
                   const TextList& item_names, at::IntArrayRef item_ranks, at::IntArrayRef item_lengths,
                   c10::string_view paths_json, c10::string_view group, bool overwrite,
                   const std::optional<c10::intrusive_ptr<pytorch::TorchProgress>>& progress) {
  std::vector<SaveEntry> entries;
  std::vector<SaveItem> byte_items;
  const auto prepare = [&]() -> absl::Status {
    RETURN_IF_ERROR(CheckCounts(tensors, names, meshes, layouts));
    ASSIGN_OR_RETURN(auto paths, ParsePaths(paths_json));
    if (paths.size() != tensors.size() + items.size() || requires_grad.size() != tensors.size() ||
        item_names.size() != items.size() || item_ranks.size() != items.size() || item_lengths.size() != items.size()) {
      return absl::InvalidArgumentError("lists of what is to be saved differ in length");
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      RETURN_IF_ERROR(CheckState(tensors[i], names[i]));
      const ConstTensorView view = pytorch::ViewOf(tensors[i]);
      ASSIGN_OR_RETURN(const Layout layout, LayoutOfTensor(names[i], meshes[i], layouts[i]));
      entries.push_back({names[i], std::move(paths[i]), layout, view.dtype, requires_grad[i] != 0, view});
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
  options.progress = pytorch::TellOf(progress);
  const auto summary =
      RunCollective<SaveSummary>(std::string(group), prepare, [&](Communicator& ranks, const Topology&) {
        return Save(std::string(path), entries, byte_items, ranks, options);
      });
  if (!summary.ok()) return pytorch::FileErrorJson(summary.status());
  return absl::StrFormat(R"({"tensors":%d,"written_bytes":%d,"seconds":%.6f})", summary->tensors,
                         summary->written_bytes, summary->seconds);
}

std::string MissingNamesOp(const TextList& missing, const TextList& there, c10::string_view where) {
  return live::MissingNames(missing.vec(), there.vec(), std::string(where));
}

// The indices of the names that the pattern matches.
std::vector<int64_t> MatchingOp(c10::string_view pattern, const TextList& names) {
  std::vector<int64_t> matching;
  for (size_t i = 0; i < names.size(); ++i) {
    if (MatchesPattern(std::string(pattern), names.get(i))) matching.push_back(static_cast<int64_t>(i));
  }
  return matching;
}

}  // namespace

std::tuple<std::vector<at::Tensor>, std::string> pytorch::TorchStoredCheckpoint::Load(
    const std::vector<at::Tensor>& tensors, const std::vector<std::string>& names,
    const std::vector<std::string>& meshes, const std::vector<std::string>& layouts,
    const std::vector<std::string>& item_names, const std::string& group, bool read_once,
    const std::optional<c10::intrusive_ptr<TorchProgress>>& progress) {
  std::vector<LoadEntry> entries;
  std::vector<std::string> bytes(item_names.size());
  std::vector<LoadItem> items;
  for (size_t i = 0; i < item_names.size(); ++i) items.push_back({item_names[i], &bytes[i]});
  LoadOptions options;
  options.read = read_once ? ReadMode::kOnce : ReadMode::kOwn;
  options.progress = TellOf(progress);
  const auto prepare = [&]() -> absl::Status {
    if (!stored_) return absl::FailedPreconditionError("the checkpoint could not be opened");
    RETURN_IF_ERROR(CheckCounts(tensors, names, meshes, layouts));
    for (size_t i = 0; i < tensors.size(); ++i) {
      RETURN_IF_ERROR(CheckState(tensors[i], names[i]));
      ASSIGN_OR_RETURN(const Layout layout, LayoutOfTensor(names[i], meshes[i], layouts[i]));
      entries.push_back({names[i], layout, pytorch::MutableViewOf(tensors[i])});
    }
    return absl::OkStatus();
  };
  const auto summary = RunCollective<LoadSummary>(group, prepare, [&](Communicator& ranks, const Topology& topology) {
    options.topology = topology;
    return ::reshard::Load(*stored_, entries, items, ranks, options);
  });
  std::vector<at::Tensor> contents;
  if (!summary.ok()) return {std::move(contents), pytorch::FileErrorJson(summary.status())};
  for (const std::string& text : bytes) contents.push_back(BytesTensor(text));
  return {std::move(contents),
          absl::StrFormat(R"({"tensors":%d,"bytes":%d,"read_bytes":%d,"received_bytes":%d,"seconds":%.6f})",
                          summary->tensors, summary->bytes, summary->read_bytes, summary->received_bytes,
                          summary->seconds)};
}

TORCH_LIBRARY_FRAGMENT(reshard, library) {
  library.def("_missing_names(str[] missing, str[] there, str where) -> str", MissingNamesOp);
  library.def("_matching(str pattern, str[] names) -> int[]", MatchingOp);
  library.def(
      "_save(Tensor[] tensors, str path, str[] names, str[] meshes, str[] layouts, int[] requires_grad, "
      "Tensor[] items, str[] item_names, int[] item_ranks, int[] item_lengths, str paths, str group, "
      "bool overwrite, __torch__.torch.classes.reshard.Progress? progress=None) -> str",
      SaveOp);
}

}  // namespace reshard
