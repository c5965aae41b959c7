#include "python/core/names.h"

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "reshard/planner/option_text.h"

namespace reshard::core {

absl::StatusOr<Notation> ReadNotation(const std::string& name) {
  const std::optional<Notation> notation = ParseNotation(name);
  if (notation) return *notation;
  return absl::InvalidArgumentError(absl::StrCat("\"", Clipped(name), "\" is not a notation: ", KnownNotations()));
}

absl::StatusOr<DType> ReadDType(const std::string& name) {
  const std::optional<DType> dtype = FindDType(name);
  if (dtype) return *dtype;
  return absl::InvalidArgumentError(absl::StrCat("\"", Clipped(name), "\" is not a dtype: ", KnownDTypes()));
}

}  // namespace reshard::core
