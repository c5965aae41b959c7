#include "check/groups.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "reshard/layout/text.h"

namespace reshard::check {

std::optional<AxisRef> ParseAxis(std::string_view text, const Mesh& mesh) {
  // A partial reduction over it is the place of the grammar where an axis stands alone.
  const auto layout = ParseLayout(absl::StrCat("[] sum<", absl::string_view(text.data(), text.size()), ">"), mesh);
  if (!layout.ok() || !layout->partial() || layout->partial()->axes.size() != 1) return std::nullopt;
  return layout->partial()->axes[0];
}

std::optional<Digits> Digits::Align(const Mesh& mesh, const std::vector<const std::vector<AxisRef>*>& lists) {
  std::vector<std::set<int64_t>> cuts(static_cast<size_t>(mesh.num_axes()));
  for (const std::vector<AxisRef>* list : lists) {
    for (const AxisRef& ref : *list) {
      cuts[ref.axis].insert({ref.pre, ref.pre * ref.size});
    }
  }
  Digits out;
  for (int a = 0; a < mesh.num_axes(); ++a) {
    const int64_t n = mesh.axis(a).size;
    std::set<int64_t>& at = cuts[a];
    at.insert({int64_t{1}, n});
    int64_t before = 1;
    for (const int64_t cut : at) {
      if (cut % before != 0) return std::nullopt;
      if (cut > before) out.digits_.push_back({a, before, cut / before, mesh.stride(a) * (n / cut)});
      before = cut;
    }
  }
  return out;
}

std::vector<int> Digits::Of(const AxisRef& ref) const {
  std::vector<int> out;
  for (size_t e = 0; e < digits_.size(); ++e) {
    const Digit& digit = digits_[e];
    const bool within = digit.axis == ref.axis && digit.pre >= ref.pre && digit.pre * digit.size <= ref.pre * ref.size;
    if (within) out.push_back(static_cast<int>(e));
  }
  return out;
}

std::optional<std::vector<bool>> Digits::Of(const std::vector<AxisRef>& refs) const {
  std::vector<bool> out(digits_.size(), false);
  for (const AxisRef& ref : refs) {
    for (const int e : Of(ref)) {
      if (out[e]) return std::nullopt;
      out[e] = true;
    }
  }
  return out;
}

Groups::Groups(const Digits& digits, std::vector<bool> inside) : digits_(&digits), inside_(std::move(inside)) {
  for (size_t e = 0; e < inside_.size(); ++e) {
    if (inside_[e]) size_ *= digits.digits()[e].size;
  }
}

int64_t Groups::Of(int64_t position) const {
  int64_t out = position;
  for (size_t e = 0; e < inside_.size(); ++e) {
    const Digits::Digit& digit = digits_->digits()[e];
    if (inside_[e]) out -= position / digit.stride % digit.size * digit.stride;
  }
  return out;
}

int64_t Groups::Index(int64_t position) const {
  // Digits are listed by descending stride, so this order is that of the positions.
  int64_t out = 0;
  for (size_t e = 0; e < inside_.size(); ++e) {
    const Digits::Digit& digit = digits_->digits()[e];
    if (inside_[e]) out = out * digit.size + position / digit.stride % digit.size;
  }
  return out;
}

KeyedDim KeyRows(const Digits& digits, const Groups& groups, const Holdings& of, int d) {
  std::vector<int> list;
  for (const AxisRef& ref : of.dim(d).digits) {
    for (const int e : digits.Of(ref)) list.push_back(e);
  }
  KeyedDim out;
  const int64_t rows = of.dim(d).num_rows();
  out.key_of_row.assign(static_cast<size_t>(rows), 0);
  for (int64_t row = 0; row < rows; ++row) {
    int64_t weight = rows;
    int64_t key = 0;
    for (const int e : list) {
      const int64_t size = digits.digits()[e].size;
      weight /= size;
      if (!groups.inside(e)) key = key * size + row / weight % size;
    }
    out.key_of_row[row] = key;
    out.length[key] += of.Length(row, d);
    out.non_empty[key] += of.Length(row, d) > 0 ? 1 : 0;
  }
  return out;
}

}  // namespace reshard::check
