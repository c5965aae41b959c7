#include "checkpoint/formats/pickle/opaque.h"

#include <cstddef>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "status/view.h"

namespace reshard::pickle {
namespace {

constexpr size_t kLongestPart = 100;

std::string FullName(const Pickle& pickle, Pickle::Value name) {
  return absl::StrCat(status::View(pickle.Module(name).substr(0, kLongestPart)), ".",
                      status::View(pickle.Name(name).substr(0, kLongestPart)));
}

}  // namespace

std::string NameOfOpaque(const Pickle& pickle, Pickle::Value value) {
  if (pickle.kind(value) == Pickle::Kind::kName) return FullName(pickle, value);
  if (!pickle.IsObjectOf(value, Known::kGetAttr)) return "";
  const absl::Span<const Pickle::Value> given = pickle.Tuple(pickle.Arguments(value));
  const bool is_member = given.size() == 2 && pickle.kind(given[0]) == Pickle::Kind::kName &&
                         pickle.kind(given[1]) == Pickle::Kind::kString;
  if (!is_member) return "";
  return absl::StrCat(FullName(pickle, given[0]), ".", status::View(pickle.Text(given[1]).substr(0, kLongestPart)));
}

std::string KindOfOpaque(const Pickle& pickle, Pickle::Value value) {
  switch (pickle.kind(value)) {
    case Pickle::Kind::kName:
      return absl::StrCat("the name ", FullName(pickle, value));
    case Pickle::Kind::kObject: {
      if (const std::string member = NameOfOpaque(pickle, value); !member.empty())
        return absl::StrCat("the name ", member);
      const Pickle::Value name = pickle.Class(value);
      // Classes begin with a capital letter wherever anybody looks at names; the last part is the class's own.
      const std::string_view own = pickle.Name(name).substr(pickle.Name(name).rfind('.') + 1);
      const size_t first = own.find_first_not_of('_');
      const bool is_class =
          first != std::string_view::npos && absl::ascii_isupper(static_cast<unsigned char>(own[first]));
      return absl::StrCat(is_class ? "an object of " : "", FullName(pickle, name));
    }
    case Pickle::Kind::kTuple:
      return "a tuple of values that are not all plain data";
    case Pickle::Kind::kList:
      return "a list of values that are not all plain data";
    case Pickle::Kind::kSet:
      return "a set of values that are not all plain data";
    case Pickle::Kind::kDict:
      return "a dict of values that are not all plain data";
    default:
      return "a value that is not plain data";
  }
}

}  // namespace reshard::pickle
