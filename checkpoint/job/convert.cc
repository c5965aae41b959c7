#include "reshard/checkpoint/convert.h"

#include <chrono>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/io/staged_directory.h"
#include "checkpoint/job/conversion.h"
#include "checkpoint/job/convert_error.h"
#include "checkpoint/job/run.h"
#include "planner/layout/no_throw.h"

namespace reshard {
namespace {

constexpr int64_t kMostWorkers = 4096;

// Several workers always go on from what is there: a sibling may have begun it a moment ago.
bool GoesOn(const ConvertOptions& options) { return options.resume || options.workers > 1; }

absl::StatusOr<std::unique_ptr<Conversion>> Make(const std::string& source, const std::string& destination,
                                                 const std::optional<LayoutRules>& rules,
                                                 const ConvertOptions& options) {
  if (options.workers < 1 || options.workers > kMostWorkers || options.worker < 0 ||
      options.worker >= options.workers) {
    return absl::InvalidArgumentError(absl::StrCat("there is no worker ", options.worker, " of ", options.workers,
                                                   ": there are 1 to ", kMostWorkers, ", numbered from 0"));
  }
  return Conversion::Make(source, destination, rules, options);
}

absl::StatusOr<std::unique_ptr<StagedDirectory>> Begin(const Conversion& conversion, bool replace) {
  const ConvertOptions& options = conversion.options;
  return StagedDirectory::Begin(conversion.destination, conversion.name,
                                {replace, GoesOn(options), options.worker, conversion.terms});
}

// Removes the stage, or leaves that to the last of those who live in it.
absl::Status Abandon(StagedDirectory& stage) {
  absl::Status abandoned = stage.Abandon();
  return absl::IsFailedPrecondition(abandoned) ? absl::OkStatus() : FromSystem(std::move(abandoned));
}

// For a result that is in its place: removes what an interrupted run may have left beside it.
absl::Status TidyUp(Conversion& conversion) {
  conversion.summary.was_complete = true;
  if (!StagedDirectory::HasLeavings(conversion.destination, conversion.name)) return absl::OkStatus();
  const absl::StatusOr<std::unique_ptr<StagedDirectory>> stage = Begin(conversion, /*replace=*/true);
  if (!stage.ok()) return FromSystem(stage.status());
  if ((*stage)->was_committed()) return FromSystem((*stage)->Commit());
  return Abandon(**stage);
}

absl::Status Write(Conversion& conversion) {
  const ConvertOptions& options = conversion.options;
  const absl::StatusOr<std::unique_ptr<StagedDirectory>> begun = Begin(conversion, options.overwrite);
  // Other workers may have come to the end just now.
  if (absl::IsAlreadyExists(begun.status()) && GoesOn(options) && conversion.IsComplete()) return TidyUp(conversion);
  if (!begun.ok()) return FromSystem(begun.status());
  StagedDirectory& stage = **begun;
  if (stage.was_committed()) {
    conversion.summary.was_complete = true;
    return FromSystem(stage.Commit());
  }
  if (GoesOn(options) && conversion.IsComplete()) {
    conversion.summary.was_complete = true;
    return Abandon(stage);
  }
  absl::Status status = Run(&conversion, &stage).Do();
  if (!status.ok() && options.workers > 1) {
    // Who is marked as done, just now or by an earlier run, is not waited for: the others may have taken the stage
    // away.
    const absl::StatusOr<bool> in_place = stage.IsInPlace();
    if (in_place.ok() && !*in_place && conversion.IsComplete()) return FromSystem(stage.Commit());
  }
  const CheckpointError kind = KindOf(status);
  if (!status.ok() && kind != CheckpointError::kSystem && kind != CheckpointError::kPeer) {
    // Doing the same again would end the same way. An error of removing is not the one to report.
    stage.Abandon().IgnoreError();
  }
  return status;
}

absl::StatusOr<ConvertSummary> ConvertAll(const std::string& source, const std::string& destination,
                                          const std::optional<LayoutRules>& rules, const ConvertOptions& options) {
  absl::StatusOr<std::unique_ptr<Conversion>> made = Make(source, destination, rules, options);
  if (!made.ok()) return made.status();
  Conversion& conversion = **made;
  ConvertSummary& summary = conversion.summary;
  const auto start = std::chrono::steady_clock::now();
  absl::Status status;
  if (GoesOn(options) && conversion.IsComplete()) {
    status = TidyUp(conversion);
  } else if (!GoesOn(options) && summary.disk_bytes > summary.free_bytes) {
    status = FromSystem(absl::ResourceExhaustedError(
        absl::StrCat("the result has ", summary.disk_bytes, " bytes, the disk has ", summary.free_bytes, " left")));
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

absl::StatusOr<ConvertSummary> PlanConversion(const std::string& source, const std::string& destination,
                                              const std::optional<LayoutRules>& rules, const ConvertOptions& options) {
  return NoThrow("planning a conversion", [&]() -> absl::StatusOr<ConvertSummary> {
    absl::StatusOr<std::unique_ptr<Conversion>> conversion = Make(source, destination, rules, options);
    if (!conversion.ok()) return conversion.status();
    return (*conversion)->summary;
  });
}

absl::StatusOr<ConvertSummary> Convert(const std::string& source, const std::string& destination,
                                       const std::optional<LayoutRules>& rules, const ConvertOptions& options) {
  return NoThrow("converting a checkpoint", [&] { return ConvertAll(source, destination, rules, options); });
}

}  // namespace reshard
