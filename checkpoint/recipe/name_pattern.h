// Names with placeholders: "layers.{i}.{p*}.weight", in which {i} is a decimal number and {p*} any text.
#ifndef RESHARD_CHECKPOINT_RECIPE_NAME_PATTERN_H_
#define RESHARD_CHECKPOINT_RECIPE_NAME_PATTERN_H_

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace reshard::recipe {

// What placeholders stand for, by their names.
using Values = std::map<std::string, std::string, std::less<>>;

class NamePattern {
 public:
  // InvalidArgument: a brace without its partner (a literal one is doubled), a placeholder that is not an
  // identifier, more than 8 of them, or more than 2 that are text.
  static absl::StatusOr<NamePattern> Parse(std::string_view text);

  // In the order in which they come, each once.
  const std::vector<std::string>& placeholders() const { return placeholders_; }
  bool Has(std::string_view placeholder) const;
  // Whether it stands for any text; otherwise it stands for a number.
  bool IsText(std::string_view placeholder) const;

  // The name for values of all placeholders.
  std::string Fill(const Values& values) const;
  // What names that match begin with, given values of some placeholders.
  std::string Prefix(const Values& known) const;
  // `known`, and the values of the other placeholders with which Fill gives that name. A number has no zeros in front.
  // The first text is as short as possible, then the second one. Names over 4096 bytes match only without a text.
  std::optional<Values> Match(std::string_view name, const Values& known) const;
  // Whether it would match if numbers could have zeros in front: "layers.00.w" and layers.{l}.w.
  bool MatchesButForZeros(std::string_view name, const Values& known) const;

 private:
  struct PatternPart {
    std::string text;  // as it is, or the name of a placeholder
    bool is_placeholder = false;
    bool is_text = false;
  };
  enum class Zeros { kNone, kInFront };  // that a number has
  bool MatchFrom(size_t part, std::string_view rest, Zeros zeros, Values* values) const;

  std::vector<PatternPart> parts_;
  std::vector<std::string> placeholders_;
};

// [A-Za-z_][A-Za-z0-9_]*, of at most 64 bytes.
bool IsPlaceholderName(std::string_view text);

// Numbers by size, texts in the order of their bytes, texts behind numbers.
bool ComesBefore(std::string_view a, std::string_view b);

}  // namespace reshard::recipe

#endif  // RESHARD_CHECKPOINT_RECIPE_NAME_PATTERN_H_
