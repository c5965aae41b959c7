#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "python/core/module.h"
#include "python/core/names.h"
#include "python/core/status.h"
#include "reshard/checkpoint/convert.h"
#include "reshard/checkpoint/filesystem.h"
#include "reshard/checkpoint/fingerprint.h"
#include "reshard/checkpoint/leavings.h"
#include "reshard/checkpoint/report.h"
#include "reshard/checkpoint/store.h"
#include "reshard/checkpoint/store_calls.h"
#include "reshard/checkpoint/verify.h"
#include "reshard/planner/environment.h"
#include "reshard/planner/option_text.h"
#include "status/macros.h"
#include "status/mutex.h"

namespace reshard::core {
namespace {

namespace nb = nanobind;
using nb::literals::operator""_a;

// State shared by a job on its own thread and the interpreter's thread, which waits for it.
class Watched {
 public:
  void Show(const ConvertProgress& progress) {
    const status::MutexLock lock(mutex_);
    progress_ = progress;
  }
  void End() {
    const status::MutexLock lock(mutex_);
    ended_ = true;
    changed_.Announce();
  }
  // Whether the job ends within `time`. Sets `progress` to how far it is.
  bool HasEnded(std::chrono::milliseconds time, ConvertProgress& progress) {
    const status::MutexLock lock(mutex_);
    changed_.WaitFor(mutex_, time, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ended_; });
    progress = progress_;
    return ended_;
  }

 private:
  status::Mutex mutex_;
  status::Changes changed_;
  ConvertProgress progress_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

// Calls work(progress, stop) on its own thread, while this one calls `show`, if it is not None, and checks for signals
// such as Ctrl-C. An exception from either stops the work and is raised once the work has ended.
template <typename Work>
void RunWatched(const nb::object& show, const Work& work) {
  if (const absl::Status usable = CheckEnvironment(); !usable.ok()) Raise(usable);
  Watched watched;
  std::stop_source stop;
  std::thread worker([&] {
    work([&](const ConvertProgress& progress) { watched.Show(progress); }, stop.get_token());
    watched.End();
  });
  constexpr std::chrono::milliseconds kLook(100);
  std::optional<nb::python_error> raised;
  for (;;) {
    ConvertProgress progress;
    bool ended = false;
    {
      const nb::gil_scoped_release release;
      ended = watched.HasEnded(kLook, progress);
    }
    if (ended) break;
    if (raised) continue;
    try {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      if (!show.is_none()) show(progress.done, progress.total, progress.seconds);
    } catch (nb::python_error& error) {
      raised.emplace(std::move(error));
      stop.request_stop();
    }
  }
  worker.join();
  if (raised) throw std::move(*raised);
}

// Pairs of a pattern and a dtype name, as the casts of a recipe.
std::vector<std::pair<std::string, DType>> ReadCasts(const std::vector<std::pair<std::string, std::string>>& texts) {
  std::vector<std::pair<std::string, DType>> casts;
  for (const auto& [pattern, name] : texts) {
    casts.emplace_back(pattern, ValueOrRaise(ReadDType(name)));
  }
  return casts;
}

// Which part of the source is selected and what is made of it, for conversions, comparisons and fingerprints.
struct What {
  Recipe recipe;
  AuxiliaryFileTerms side_files;
};

What ReadWhat(const std::optional<std::string>& recipe_json, bool invert, const Selection& selection,
              const std::vector<std::pair<std::string, std::string>>& casts, const AuxiliaryFileTerms& side_files) {
  What what{{}, side_files};
  if (recipe_json) {
    absl::StatusOr<Recipe> read = Recipe::Parse(*recipe_json);
    if (read.ok() && invert) read = read->Inverted();
    what.recipe = ValueOrRaise(std::move(read));
  }
  for (const auto& [from, to] : selection.renamings) {
    if (const absl::Status fits = CheckRenaming(from, to); !fits.ok()) Raise(fits);
  }
  const absl::Status refined = what.recipe.Refine(selection, ReadCasts(casts));
  if (!refined.ok()) Raise(refined);
  return what;
}

// Bytes per element; 0 if there is no such dtype.
int64_t DTypeBytes(const std::string& name) {
  const std::optional<DType> dtype = FindDType(name);
  return dtype ? SizeOf(*dtype) : 0;
}

std::string Inspect(const std::string& path, const std::string& pattern, bool chunks) {
  absl::StatusOr<std::string> json;
  {
    const nb::gil_scoped_release release;
    json = [&]() -> absl::StatusOr<std::string> {
      ASSIGN_OR_RETURN(const Catalog catalog, ReadCatalog(path));
      Listing listing = List(catalog, pattern);
      if (pattern.empty()) {
        ASSIGN_OR_RETURN(listing.beside, FindAuxiliaryFiles(path, catalog));
      }
      ASSIGN_OR_RETURN(listing.layouts, ReadRecordedLayouts(catalog));
      return ListingToJson(listing, chunks);
    }();
  }
  if (!json.ok()) RaiseCheckpoint(json.status());
  return *std::move(json);
}

// The value of `key`, which must exist. Raises TypeError, which names the key, if the value has a different type.
template <typename T>
T Get(const nb::dict& terms, const char* key) {
  T value;
  if (!nb::try_cast<T>(terms[key], value)) {
    const auto type = nb::cast<std::string>(terms[key].type().attr("__name__"));
    throw nb::type_error(absl::StrCat(key, " cannot be of type ", type).c_str());
  }
  return value;
}

// What convert, verify and fingerprint have in common, as Python passes it: `terms` has exactly these keys.
What ReadTerms(const nb::dict& terms) {
  const auto texts = [&](const char* key) { return Get<std::vector<std::string>>(terms, key); };
  const auto pairs = [&](const char* key) { return Get<std::vector<std::pair<std::string, std::string>>>(terms, key); };
  Selection selection;
  selection.include = texts("include");
  selection.exclude = texts("exclude");
  selection.weights_only = Get<bool>(terms, "weights_only");
  selection.byte_items = Get<bool>(terms, "byte_items");
  selection.partial = Get<bool>(terms, "partial");
  selection.keep_rank_local = Get<bool>(terms, "keep_rank_local");
  selection.strip_prefix = Get<std::string>(terms, "strip_prefix");
  selection.add_prefix = Get<std::string>(terms, "add_prefix");
  selection.renamings = pairs("rename");
  const bool allow_unmatched = Get<bool>(terms, "allow_unmatched");
  What what = ReadWhat(Get<std::optional<std::string>>(terms, "recipe"), Get<bool>(terms, "invert"), selection,
                       pairs("dtype"), {texts("side_files"), Get<bool>(terms, "no_side_files"), allow_unmatched});
  if (allow_unmatched) what.recipe.asked = {};
  return what;
}

std::optional<LayoutRules> ReadRules(const nb::dict& terms, const Recipe& recipe) {
  const auto json = Get<std::optional<std::string>>(terms, "rules");
  if (json) return ValueOrRaise(LayoutRules::Parse(*json));
  const auto mesh = Get<std::optional<std::string>>(terms, "mesh");
  if (!mesh) return recipe.layouts;
  return ValueOrRaise(LayoutRules::ForAll(*mesh, Get<std::string>(terms, "layout")));
}

std::string ConvertFrom(const std::string& source, const std::string& destination, const nb::dict& terms,
                        const nb::object& progress) {
  const What what = ReadTerms(terms);
  ConvertOptions options;
  const auto to = Get<std::string>(terms, "to");
  options.memory_limit = Get<int64_t>(terms, "memory_limit");
  options.file_bytes = Get<int64_t>(terms, "file_size");
  options.threads = Get<int>(terms, "threads");
  options.overwrite = Get<bool>(terms, "overwrite");
  options.restart = Get<bool>(terms, "restart");
  options.resume = Get<bool>(terms, "resume");
  options.verify = Get<bool>(terms, "verify");
  options.workers = Get<int64_t>(terms, "workers");
  options.worker = Get<int64_t>(terms, "worker");
  options.recipe = what.recipe;
  options.side_files = what.side_files;
  if (!SetTarget(to, &options)) {
    Raise(absl::InvalidArgumentError(absl::StrCat("to=\"", Clipped(to), "\" is not dcp, safetensors, hf or orbax")));
  }
  if (to == "hf") {
    options.unwrap = !Get<bool>(terms, "keep_names");
    if (Get<bool>(terms, "with_training_state")) options.recipe.selection = what.recipe.selection;
  }
  const std::optional<LayoutRules> rules = ReadRules(terms, what.recipe);
  if (!rules && NeedsLayoutRules(options.format)) {
    Raise(absl::InvalidArgumentError(
        "say how to shard the tensors: rules=, or mesh= and layout=, or layouts in the recipe; or write them whole: "
        "to=\"hf\" (what from_pretrained loads), to=\"safetensors\""));
  }
  if (rules && !TakesLayoutRules(options.format)) {
    Raise(absl::InvalidArgumentError(absl::StrCat("to=\"", to, "\" stores tensors whole: leave out the layouts")));
  }
  const bool dry_run = Get<bool>(terms, "dry_run");
  if (Get<bool>(terms, "clean") && !dry_run) {
    if (const absl::StatusOr<int> removed = RemoveStaleStaging(destination); !removed.ok()) {
      RaiseCheckpoint(removed.status());
    }
  }
  absl::StatusOr<ConvertSummary> summary;
  RunWatched(progress, [&](std::function<void(const ConvertProgress&)> show, std::stop_token stop) {
    options.progress = std::move(show);
    options.stop = std::move(stop);
    summary =
        dry_run ? PlanConversion(source, destination, rules, options) : Convert(source, destination, rules, options);
  });
  if (!summary.ok()) RaiseCheckpoint(summary.status());
  return ConversionToJson(*summary, {dry_run, options.verify, options.workers, options.worker, 0});
}

std::string Compare(const std::string& a, const std::string& b, const nb::dict& terms, const nb::object& progress) {
  What what = ReadTerms(terms);
  VerifyOptions options;
  options.threads = Get<int>(terms, "threads");
  options.recipe = std::move(what.recipe);
  options.side_files = std::move(what.side_files);
  absl::StatusOr<VerifyReport> report;
  RunWatched(progress, [&](std::function<void(const ConvertProgress&)> show, std::stop_token stop) {
    options.progress = std::move(show);
    options.stop = std::move(stop);
    report = VerifyCheckpoints(a, b, options);
  });
  if (!report.ok()) RaiseCheckpoint(report.status());
  return ComparisonToJson(*report);
}

std::string TakeFingerprint(const std::string& path, const nb::dict& terms, int64_t part, int64_t parts, int threads,
                            const nb::object& progress) {
  FingerprintOptions options;
  options.recipe = ReadTerms(terms).recipe;
  options.threads = threads;
  options.part = part;
  options.parts = parts;
  absl::StatusOr<CheckpointFingerprint> taken;
  RunWatched(progress, [&](std::function<void(const ConvertProgress&)> show, std::stop_token stop) {
    options.progress = std::move(show);
    options.stop = std::move(stop);
    taken = FingerprintCheckpoint(path, options);
  });
  if (!taken.ok()) RaiseCheckpoint(taken.status());
  return FingerprintToJson(*taken);
}

// Registers the stores of the Python package: a table that never moves (reshard.stores).
void UseStores(uintptr_t table) { RegisterStore("", MakeStore(*reinterpret_cast<const reshard_store_calls*>(table))); }

nb::bytes ReadBytes(const std::string& path) {
  absl::StatusOr<std::string> read;
  {
    const nb::gil_scoped_release release;
    read = ReadSmallFile(path);
  }
  if (!read.ok()) RaiseCheckpoint(read.status());
  return nb::bytes(read->data(), read->size());
}

}  // namespace

void AddCheckpoints(nb::module_& module) {
  module.def("read_bytes", &ReadBytes, "path"_a);
  module.def("use_stores", &UseStores, "table"_a);
  module.def("store_needed_for", &StoreNeededFor, "path"_a);
  module.def("dtype_bytes", &DTypeBytes, "name"_a);
  module.def("inspect", &Inspect, "path"_a, "pattern"_a, "chunks"_a);
  module.def("convert", &ConvertFrom, "source"_a, "destination"_a, "terms"_a, "progress"_a.none());
  module.def("verify", &Compare, "a"_a, "b"_a, "terms"_a, "progress"_a.none());
  module.def("fingerprint", &TakeFingerprint, "path"_a, "terms"_a, "part"_a, "parts"_a, "threads"_a,
             "progress"_a.none());
}

}  // namespace reshard::core
