// How much a test samples, and how long it may take, where a sanitizer watches it: that is several times slower, and
// looks for what few samples show as well.
#ifndef RESHARD_TESTS_SANITIZED_H_
#define RESHARD_TESTS_SANITIZED_H_

#include "absl/base/config.h"

namespace reshard::testing {

#if defined(ABSL_HAVE_ADDRESS_SANITIZER)
inline constexpr bool kAddressSanitized = true;  // what was freed is kept for a while
#else
inline constexpr bool kAddressSanitized = false;
#endif
#if defined(ABSL_HAVE_ADDRESS_SANITIZER) || defined(ABSL_HAVE_THREAD_SANITIZER)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_SANITIZED_H_
