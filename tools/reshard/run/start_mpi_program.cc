// How the command, which is not linked with MPI, runs over MPI: it becomes the program reshard-mpi.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/reshard/exit_code.h"
#include "tools/reshard/run/calibrate_command.h"
#include "tools/reshard/run/mpi_program.h"
#include "tools/reshard/run/run_command.h"

namespace reshard::tool {
namespace {

std::vector<std::string> ArgumentsOfThisProcess() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(file, argument, '\0');) arguments.push_back(argument);
  return arguments;
}

int BecomeMpiProgram() {
  const std::string program = FindMpiProgram();
  if (program.empty()) {
    return Fail(
        kIo, absl::StrCat("running over MPI requires the program reshard-mpi, which a build with RESHARD_BUILD_MPI=ON "
                          "makes and installs; it is not at ",
                          absl::StrJoin(PlacesOfMpiProgram(), " or ")));
  }
  std::vector<std::string> arguments = ArgumentsOfThisProcess();
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  execv(program.c_str(), pointers.data());
  return Fail(kIo, absl::StrCat("cannot start ", program, ": ", std::strerror(errno)));
}

}  // namespace

int RunOverMpi(const RunCommand& /*command*/) { return BecomeMpiProgram(); }

int CalibrateOverMpi(const CalibrateCommand& /*command*/) { return BecomeMpiProgram(); }

}  // namespace reshard::tool
