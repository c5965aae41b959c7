// Which commit this program was built from. The build writes the source file (commit.cmake).
#ifndef RESHARD_TOOLS_RESHARD_DOCTOR_COMMIT_H_
#define RESHARD_TOOLS_RESHARD_DOCTOR_COMMIT_H_

namespace reshard::doctor {

// Twelve digits, with "+" if files were changed since; "unknown" outside of a repository.
const char* Commit();

}  // namespace reshard::doctor

#endif  // RESHARD_TOOLS_RESHARD_DOCTOR_COMMIT_H_
