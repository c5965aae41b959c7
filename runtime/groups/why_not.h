// The only place where a backend's exceptions become text.
#ifndef RESHARD_RUNTIME_GROUPS_WHY_NOT_H_
#define RESHARD_RUNTIME_GROUPS_WHY_NOT_H_

#include <c10/util/Exception.h>

#include <exception>
#include <string>

namespace reshard::groups {

// Calls f(). Empty if it returns, else the message of what it throws.
template <typename F>
std::string WhyNot(F&& f) {
  std::string reason;
  try {
    f();
    return "";
  } catch (const c10::Error& error) {
    reason = error.what_without_backtrace();
  } catch (const std::exception& error) {
    reason = error.what();
  }
  return reason.empty() ? "an exception without a message" : reason;
}

}  // namespace reshard::groups

#endif  // RESHARD_RUNTIME_GROUPS_WHY_NOT_H_
