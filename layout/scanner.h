// Reads tokens of the text formats, blanks skipped, and makes the errors that point at a column.
#ifndef RESHARD_LAYOUT_SCANNER_H_
#define RESHARD_LAYOUT_SCANNER_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace reshard::layout {

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  // The byte column of the next token (or of the end).
  size_t column() {
    SkipBlanks();
    return at_;
  }
  bool AtEnd() { return column() == text_.size(); }
  // The first character of the next token; '\0' at the end.
  char Peek() { return AtEnd() ? '\0' : text_[at_]; }
  // True when the next token begins a name, or an integer (a sign counts, so that its refusal can say why).
  bool AtName();
  bool AtInt();

  // Takes the next token if it is this one.
  bool Take(char c);
  bool Take(std::string_view token);
  // Takes the next token if it is exactly this name, not only the beginning of a longer one.
  bool TakeWord(std::string_view word);

  // As Take, but its absence is an error: expected <what>, found ....
  absl::Status Expect(char c);
  absl::Status ExpectEnd();
  absl::StatusOr<int64_t> Int(std::string_view what);
  absl::StatusOr<std::string_view> Name(std::string_view what);
  // 'text' or "text", without escapes; gives what is between the quotes.
  absl::StatusOr<std::string_view> Quoted(std::string_view what);

  // InvalidArgument: expected <what>, found <the next token>.
  absl::Status Expected(std::string_view what);
  // InvalidArgument at a column, with advice behind it.
  absl::Status Error(size_t column, std::string_view reason, std::string_view advice = "") const;
  // Unimplemented, otherwise the same: well formed, but beyond what the algebra can say.
  absl::Status Unsupported(size_t column, std::string_view reason) const;
  std::string_view text() const { return text_; }

 private:
  void SkipBlanks();

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace reshard::layout

#endif  // RESHARD_LAYOUT_SCANNER_H_
