// The one place that turns exceptions, of the standard library and of parsers, into errors.
#ifndef RESHARD_STATUS_NO_THROW_H_
#define RESHARD_STATUS_NO_THROW_H_

#include <exception>
#include <new>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace reshard::status {

// Returns what f() returns: a Status or a StatusOr. ResourceExhausted when memory ran out, Internal for any other
// exception.
template <typename F>
auto NoThrow(absl::string_view doing, F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat("out of memory while ", doing));
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("exception while ", doing, ": ", error.what()));
  } catch (...) {
    return absl::InternalError(absl::StrCat("unknown exception while ", doing));
  }
}

}  // namespace reshard::status

#endif  // RESHARD_STATUS_NO_THROW_H_
