// JSON that nobody vouches for, value by value in the order of the text: no tree is built, nothing recurses, and memory
// is that of the keys of the objects that are open.
//
//   WalkJson(R"({"a":{"shape":[2,3]}})", 64, visit) visits
//     []               object
//     ["a"]            object
//     ["a","shape"]    array
//     ["a","shape",0]  integer 2
//     ["a","shape",1]  integer 3
#ifndef RESHARD_CHECKPOINT_IO_JSON_WALK_H_
#define RESHARD_CHECKPOINT_IO_JSON_WALK_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"

namespace reshard {

struct JsonValue {
  enum class Kind { kNull, kBool, kInteger, kFraction, kString, kObject, kArray };
  Kind kind = Kind::kNull;
  int64_t integer = 0;          // kInteger: whole numbers that are not negative and fit
  std::string* text = nullptr;  // kString; may be moved from
};

// One step from the outermost value to the one that is visited.
struct JsonStep {
  std::string key;     // of a member of an object
  int64_t index = -1;  // of an element of an array; -1 for a member
};

using JsonVisitor = absl::FunctionRef<absl::Status(absl::Span<const JsonStep> path, const JsonValue& value)>;

// Calls `visit` for every value; stops at its first error and returns it.
// InvalidArgument: not JSON (what, and at which byte), invalid UTF-8, a key twice in one object.
// ResourceExhausted: more than `depth` arrays and objects inside each other, or out of memory.
absl::Status WalkJson(std::string_view text, int64_t depth, JsonVisitor visit);

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_IO_JSON_WALK_H_
