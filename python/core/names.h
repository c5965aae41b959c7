// Names of notations and dtypes, as Python gives them.
#ifndef RESHARD_PYTHON_CORE_NAMES_H_
#define RESHARD_PYTHON_CORE_NAMES_H_

#include <string>

#include "absl/status/statusor.h"
#include "reshard/layout/dtype.h"
#include "reshard/layout/notation.h"

namespace reshard::core {

// InvalidArgument lists the known names.
absl::StatusOr<Notation> ReadNotation(const std::string& name);
absl::StatusOr<DType> ReadDType(const std::string& name);

}  // namespace reshard::core

#endif  // RESHARD_PYTHON_CORE_NAMES_H_
