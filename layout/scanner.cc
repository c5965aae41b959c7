#include "layout/scanner.h"

#include <cstdio>
#include <optional>

#include "absl/strings/str_cat.h"
#include "layout/names.h"
#include "reshard/layout/checked.h"
#include "reshard/layout/text.h"

namespace reshard::layout {

void Scanner::SkipBlanks() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r')) {
    ++at_;
  }
}

bool Scanner::AtName() { return IsNameStart(Peek()); }

bool Scanner::AtInt() {
  const char c = Peek();
  return IsDigit(c) || c == '-';
}

bool Scanner::Take(char c) {
  if (Peek() != c || AtEnd()) return false;
  ++at_;
  return true;
}

bool Scanner::Take(std::string_view token) {
  if (text_.substr(column(), token.size()) != token) return false;
  at_ += token.size();
  return true;
}

bool Scanner::TakeWord(std::string_view word) {
  const size_t begin = column();
  if (!Take(word)) return false;
  if (at_ == text_.size() || !IsNameChar(text_[at_])) return true;
  at_ = begin;
  return false;
}

absl::Status Scanner::Expect(char c) {
  if (Take(c)) return absl::OkStatus();
  return Expected(std::string("'") + c + "'");
}

absl::Status Scanner::ExpectEnd() {
  if (AtEnd()) return absl::OkStatus();
  return Expected("the end");
}

absl::StatusOr<int64_t> Scanner::Int(std::string_view what) {
  const size_t begin = column();
  if (Peek() == '-') return Error(begin, "sizes cannot be negative");
  if (!IsDigit(Peek())) return Expected(what);
  int64_t value = 0;
  for (; at_ < text_.size() && IsDigit(text_[at_]); ++at_) {
    const std::optional<int64_t> scaled = CheckedMul(value, 10);
    const std::optional<int64_t> next = scaled ? CheckedAdd(*scaled, text_[at_] - '0') : std::nullopt;
    if (!next) return Error(begin, "the number does not fit a signed 64-bit integer");
    value = *next;
  }
  return value;
}

absl::StatusOr<std::string_view> Scanner::Name(std::string_view what) {
  if (!AtName()) return Expected(what);
  const size_t begin = at_;
  while (at_ < text_.size() && IsNameChar(text_[at_])) ++at_;
  return text_.substr(begin, at_ - begin);
}

absl::StatusOr<std::string_view> Scanner::Quoted(std::string_view what) {
  const char quote = Peek();
  if (quote != '\'' && quote != '"') return Expected(what);
  const size_t begin = at_ + 1;
  const size_t end = text_.find(quote, begin);
  if (end == std::string_view::npos) return Error(at_, "the quote is not closed");
  at_ = end + 1;
  return text_.substr(begin, end - begin);
}

absl::Status Scanner::Expected(std::string_view what) {
  const std::string wanted(what);
  if (AtEnd()) return Error(at_, absl::StrCat("expected ", wanted, ", found the end"));
  const char c = text_[at_];
  if (c < ' ' || c > '~') {
    char byte[8];
    std::snprintf(byte, sizeof(byte), "0x%02X", static_cast<unsigned>(static_cast<unsigned char>(c)));
    return Error(at_, absl::StrCat("expected ", wanted, ", found the byte ", byte, "; only ASCII text is read"));
  }
  if (AtName()) {
    size_t end = at_;
    while (end < text_.size() && IsNameChar(text_[end])) ++end;
    return Error(at_, absl::StrCat("expected ", wanted, ", found ", Printable(text_.substr(at_, end - at_))));
  }
  return Error(at_, absl::StrCat("expected ", wanted, ", found '", std::string(1, c), "'"));
}

absl::Status Scanner::Error(size_t column, std::string_view reason, std::string_view advice) const {
  return ErrorAt(text_, column, reason, advice);
}

absl::Status Scanner::Unsupported(size_t column, std::string_view reason) const {
  return absl::UnimplementedError(ErrorAt(text_, column, reason).message());
}

}  // namespace reshard::layout
