#include "reshard/checkpoint/filesystem.h"

#include <csignal>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reshard/planner/units.h"
#include "tools/reshard/doctor/examine.h"

namespace reshard::doctor {
namespace {

// While it lives, signals that would end the process wait, so that nothing is left behind.
class UntilDone {
 public:
  UntilDone() {
    sigset_t ends;
    sigemptyset(&ends);
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ends, number);
    pthread_sigmask(SIG_BLOCK, &ends, &before_);
  }
  ~UntilDone() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  UntilDone(const UntilDone&) = delete;
  UntilDone& operator=(const UntilDone&) = delete;

 private:
  sigset_t before_;
};

Finding Feature(const char* subject, const absl::Status& status, const char* remedy) {
  if (status.ok()) return {subject, State::kThere, "yes", ""};
  return {subject, State::kMissing, std::string(status.message()), remedy};
}

}  // namespace

absl::StatusOr<Section> ExamineFilesystem(const std::string& directory) {
  const UntilDone until_done;
  const absl::StatusOr<FilesystemFeatures> features = TryFilesystem(directory);
  if (!features.ok()) return features.status();
  Section section{absl::StrCat("Filesystem of ", directory),
                  {{"space", State::kFact,
                    absl::StrCat(HumanBytes(features->free_bytes), " free of ", HumanBytes(features->bytes)), ""},
                   Feature("durable files", features->writes, "nothing can be written here")}};
  if (!features->writes.ok()) return section;
  for (Finding& finding : std::vector<Finding>{
           Feature("space taken ahead", features->takes_space_ahead, "a full disk shows only while it is written"),
           Feature("renaming only once", features->renames_without_replacing,
                   "of two conversions to one destination at once, the later may replace an empty directory"),
           Feature("exchange of names", features->exchanges_names,
                   "convert --overwrite is refused; write to a new name"),
           Feature("locks", features->locks, "convert cannot write here: nothing tells it that another one does")}) {
    section.findings.push_back(std::move(finding));
  }
  return section;
}

}  // namespace reshard::doctor
