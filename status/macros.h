// Passing an error on. `return` in a function that returns a Status or a StatusOr:
//
//   RETURN_IF_ERROR(Check(x));                      // a Status
//   ASSIGN_OR_RETURN(const Mesh mesh, ParseMesh(t)); // a StatusOr; declares a variable or assigns to one
#ifndef RESHARD_STATUS_MACROS_H_
#define RESHARD_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define RETURN_IF_ERROR(...)                                         \
  do {                                                               \
    absl::Status return_if_error_status = (__VA_ARGS__);             \
    if (!return_if_error_status.ok()) return return_if_error_status; \
  } while (false)

#define RESHARD_STATUS_JOIN_(a, b) a##b
#define RESHARD_STATUS_NAME_(line) RESHARD_STATUS_JOIN_(assign_or_return_, line)
#define RESHARD_STATUS_ASSIGN_(result, target, ...)    \
  auto result = (__VA_ARGS__);                         \
  if (!result.ok()) return std::move(result).status(); \
  target = *std::move(result) /* NOLINT(bugprone-macro-parentheses) */
#define ASSIGN_OR_RETURN(target, ...) RESHARD_STATUS_ASSIGN_(RESHARD_STATUS_NAME_(__LINE__), target, __VA_ARGS__)

#endif  // RESHARD_STATUS_MACROS_H_
