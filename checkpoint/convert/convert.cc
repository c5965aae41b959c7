#include "reshard/checkpoint/convert.h"

#include <chrono>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/convert/conversion.h"
#include "checkpoint/convert/run.h"
#include "checkpoint/convert/store_run.h"
#include "checkpoint/io/error_kind.h"
#include "checkpoint/io/staged_directory.h"
#include "checkpoint/output/output_format.h"
#include "checkpoint/stores/registry.h"
#include "checkpoint/stores/url.h"
#include "reshard/planner/units.h"
#include "status/macros.h"
#include "status/no_throw.h"

namespace reshard {
namespace {

// Another worker may have just finished.
bool AcceptsComplete(const ConvertOptions& options) { return options.resume || options.workers > 1; }

absl::StatusOr<std::unique_ptr<convert::Conversion>> Make(const std::string& source, const std::string& destination,
                                                          const std::optional<LayoutRules>& rules,
                                                          const ConvertOptions& options) {
  if (options.workers < 1 || options.workers > kMaxConvertWorkers || options.worker < 0 ||
      options.worker >= options.workers) {
    return absl::InvalidArgumentError(absl::StrCat("there is no worker ", options.worker, " of ", options.workers,
                                                   ": there are 1 to ", kMaxConvertWorkers, ", numbered from 0"));
  }
  if (options.restart && (options.workers > 1 || options.resume)) {
    return absl::InvalidArgumentError(
        options.resume ? "restart throws away what resume continues; give one of them"
                       : "restart is for a single worker: another one may have just begun. Remove what is left before "
                         "any of them starts (clean)");
  }
  // Before anything could name it: it may have a password in it.
  if (stores::IsUrl(destination)) {
    RETURN_IF_ERROR(stores::DestinationAt(destination).status());
  }
  return convert::Conversion::Make(source, destination, rules, options);
}

absl::StatusOr<std::unique_ptr<io::StagedDirectory>> Begin(const convert::Conversion& conversion, bool replace) {
  const ConvertOptions& options = conversion.options;
  return io::StagedDirectory::Begin(conversion.destination, conversion.name,
                                    {replace, /*resume=*/!options.restart, options.worker, conversion.terms});
}

// Removes the stage, or leaves that to the last worker that uses it.
absl::Status Abandon(io::StagedDirectory& stage) {
  absl::Status abandoned = stage.Abandon();
  return absl::IsFailedPrecondition(abandoned) ? absl::OkStatus() : io::FromSystem(std::move(abandoned));
}

absl::Status CompleteAlready(const convert::Conversion& conversion) {
  return io::FromSystem(absl::AlreadyExistsError(
      absl::StrCat(conversion.destination,
                   " already exists; --overwrite (in Python overwrite=True) replaces it; it is the complete result of "
                   "this same job, which --resume (in Python resume=True) takes for a success")));
}

// For a result that is in its place: removes what an interrupted run may have left beside it.
absl::Status TidyUp(convert::Conversion& conversion) {
  conversion.summary.was_complete = true;
  if (!io::StagedDirectory::HasStaleStaging(conversion.destination, conversion.name)) return absl::OkStatus();
  const absl::StatusOr<std::unique_ptr<io::StagedDirectory>> stage = Begin(conversion, /*replace=*/true);
  if (!stage.ok()) return io::FromSystem(stage.status());
  if ((*stage)->was_committed()) return io::FromSystem((*stage)->Commit());
  return Abandon(**stage);
}

// As Begin, but after an earlier run of this job that read another source, if its result is in place and only its stage
// was not removed.
absl::StatusOr<std::unique_ptr<io::StagedDirectory>> BeginAfter(const convert::Conversion& conversion) {
  const bool replace = conversion.options.overwrite;
  absl::StatusOr<std::unique_ptr<io::StagedDirectory>> begun = Begin(conversion, replace);
  if (!begun.ok() || !(*begun)->was_committed() || conversion.IsComplete()) return begun;
  RETURN_IF_ERROR((*begun)->Commit());
  begun->reset();
  return Begin(conversion, replace);
}

absl::Status WriteToStore(convert::Conversion& conversion) {
  ASSIGN_OR_RETURN(std::shared_ptr<Store> store, stores::StoreOf(conversion.destination));
  convert::StoreRun run(&conversion, std::move(store));
  ASSIGN_OR_RETURN(const bool complete, run.IsComplete());
  if (!complete) return run.Do();
  if (!AcceptsComplete(conversion.options)) return CompleteAlready(conversion);
  conversion.summary.was_complete = true;
  return run.TidyUp();
}

absl::Status Write(convert::Conversion& conversion) {
  const ConvertOptions& options = conversion.options;
  if (stores::IsUrl(conversion.destination)) return WriteToStore(conversion);
  const absl::StatusOr<std::unique_ptr<io::StagedDirectory>> begun = BeginAfter(conversion);
  if (absl::IsAlreadyExists(begun.status()) && conversion.IsComplete()) {
    if (AcceptsComplete(options)) return TidyUp(conversion);
    return CompleteAlready(conversion);
  }
  if (!begun.ok()) return io::FromSystem(begun.status());
  io::StagedDirectory& stage = **begun;
  if (stage.was_committed()) {
    conversion.summary.was_complete = true;
    return io::FromSystem(stage.Commit());
  }
  if (options.continuing && options.workers == 1 && stage.found_stale_staging()) {
    options.continuing(stage.stage(), conversion.summary.staged_bytes);
  }
  if (AcceptsComplete(options) && conversion.IsComplete()) {
    conversion.summary.was_complete = true;
    return Abandon(stage);
  }
  absl::Status status = convert::Run(&conversion, &stage).Do();
  if (!status.ok() && options.workers > 1) {
    // A worker marked as done, just now or by an earlier run, is not waited for: the others may have taken the stage
    // away.
    const absl::StatusOr<bool> in_place = stage.IsInPlace();
    if (in_place.ok() && !*in_place && conversion.IsComplete()) return io::FromSystem(stage.Commit());
  }
  if (status.ok()) return status;
  const CheckpointError kind = KindOf(status);
  if (kind != CheckpointError::kSystem && kind != CheckpointError::kPeer) {
    // Doing the same again would end the same way. An error of removing is not the one to report.
    stage.Abandon().IgnoreError();
  }
  return status;
}

absl::StatusOr<ConvertSummary> ConvertAll(const std::string& source, const std::string& destination,
                                          const std::optional<LayoutRules>& rules, const ConvertOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<convert::Conversion> made, Make(source, destination, rules, options));
  convert::Conversion& conversion = *made;
  ConvertSummary& summary = conversion.summary;
  const auto start = std::chrono::steady_clock::now();
  absl::Status status;
  if (!stores::IsUrl(conversion.destination) && AcceptsComplete(options) && conversion.IsComplete()) {
    status = TidyUp(conversion);
  } else if (summary.needed_bytes() > summary.free_bytes) {
    status = io::FromSystem(absl::ResourceExhaustedError(
        absl::StrCat(destination, " needs ", HumanBytes(summary.needed_bytes()), " more on its filesystem, where ",
                     HumanBytes(summary.free_bytes), " are free")));
  } else {
    status = Write(conversion);
  }
  if (!status.ok()) return status;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  summary.seconds = seconds.count();
  summary.read_bytes = conversion.source->bytes_read();
  return summary;
}

}  // namespace

bool NeedsLayoutRules(CheckpointFormat format) { return output::NeedsRules(format); }

bool TakesLayoutRules(CheckpointFormat format) { return output::TakesRules(format); }

bool SetTarget(std::string_view name, ConvertOptions* options) {
  const bool is_hf = name == "hf";
  const std::optional<CheckpointFormat> format = is_hf ? CheckpointFormat::kSafetensors : FindCheckpointFormat(name);
  if (!format) return false;
  options->format = *format;
  if (!is_hf) return true;
  options->always_index = true;
  options->record_made = true;
  options->unwrap = true;
  options->side_files.beside_file = true;
  options->recipe.selection.weights_only = true;
  return true;
}

absl::StatusOr<ConvertSummary> PlanConversion(const std::string& source, const std::string& destination,
                                              const std::optional<LayoutRules>& rules, const ConvertOptions& options) {
  return status::NoThrow("planning a conversion", [&]() -> absl::StatusOr<ConvertSummary> {
    ASSIGN_OR_RETURN(std::unique_ptr<convert::Conversion> conversion, Make(source, destination, rules, options));
    conversion->summary.planned = conversion->Planned();
    return std::move(conversion->summary);
  });
}

absl::StatusOr<ConvertSummary> Convert(const std::string& source, const std::string& destination,
                                       const std::optional<LayoutRules>& rules, const ConvertOptions& options) {
  return status::NoThrow("converting a checkpoint", [&] { return ConvertAll(source, destination, rules, options); });
}

}  // namespace reshard
