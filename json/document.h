// Untrusted JSON as a tree, for texts that are small or looked at in any order; json/walk.h is for the
// others. Without the parser's headers.
#ifndef RESHARD_JSON_DOCUMENT_H_
#define RESHARD_JSON_DOCUMENT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace reshard::json {

// A value of a document, which must outlive it.
class Value {
 public:
  bool is_object() const;
  bool is_array() const;
  bool is_string() const;
  bool is_null() const;
  // Of a list or an object.
  size_t size() const;
  // The value at a place of a list. Requires i < size().
  Value at(size_t i) const;
  // The member of an object; nothing when there is none, or this is not an object.
  std::optional<Value> Find(std::string_view key) const;
  // Of an object, in ascending order.
  std::vector<std::string> Keys() const;

  // Nothing when the value is something else. A count is a whole number of at least 0 that fits 64 bits.
  std::optional<int64_t> Count() const;
  std::optional<int64_t> Integer() const;  // a negative one, too
  std::optional<double> Number() const;
  std::optional<bool> Bool() const;
  std::optional<std::string> Text() const;

  // The value as JSON, and the same shortened for messages.
  std::string Written() const;
  std::string Shown() const;

 private:
  friend class Document;
  explicit Value(const void* value) : value_(value) {}
  const void* value_;
};

// Owns a parsed text.
class Document {
 public:
  // Most arrays and objects inside each other, unless a caller says otherwise.
  static constexpr int64_t kDepth = 64;
  // Errors: those of Walk, and InvalidArgument also for a text that is nested too deep.
  static absl::StatusOr<Document> Parse(std::string_view text, int64_t depth = kDepth);
  Value root() const { return Value(value_.get()); }

 private:
  std::shared_ptr<const void> value_;
};

}  // namespace reshard::json

#endif  // RESHARD_JSON_DOCUMENT_H_
