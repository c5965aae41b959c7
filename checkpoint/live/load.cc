#include "reshard/live/load.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/catalog/catalog_hash.h"
#include "checkpoint/io/show.h"
#include "checkpoint/live/fragment.h"
#include "checkpoint/live/missing_names.h"
#include "checkpoint/live/placement.h"
#include "checkpoint/live/progress.h"
#include "checkpoint/live/read_layout.h"
#include "checkpoint/live/read_parts.h"
#include "checkpoint/live/shared_targets.h"
#include "checkpoint/source/source.h"
#include "checkpoint/tasks/run_tasks.h"
#include "reshard/layout/text.h"
#include "reshard/runtime/redistributor.h"
#include "status/macros.h"
#include "status/no_throw.h"
#include "status/view.h"

namespace reshard {
namespace {

constexpr int64_t kLargestStripe = int64_t{4} << 20;  // bytes that a thread reads at a time

// How one entry is loaded.
struct Wanted {
  int64_t tensor = 0;  // in the catalog
  DType dtype = DType::kF32;
  Layout layout;
  Layout read;            // equal to `layout` where nothing has to be redistributed
  bool moves = false;     // `read` differs from `layout`; the same on all ranks
  int64_t read_most = 0;  // bytes of the largest fragment that a rank reads
  TensorView into;
};

// Entries [first, end): one exchange.
struct Group {
  size_t first = 0;
  size_t end = 0;
};

// Memory for the fragments that a group reads before it redistributes them; reused for the next group but one.
class Fragments {
 public:
  void Reserve(int64_t bytes) {
    if (bytes <= bytes_) return;
    data_.reset();
    data_.reset(new char[bytes]);
    bytes_ = bytes;
  }
  char* at(int64_t offset) { return data_.get() + offset; }

 private:
  std::unique_ptr<char[]> data_;  // not initialised: all of it is written
  int64_t bytes_ = 0;
};

class Loading {
 public:
  Loading(Communicator& communicator, const LoadOptions& options)
      : communicator_(communicator), options_(options), redistributor_(&communicator, MoveOptions(options)) {}

  // `open` returns the source, which may belong to somebody else, or why there is none.
  absl::StatusOr<LoadSummary> Run(absl::FunctionRef<absl::StatusOr<source::Source*>()> open,
                                  absl::Span<const LoadEntry> entries, absl::Span<const LoadItem> items) {
    const auto start = std::chrono::steady_clock::now();
    absl::Status status = status::NoThrow("preparing to load", [&]() -> absl::Status {
      ASSIGN_OR_RETURN(source_, open());
      return Prepare(entries, items);
    });
    status = communicator_.Agree(status, status.ok() ? Signature(std::move(fields_)) : Signature());
    if (!status.ok()) return status;
    live::Progress progress(summary_.bytes, to_read_, options_.progress);
    progress_ = &progress;
    status = progress.Begin();
    if (status.ok()) status = status::NoThrow("loading", [&] { return ReadItems(items); });
    Cut();
    // Errors from here on reach the other ranks with the next exchange, or at the end.
    std::future<absl::Status> ahead = status.ok() ? StartReading(0) : std::future<absl::Status>();
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (status.ok()) status = progress.Await(ahead);
      if (status.ok()) ahead = StartReading(g + 1);
      const absl::Status moved = Exchange(g, status);
      if (!moved.ok()) {
        if (ahead.valid()) ahead.wait();
        return moved;
      }
      if (status.ok()) status = status::NoThrow("loading", [&] { return Settle(g); });
    }
    if (status.ok()) status = progress.End();
    static const std::vector<Signature::Field>* const kEnd = new std::vector<Signature::Field>{{"operation", "loaded"}};
    status = communicator_.Agree(status, Signature(*kEnd));
    if (!status.ok()) return status;
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    summary_.tensors = static_cast<int64_t>(wanted_.size());
    summary_.read_bytes = source_->bytes_read() - bytes_read_before_;
    summary_.seconds = seconds.count();
    return summary_;
  }

 private:
  static RedistributorOptions MoveOptions(const LoadOptions& options) {
    RedistributorOptions move;
    move.plan.topology = options.topology;
    move.agreement = Agreement::kEveryCall;  // it also carries the errors of reading
    move.batch_bytes = 4 * options.group_bytes;
    move.cache_entries = 2;
    return move;
  }

  absl::Status Prepare(absl::Span<const LoadEntry> entries, absl::Span<const LoadItem> items) {
    bytes_read_before_ = source_->bytes_read();
    const Catalog& catalog = source_->catalog();
    fields_.push_back({"operation", "load"});
    fields_.push_back({"checkpoint", catalog::HashOfCatalog(source_->stored()).ToText()});
    hash::Digest made;
    source_->AddViews(&made);
    fields_.push_back({"recipe", made.Hash().ToText()});
    fields_.push_back({"read mode", options_.read == ReadMode::kOnce ? "once" : "own"});
    if (options_.read == ReadMode::kOnce) fields_.push_back({"topology", options_.topology.name});
    fields_.push_back({"bytes a group", absl::StrCat(options_.group_bytes)});
    RETURN_IF_ERROR(CheckNames(catalog, entries, items));
    std::set<std::string_view> names;
    for (const LoadEntry& entry : entries) {
      if (!names.insert(entry.name).second) {
        return absl::InvalidArgumentError(absl::StrCat("tensor ", io::Shown(entry.name), " is requested twice"));
      }
      const absl::Status prepared = PrepareEntry(catalog, entry);
      if (!prepared.ok()) {
        return absl::Status(prepared.code(), absl::StrCat("tensor ", io::Shown(entry.name), ": ", prepared.message()));
      }
    }
    std::vector<TensorView> targets;
    for (const Wanted& wanted : wanted_) targets.push_back(wanted.into);
    shared_ = live::SharedTargets(std::move(targets));
    for (const LoadItem& item : items) {
      items_.push_back(catalog.FindByteItem(item.name) - catalog.byte_items().data());
      fields_.push_back({"byte item", item.name});
    }
    return absl::OkStatus();
  }

  // All of them at once: a user with one wrong name usually has many.
  static absl::Status CheckNames(const Catalog& catalog, absl::Span<const LoadEntry> entries,
                                 absl::Span<const LoadItem> items) {
    std::set<std::string> missing;
    const auto check = [&](const std::string& name, bool tensor_here) -> absl::Status {
      const bool tensor_there = catalog.FindTensor(name) != nullptr, item_there = catalog.FindByteItem(name) != nullptr;
      if (tensor_here ? tensor_there : item_there) return absl::OkStatus();
      if (!tensor_there && !item_there) {
        missing.insert(name);
        return absl::OkStatus();
      }
      return absl::InvalidArgumentError(
          absl::StrCat(io::Shown(name), tensor_here ? " is a tensor here, and another value in the checkpoint"
                                                    : " is a tensor in the checkpoint, and another value here"));
    };
    for (const LoadEntry& entry : entries) RETURN_IF_ERROR(check(entry.name, true));
    for (const LoadItem& item : items) RETURN_IF_ERROR(check(item.name, false));
    if (missing.empty()) return absl::OkStatus();
    std::vector<std::string> there;
    for (const Catalog::Tensor& tensor : catalog.tensors()) there.emplace_back(tensor.name);
    for (const Catalog::ByteItem& item : catalog.byte_items()) there.emplace_back(item.name);
    return absl::InvalidArgumentError(live::MissingNames({missing.begin(), missing.end()}, there,
                                                         absl::StrCat("the checkpoint ", io::Shown(catalog.root()))));
  }

  absl::Status PrepareEntry(const Catalog& catalog, const LoadEntry& entry) {
    const Catalog::Tensor* const tensor = catalog.FindTensor(entry.name);
    ASSIGN_OR_RETURN(live::Placement placement, placements_.Find(entry.layout));
    const std::vector<int64_t> shape = placement.layout.shape();
    if (absl::MakeConstSpan(shape) != tensor->shape) {
      return absl::InvalidArgumentError(
          absl::StrCat("the checkpoint has the shape ", io::Shown(tensor->shape), ", not ", io::Shown(shape)));
    }
    if (!tensor->dtype) {
      return absl::InvalidArgumentError(
          absl::StrCat("elements of type ", status::View(tensor->stored_dtype), " cannot be loaded"));
    }
    RETURN_IF_ERROR(live::CheckFragment(placement, *tensor->dtype, entry.into));
    if (MayOverlapItself(entry.into)) {
      return absl::InvalidArgumentError("the view to load into has several indices for one element");
    }
    Wanted wanted{tensor - catalog.tensors().data(),
                  *tensor->dtype,
                  live::AtLeastOneDimension(placement.layout),
                  Layout(),
                  false,
                  0,
                  entry.into};
    if (shape.empty()) {
      wanted.into.shape = {1};
      wanted.into.strides = {1};
    }
    if (placement.position < 0) wanted.into = DenseView(static_cast<void*>(nullptr), *tensor->dtype, {0});
    wanted.read = wanted.layout;
    if (options_.read == ReadMode::kOnce) {
      ASSIGN_OR_RETURN(wanted.read, live::ReadLayout(wanted.layout, wanted.dtype, TypicalChunk(catalog, *tensor)));
      wanted.moves = !(wanted.read == wanted.layout);
    }
    wanted.read_most = wanted.read.MaxLocalElements() * SizeOf(wanted.dtype);
    if (const auto position = wanted.read.mesh().Position(communicator_.rank())) {
      to_read_ += NumElements(wanted.read.LocalShape(*position)) * SizeOf(wanted.dtype);
    }
    if (placement.position >= 0) {
      summary_.bytes += NumElements(wanted.into.shape) * SizeOf(wanted.dtype);
    }
    fields_.push_back({absl::StrCat("tensor ", wanted_.size()),
                       absl::StrCat(entry.name, " ", ToString(entry.layout.mesh()), " ", ToString(entry.layout))});
    wanted_.push_back(std::move(wanted));
    names_.push_back(entry.name);
    return absl::OkStatus();
  }

  // The shape of the first chunk with elements. If there is none, ones, in at least one dimension. A tensor that a
  // recipe makes has no chunks, and counts as one.
  static std::vector<int64_t> TypicalChunk(const Catalog& catalog, const Catalog::Tensor& tensor) {
    for (int64_t i = 0; i < tensor.num_chunks; ++i) {
      const Catalog::Chunk chunk = catalog.chunk(tensor, i);
      if (NumElements(chunk.size) > 0 && !chunk.size.empty()) return {chunk.size.begin(), chunk.size.end()};
    }
    if (tensor.num_chunks == 0 && tensor.bytes > 0 && !tensor.shape.empty()) {
      return {tensor.shape.begin(), tensor.shape.end()};
    }
    return std::vector<int64_t>(std::max<size_t>(1, tensor.shape.size()), 1);
  }

  void Cut() {
    for (size_t first = 0; first < wanted_.size();) {
      size_t end = first;
      int64_t bytes = 0;
      while (end < wanted_.size() && (end == first || bytes + wanted_[end].read_most <= options_.group_bytes)) {
        bytes += wanted_[end++].read_most;
      }
      groups_.push_back({first, end});
      first = end;
    }
  }

  absl::Status ReadItems(absl::Span<const LoadItem> items) {
    for (size_t i = 0; i < items.size(); ++i) {
      const Catalog::ByteItem& item = source_->catalog().byte_items()[items_[i]];
      items[i].into->resize(static_cast<size_t>(item.place.length));
      RETURN_IF_ERROR(source_->ReadItem(items_[i], 0, absl::MakeSpan(*items[i].into)));
    }
    return absl::OkStatus();
  }

  // Sets where a group goes. `loaded_`: the targets, or memory that stages them. `views_`: what this rank reads into,
  // which is the same, or fragments to redistribute.
  void MakeViews(size_t g) {
    Fragments& memory = fragments_[g % 2];
    std::vector<TensorView>& views = views_[g % 2];
    std::vector<TensorView>& loaded = loaded_[g % 2];
    views.clear();
    loaded.clear();
    int64_t bytes = 0;
    const auto take = [&](int64_t more) {
      constexpr int64_t kAlignment = 64;
      return std::exchange(bytes, bytes + (more + kAlignment - 1) / kAlignment * kAlignment);
    };
    std::vector<int64_t> fragments_at, staged_at;
    for (size_t i = groups_[g].first; i < groups_[g].end; ++i) {
      const Wanted& wanted = wanted_[i];
      staged_at.push_back(shared_.staged(i) ? take(shared_.StagedBytes(i)) : 0);
      const std::optional<int64_t> position = wanted.read.mesh().Position(communicator_.rank());
      const std::vector<int64_t> shape = position ? wanted.read.LocalShape(*position) : std::vector<int64_t>{0};
      views.push_back(DenseView(static_cast<void*>(nullptr), wanted.dtype, shape));
      fragments_at.push_back(wanted.moves ? take(NumElements(shape) * SizeOf(wanted.dtype)) : 0);
    }
    memory.Reserve(bytes);
    for (size_t k = 0; k < views.size(); ++k) {
      const size_t i = groups_[g].first + k;
      loaded.push_back(shared_.staged(i) ? shared_.StagedIn(i, memory.at(staged_at[k])) : wanted_[i].into);
      if (!wanted_[i].moves) {
        views[k] = loaded[k];
      } else if (NumElements(views[k].shape) > 0) {
        views[k].data = memory.at(fragments_at[k]);
      }
    }
  }

  std::future<absl::Status> StartReading(size_t g) {
    if (g >= groups_.size()) return {};
    return std::async(std::launch::async,
                      [this, g] { return status::NoThrow("loading", [&] { return ReadGroup(g); }); });
  }

  absl::Status ReadGroup(size_t g) {
    MakeViews(g);
    const int64_t stripe = std::clamp<int64_t>(options_.group_bytes, 1, kLargestStripe);
    std::vector<live::PartRead> parts;
    std::deque<TensorView> of_boxes;  // where fragments have fewer dimensions than their tensors; parts point to them
    for (size_t i = groups_[g].first; i < groups_[g].end; ++i) {
      const Wanted& wanted = wanted_[i];
      const std::optional<int64_t> position = wanted.read.mesh().Position(communicator_.rank());
      if (!position) continue;
      const TensorView* const view = &views_[g % 2][i - groups_[g].first];
      const int64_t element = SizeOf(wanted.dtype);
      for (live::FragmentBox& box : live::FragmentBoxes(wanted.read, *position)) {
        const TensorView* into = view;
        if (wanted.read.flattens()) {
          const live::InFragment at = live::At(wanted.read, box.local, view->strides);
          char* const data = static_cast<char*>(view->data) + at.elements * element;
          into = &of_boxes.emplace_back(
              TensorView{data, view->dtype, Dims(box.size.begin(), box.size.end()), at.strides, view->memory});
          box.local.assign(box.size.size(), 0);
        }
        live::AddParts(*source_, {wanted.tensor, box.offset, box.size, box.local, into}, element, stripe, &parts);
      }
    }
    return live::ReadParts(*source_, parts, source_->ReadThreads(options_.threads, live::kMostThreads), progress_);
  }

  // Redistributes what a group has read. If none of it moves, there is no exchange, and an error waits for a later one.
  absl::Status Exchange(size_t g, const absl::Status& own) {
    std::vector<Problem> problems;
    std::vector<ConstTensorView> sources;
    std::vector<TensorView> targets;
    for (size_t i = groups_[g].first; i < groups_[g].end; ++i) {
      const Wanted& wanted = wanted_[i];
      if (!wanted.moves) continue;
      problems.push_back({wanted.read, wanted.layout, wanted.dtype});
      if (!own.ok()) continue;  // it may not have views
      sources.push_back(views_[g % 2][i - groups_[g].first]);
      targets.push_back(loaded_[g % 2][i - groups_[g].first]);
    }
    if (problems.empty()) return absl::OkStatus();
    if (!own.ok()) return redistributor_.Run(own, {}, {}).status();
    const absl::StatusOr<ExecuteResult> moved =
        redistributor_.Run(redistributor_.PrepareBatch(problems), sources, targets);
    if (moved.ok()) summary_.received_bytes += moved->moved.received;
    return moved.status();
  }

  // Checks that what a group loaded agrees with what was loaded into the same memory before, and puts it there.
  absl::Status Settle(size_t g) {
    for (size_t i = groups_[g].first; i < groups_[g].end; ++i) {
      const std::optional<size_t> other = shared_.Settle(i, loaded_[g % 2][i - groups_[g].first]);
      if (!other) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "tensors ", io::Shown(names_[*other]), " and ", io::Shown(names_[i]),
          " share memory here, and the checkpoint has different values for them; load only one of them, or "
          "give each memory of its own"));
    }
    return absl::OkStatus();
  }

  Communicator& communicator_;
  const LoadOptions& options_;
  Redistributor redistributor_;
  live::Placements placements_{communicator_};
  source::Source* source_ = nullptr;
  int64_t bytes_read_before_ = 0;  // of the source, by others
  std::vector<Signature::Field> fields_;
  std::vector<Wanted> wanted_;
  std::vector<std::string_view> names_;  // of wanted_; the caller's
  live::SharedTargets shared_;           // their targets
  std::vector<int64_t> items_;           // in the catalog
  std::vector<Group> groups_;
  int64_t to_read_ = 0;  // bytes of the tensors, by this rank
  live::Progress* progress_ = nullptr;
  // Of the group that is being read, and of the one that is redistributed meanwhile.
  Fragments fragments_[2];
  std::vector<TensorView> views_[2];
  std::vector<TensorView> loaded_[2];
  LoadSummary summary_;
};

}  // namespace

absl::StatusOr<LoadSummary> Load(const std::string& path, absl::Span<const LoadEntry> entries,
                                 absl::Span<const LoadItem> items, Communicator& communicator,
                                 const LoadOptions& options) {
  return status::NoThrow("loading a checkpoint", [&] {
    std::unique_ptr<source::Source> source;
    const auto open = [&]() -> absl::StatusOr<source::Source*> {
      source::SourceOptions how;
      how.limits = options.limits;
      how.ignore_sidecar = options.ignore_sidecar;
      how.recipe = options.recipe;
      how.checks = !options.check                    ? source::ChunkChecks::kNone
                   : options.read == ReadMode::kOnce ? source::ChunkChecks::kBegun
                                                     : source::ChunkChecks::kAll;
      ASSIGN_OR_RETURN(source, source::Source::Open(path, how));
      return source.get();
    };
    return Loading(communicator, options).Run(open, entries, items);
  });
}

absl::StatusOr<LoadSummary> Load(StoredCheckpoint& stored, absl::Span<const LoadEntry> entries,
                                 absl::Span<const LoadItem> items, Communicator& communicator,
                                 const LoadOptions& options) {
  return status::NoThrow("loading a checkpoint", [&] {
    const auto open = [&]() -> absl::StatusOr<source::Source*> { return &stored.source(); };
    return Loading(communicator, options).Run(open, entries, items);
  });
}

}  // namespace reshard
