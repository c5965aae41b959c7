#include "absl/strings/str_cat.h"
#include "reshard/nccl/gpus.h"
#include "reshard/planner/version.h"
#include "tools/reshard/doctor/commit.h"
#include "tools/reshard/doctor/examine.h"

namespace reshard::doctor {

Section ExamineProgram() {
  Section section{"This program", {}};
  section.findings.push_back({"version", State::kFact, Version(), ""});
  section.findings.push_back({"commit", State::kFact, Commit(), ""});
#if defined(__clang__)
  section.findings.push_back({"compiler", State::kFact, absl::StrCat("Clang ", __clang_version__), ""});
#else
  section.findings.push_back({"compiler", State::kFact, absl::StrCat("GCC ", __VERSION__), ""});
#endif
  section.findings.push_back(HasGpuKernels()
                                 ? Finding{"GPU kernels", State::kThere, "compiled in", ""}
                                 : Finding{"GPU kernels", State::kMissing, "not compiled in",
                                           "tensors on GPUs need a build on a machine with the CUDA toolkit"});
  return section;
}

}  // namespace reshard::doctor
