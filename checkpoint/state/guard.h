// The one place where loading and saving turn exceptions, of the standard library's containers and threads, into
// errors.
#ifndef RESHARD_CHECKPOINT_STATE_GUARD_H_
#define RESHARD_CHECKPOINT_STATE_GUARD_H_

#include <exception>
#include <new>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace reshard {

// What f() returns: a Status or a StatusOr. ResourceExhausted when memory ran out, Internal for any other exception.
template <typename F>
auto Guarded(absl::string_view doing, F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat("out of memory while ", doing));
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("exception while ", doing, ": ", error.what()));
  }
}

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_STATE_GUARD_H_
