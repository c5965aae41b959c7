#include "layout/names.h"

#include "absl/strings/str_cat.h"
#include "reshard/layout/characters.h"

namespace reshard::layout {

bool IsName(std::string_view text) {
  if (text.empty() || !IsNameStart(text[0])) return false;
  for (const char c : text) {
    if (!IsNameChar(c)) return false;
  }
  return true;
}

std::string Printable(std::string_view text) {
  constexpr size_t kLongest = 60;
  return OneLine(text, kLongest);
}

std::string AxisNames(const Mesh& mesh) {
  constexpr int kMost = 16;
  if (mesh.num_axes() == 0) return "no axes";
  std::string out;
  for (int i = 0; i < mesh.num_axes() && i < kMost; ++i) {
    absl::StrAppend(&out, i == 0 ? "" : ", ", Printable(mesh.axis(i).name));
  }
  if (mesh.num_axes() > kMost) out += ", ...";
  return out;
}

}  // namespace reshard::layout
