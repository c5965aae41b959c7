#include "checkpoint/recipe/name_pattern.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/io/show.h"

namespace reshard::recipe {
namespace {

constexpr size_t kMostPlaceholders = 8, kMostTexts = 2, kLongestName = 4096, kLongestPlaceholder = 64;

size_t LengthOfDigits(std::string_view text) {
  size_t length = 0;
  while (length < text.size() && absl::ascii_isdigit(static_cast<unsigned char>(text[length]))) ++length;
  return length;
}

// How many bytes at the beginning are a number as it is written: "0", or digits that do not begin with one.
size_t LengthOfNumber(std::string_view text) {
  const size_t length = LengthOfDigits(text);
  return length > 1 && text[0] == '0' ? 0 : length;
}

bool IsNumber(std::string_view text) { return !text.empty() && LengthOfNumber(text) == text.size(); }

}  // namespace

absl::StatusOr<NamePattern> NamePattern::Parse(std::string_view text) {
  const auto bad = [&](std::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("the name ", io::Shown(text), " has ", std::string(what)));
  };
  NamePattern pattern;
  size_t texts = 0;
  std::string literal;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c != '{' && c != '}') {
      literal += c;
      continue;
    }
    if (i + 1 < text.size() && text[i + 1] == c) {
      literal += c;
      ++i;
      continue;
    }
    const size_t end = text.find('}', i);
    if (c == '}' || end == std::string_view::npos) return bad("a brace without its partner; {{ and }} are braces");
    std::string_view inner = text.substr(i + 1, end - i - 1);
    const bool is_text = inner.ends_with('*');
    if (is_text) inner.remove_suffix(1);
    if (!IsPlaceholderName(inner)) return bad("a placeholder that is not an identifier");
    if (!literal.empty()) pattern.parts_.push_back({std::move(literal), false, false});
    literal.clear();
    if (pattern.Has(inner)) {
      if (pattern.IsText(inner) != is_text) return bad("a placeholder that is a number here, any text there");
    } else {
      pattern.placeholders_.emplace_back(inner);
      texts += is_text ? 1 : 0;
    }
    pattern.parts_.push_back({std::string(inner), true, is_text});
    i = end;
  }
  if (!literal.empty()) pattern.parts_.push_back({std::move(literal), false, false});
  if (pattern.placeholders_.size() > kMostPlaceholders) return bad("more than 8 placeholders");
  if (texts > kMostTexts) return bad("more than 2 placeholders that are any text");
  return pattern;
}

bool NamePattern::Has(std::string_view placeholder) const {
  return std::find(placeholders_.begin(), placeholders_.end(), placeholder) != placeholders_.end();
}

bool NamePattern::IsText(std::string_view placeholder) const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [&](const PatternPart& part) { return part.is_text && part.text == placeholder; });
}

std::string NamePattern::Fill(const Values& values) const {
  std::string name;
  for (const PatternPart& part : parts_) name += part.is_placeholder ? values.at(part.text) : part.text;
  return name;
}

std::string NamePattern::Prefix(const Values& known) const {
  std::string prefix;
  for (const PatternPart& part : parts_) {
    if (!part.is_placeholder) {
      prefix += part.text;
      continue;
    }
    const auto value = known.find(part.text);
    if (value == known.end()) break;
    prefix += value->second;
  }
  return prefix;
}

bool NamePattern::MatchFrom(size_t part, std::string_view rest, Zeros zeros, Values* values) const {
  if (part == parts_.size()) return rest.empty();
  const PatternPart& here = parts_[part];
  const auto known = here.is_placeholder ? values->find(here.text) : values->end();
  if (!here.is_placeholder || known != values->end()) {
    const std::string_view text = here.is_placeholder ? std::string_view(known->second) : here.text;
    return rest.starts_with(text) && MatchFrom(part + 1, rest.substr(text.size()), zeros, values);
  }
  if (!here.is_text) {
    const size_t length = zeros == Zeros::kNone ? LengthOfNumber(rest) : LengthOfDigits(rest);
    if (length == 0) return false;
    // Digits behind a number can only be those of another placeholder: numbers take all there are.
    values->emplace(here.text, rest.substr(0, length));
    if (MatchFrom(part + 1, rest.substr(length), zeros, values)) return true;
    values->erase(here.text);
    return false;
  }
  if (rest.size() > kLongestName) return false;
  const auto [place, fresh] = values->emplace(here.text, "");
  for (size_t length = 0; length <= rest.size(); ++length) {
    place->second = std::string(rest.substr(0, length));
    if (MatchFrom(part + 1, rest.substr(length), zeros, values)) return true;
  }
  values->erase(place);
  return false;
}

std::optional<Values> NamePattern::Match(std::string_view name, const Values& known) const {
  Values values = known;
  if (!MatchFrom(0, name, Zeros::kNone, &values)) return std::nullopt;
  return values;
}

bool NamePattern::MatchesButForZeros(std::string_view name, const Values& known) const {
  Values values = known;
  return MatchFrom(0, name, Zeros::kInFront, &values) && !Match(name, known);
}

bool IsPlaceholderName(std::string_view text) {
  if (text.empty() || text.size() > kLongestPlaceholder) return false;
  if (absl::ascii_isdigit(static_cast<unsigned char>(text[0]))) return false;
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_'; });
}

bool ComesBefore(std::string_view a, std::string_view b) {
  const bool number_a = IsNumber(a), number_b = IsNumber(b);
  if (number_a != number_b) return number_a;
  if (number_a && a.size() != b.size()) return a.size() < b.size();
  return a < b;
}

}  // namespace reshard::recipe
