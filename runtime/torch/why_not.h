// The one place where a backend's exceptions become words.
#ifndef RESHARD_RUNTIME_TORCH_WHY_NOT_H_
#define RESHARD_RUNTIME_TORCH_WHY_NOT_H_

#include <c10/util/Exception.h>

#include <exception>
#include <string>

namespace reshard {

// Empty when f() returns.
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

}  // namespace reshard

#endif  // RESHARD_RUNTIME_TORCH_WHY_NOT_H_
