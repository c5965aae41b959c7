// The examinations: each looks at one side of this machine, changes nothing, and runs no other program.
#ifndef RESHARD_TOOLS_RESHARD_DOCTOR_EXAMINE_H_
#define RESHARD_TOOLS_RESHARD_DOCTOR_EXAMINE_H_

#include <string>

#include "absl/status/statusor.h"
#include "tools/reshard/doctor/finding.h"

namespace reshard::doctor {

// Version, commit, compiler, kernels.
Section ExamineProgram();
// Processor, cores, memory, huge pages.
Section ExamineMachine();
// GPUs and their driver, NCCL, PyTorch, libcurl and certificates.
Section ExamineLibraries();
// What a conversion into `directory` needs. Errors of TryFilesystem.
absl::StatusOr<Section> ExamineFilesystem(const std::string& directory);

}  // namespace reshard::doctor

#endif  // RESHARD_TOOLS_RESHARD_DOCTOR_EXAMINE_H_
