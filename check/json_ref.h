// A value of a parsed JSON text, seen without the parser's headers.
#ifndef RESHARD_CHECK_JSON_REF_H_
#define RESHARD_CHECK_JSON_REF_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace reshard::check {

class JsonRef {
 public:
  bool is_object() const;
  bool is_array() const;
  bool is_string() const;
  bool is_null() const;
  // Of a list or an object.
  size_t size() const;
  // The value at a place of a list.
  JsonRef at(size_t i) const;
  // The member of an object; nothing when there is none, or this is no object.
  std::optional<JsonRef> Find(std::string_view key) const;
  std::vector<std::string> Keys() const;

  // Nothing when the value is something else. A count is a whole number of at least 0 that fits 64 bits.
  std::optional<int64_t> Count() const;
  std::optional<double> Number() const;
  std::optional<bool> Bool() const;
  std::optional<std::string> Text() const;

  // The value as text, shortened.
  std::string Shown() const;

 private:
  friend class JsonText;
  explicit JsonRef(const void* value) : value_(value) {}
  const void* value_;
};

// Owns a parsed text.
class JsonText {
 public:
  // Nothing when the text is not JSON.
  static std::optional<JsonText> Parse(std::string_view text);
  JsonRef root() const { return JsonRef(value_.get()); }

 private:
  std::shared_ptr<const void> value_;
};

}  // namespace reshard::check

#endif  // RESHARD_CHECK_JSON_REF_H_
