// One function per subcommand. Each declares its flags on `app` and returns the action to run if the subcommand is
// given. The result of the action is the exit code.
#ifndef RESHARD_TOOLS_RESHARD_COMMANDS_H_
#define RESHARD_TOOLS_RESHARD_COMMANDS_H_

#include <CLI/App.hpp>
#include <functional>
#include <optional>
#include <string>

#include "reshard/layout/dtype.h"
#include "reshard/planner/batch.h"
#include "reshard/planner/plan.h"
#include "reshard/planner/relabel.h"
#include "tools/reshard/problem.h"

namespace reshard::tool {

// Runs the command with the arguments of main(). Returns its exit code.
int CommandMain(int argc, char** argv);

using Action = std::function<int()>;

Action AddPlan(CLI::App& app);
Action AddShow(CLI::App& app);
Action AddRun(CLI::App& app);
Action AddCalibrate(CLI::App& app);
Action AddInspect(CLI::App& app);
Action AddCheckpoint(CLI::App& app);
Action AddVerify(CLI::App& app);
Action AddFingerprint(CLI::App& app);
Action AddCheck(CLI::App& app);
Action AddDoctor(CLI::App& app);
// What --version prints: the version first, then the commit and the GPUs and libraries found, one per line.
std::string VersionText();
// Makes --help of `app`, and of the subcommands that are added to it from now on, print as `reshard help` does.
void UseHelpTexts(CLI::App& app);
// These describe the subcommands of `app`, which must outlive the action.
Action AddHelp(CLI::App& app);
Action AddCompletion(CLI::App& app);

// The value of flags for notations, as help shows it: "reshard|dtensor|jax|shardy|hlo".
std::string NotationValues();

// The headings under which --help lists subcommands, and the heading of the flags at the end of every help.
constexpr const char* kOfLayouts = "Layouts and plans";
constexpr const char* kOfCheckpoints = "Checkpoints";
constexpr const char* kOfItself = "The command itself";
constexpr const char* kGeneral = "General";

// The flags that plan and run share.
struct PlanFlags {
  std::string mesh, from, to;
  std::string dtype, to_mesh, shape;
  std::optional<std::string> format, from_format, to_format, nodes;
  std::string topology = "flat", memory_limit, objective = "time", ops = "all";
  bool no_overlap = false;

  const CLI::Option* last_positional = nullptr;
  // Whether MESH FROM TO were given. An empty argument counts as given; it is then refused when it is parsed.
  bool has_problem() const { return last_positional->count() > 0; }

  void Declare(CLI::App& app, const char* default_dtype);
  // Fills the parsed forms and returns an exit code, kOk if all is well. Flags are checked first (exit code 2), then
  // files (5).
  int Parse(ProblemText& text, DType& parsed_dtype, PlanOptions& options) const;

 private:
  int ReadTopology(Topology& out) const;
  int ApplyNodes(const ProblemText& text, Topology& out) const;
};

// `reshard plan --batch`: reads one problem per line and prints one answer per line. Returns the exit code of the first
// error.
struct EachLineFlags {
  bool pieces = false;
  std::string html;  // the file for the page about all of them; empty: none
};
int PlanEachLine(const std::string& path, const ProblemText& defaults, DType dtype, const PlanOptions& options,
                 const EachLineFlags& flags);

struct ScheduleFlags {
  BatchOptions options;
  bool json = false;
  bool explain = false;
  bool relabel = false;  // one order of devices for all targets
  std::string html;      // the file for the page about the schedule; empty: none
};
// What tensors are called: `names` in errors, `shown` on pages, `ids` (JSON text) in `reshard plan --json`; if `ids` is
// empty, `shown` there too.
struct ScheduleNames {
  std::vector<std::string> names, shown, ids;
};
// Prints one schedule for all of these problems. Returns an exit code.
int PlanSchedule(std::vector<Problem> problems, const ScheduleNames& names, const ScheduleFlags& flags);

// `reshard plan --batch --coalesce`: reads one problem per line and prints one schedule for all of them, or nothing if
// any line is bad.
int PlanCoalesced(const std::string& path, const ProblemText& defaults, DType dtype, const ScheduleFlags& flags);

// `reshard plan MODEL`: a model, and where its tensors are and go.
struct ModelFlags {
  std::string mesh, to_mesh, from, to;
};
int PlanModel(const std::string& path, const ModelFlags& model_flags, DType dtype, const ScheduleFlags& flags);

// Writes what a page's or picture's maker returned to the file of --html or --svg, and says so. Returns an exit code.
int WritePage(const std::string& path, const absl::StatusOr<std::string>& page);

// What --relabel prints before a plan: the devices in the order to use, and what that saves.
std::string RelabelText(const Relabeling& relabeling);

}  // namespace reshard::tool

#endif  // RESHARD_TOOLS_RESHARD_COMMANDS_H_
