// Reads untrusted JSON value by value, in the order of the text. No tree is built, nothing recurses, and the only
// memory used is that for the keys of the objects that are open.
//
//   Walk(R"({"a":{"shape":[2,3]}})", 64, visit) visits
//     []               object
//     ["a"]            object
//     ["a","shape"]    array
//     ["a","shape",0]  integer 2
//     ["a","shape",1]  integer 3
#ifndef RESHARD_JSON_WALK_H_
#define RESHARD_JSON_WALK_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"

namespace reshard::json {

struct WalkedValue {
  // kInteger: a whole number that is not negative and fits. Other numbers are kNegative if they are whole and fit,
  // kLarge if they are whole and fit an unsigned one, else kFraction.
  enum class Kind { kNull, kBool, kInteger, kNegative, kLarge, kFraction, kString, kObject, kArray };
  Kind kind = Kind::kNull;
  bool boolean = false;         // kBool
  int64_t integer = 0;          // kInteger and kNegative
  uint64_t large = 0;           // kLarge
  double fraction = 0;          // kFraction
  std::string* text = nullptr;  // kString; may be moved from
};

// One step from the outermost value to the one that is visited.
struct PathStep {
  std::string key;     // of a member of an object
  int64_t index = -1;  // of an element of an array; -1 for a member
};

using Visitor = absl::FunctionRef<absl::Status(absl::Span<const PathStep> path, const WalkedValue& value)>;

// Calls `visit` for every value; stops at its first error and returns it.
// InvalidArgument: not JSON (what, and at which byte), invalid UTF-8, a key twice in one object.
// ResourceExhausted: more than `depth` arrays and objects inside each other, or out of memory.
absl::Status Walk(std::string_view text, int64_t depth, Visitor visit);

}  // namespace reshard::json

#endif  // RESHARD_JSON_WALK_H_
