#include "tools/reshard/checkpoint/launcher.h"

#include <array>
#include <cstdlib>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "reshard/checkpoint/convert.h"

namespace reshard::tool {
namespace {

struct Launcher {
  const char* name;
  const char* id;    // the variable that numbers this process
  const char* size;  // the variable that counts the processes of this launch; null: there is none
  // The variable that is set if `size` is about this very process; null: it always is.
  const char* only_with;
};

// The innermost launcher first: torchrun may run under srun.
constexpr std::array<Launcher, 5> kLaunchers = {{
    {"torchrun", "RANK", "WORLD_SIZE", "RESHARD_RUN_AS_MODULE"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", nullptr},
    {"MPI", "PMI_RANK", "PMI_SIZE", nullptr},
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", nullptr},
    {"Kubernetes", "JOB_COMPLETION_INDEX", nullptr, nullptr},
}};

bool IsSet(const char* variable) {
  const char* const text = variable == nullptr ? nullptr : std::getenv(variable);
  return text != nullptr && *text != '\0';
}

absl::StatusOr<int64_t> ReadNumber(const char* variable) {
  const absl::string_view text = std::getenv(variable);
  int64_t number = 0;
  if (!absl::SimpleAtoi(text, &number) || number < 0) {
    return absl::InvalidArgumentError(absl::StrCat("the environment variable ", variable, " is not a number: ",
                                                   text.substr(0, 40), "; give --workers and --worker-id"));
  }
  return number;
}

absl::StatusOr<WorkerOf> FromLauncher(const std::optional<int64_t>& workers) {
  for (const Launcher& launcher : kLaunchers) {
    if (!IsSet(launcher.id)) continue;
    int64_t count = workers.value_or(1);
    if (!workers) {
      const bool counts = IsSet(launcher.size) && (launcher.only_with == nullptr || IsSet(launcher.only_with));
      if (!counts) continue;
      const absl::StatusOr<int64_t> said = ReadNumber(launcher.size);
      if (!said.ok()) return said.status();
      count = *said;
      if (count == 1) return WorkerOf{};
    }
    const absl::StatusOr<int64_t> id = ReadNumber(launcher.id);
    if (!id.ok()) return id.status();
    if (*id >= count || count > kMaxConvertWorkers) {
      return absl::InvalidArgumentError(
          absl::StrCat(launcher.id, "=", *id, " (", launcher.name, ") is not one of ", count,
                       " workers, of which there are at most ", kMaxConvertWorkers,
                       "; start as many processes as --workers says, or give --worker-id"));
    }
    return WorkerOf{*id, count, launcher.name};
  }
  if (!workers) return WorkerOf{};
  return absl::InvalidArgumentError(absl::StrCat(
      "--workers ", *workers, " needs --worker-id, from 0 to ", *workers - 1,
      ": which of them this process is. Slurm, MPI, torchrun and indexed Kubernetes jobs say it themselves"));
}

}  // namespace

absl::StatusOr<WorkerOf> FindWorker(const WorkerFlags& flags) {
  if (flags.workers && (*flags.workers < 1 || *flags.workers > kMaxConvertWorkers)) {
    return absl::InvalidArgumentError(absl::StrCat("--workers must be between 1 and ", kMaxConvertWorkers));
  }
  if (!flags.id) {
    if (flags.workers == 1) return WorkerOf{};
    return FromLauncher(flags.workers);
  }
  if (!flags.workers) return absl::InvalidArgumentError("--worker-id needs --workers, the number of them");
  if (*flags.id < 0 || *flags.id >= *flags.workers) {
    return absl::InvalidArgumentError(
        absl::StrCat("--worker-id must be between 0 and ", *flags.workers - 1, ", for --workers ", *flags.workers));
  }
  return WorkerOf{*flags.id, *flags.workers, ""};
}

}  // namespace reshard::tool
