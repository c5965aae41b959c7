#include "planner/digits/device_classes.h"

#include <algorithm>
#include <numeric>

#include "planner/digits/cuts.h"

namespace reshard::digits {
namespace {

constexpr size_t kMostClasses = 8192;

using AxisCuts = std::vector<Cuts>;

bool AddMark(Cuts& cuts, int64_t cut, bool& changed) {
  changed |= cuts.Add(cut);
  return cuts.Fits(cut);
}

// Cuts both digits of a link alike, until nothing changes.
bool CutAlike(const std::vector<DigitLink>& links, AxisCuts& cuts) {
  for (bool changed = true; changed;) {
    changed = false;
    for (const DigitLink& link : links) {
      for (const auto& [from, to] : {std::pair(link.a, link.b), std::pair(link.b, link.a)}) {
        auto& of_from = cuts[from.axis];
        auto& of_to = cuts[to.axis];
        if (!AddMark(of_from, from.pre, changed) || !AddMark(of_from, from.pre * from.size, changed)) return false;
        const Cuts::Sorted marks(of_from.lower_bound(from.pre), of_from.upper_bound(from.pre * from.size));
        for (int64_t mark : marks) {
          if (!AddMark(of_to, to.pre * (mark / from.pre), changed)) return false;
        }
      }
    }
  }
  return true;
}

struct AxisPart {
  int64_t size = 1;
  int64_t stride = 1;
  int component = -1;
};

}  // namespace

std::optional<std::vector<DeviceClass>> ClassesUnder(const Mesh& mesh, const std::vector<DigitLink>& links) {
  AxisCuts cuts(static_cast<size_t>(mesh.num_axes()));
  for (int a = 0; a < mesh.num_axes(); ++a) cuts[a] = {1, mesh.axis(a).size};
  for (const DigitLink& link : links) {
    if (link.a.size != link.b.size) return std::nullopt;
  }
  if (!CutAlike(links, cuts)) return std::nullopt;

  // The parts of linked digits, and which of them links tie together.
  std::vector<AxisPart> parts;
  std::vector<std::pair<AxisRef, size_t>> first_part;  // (axis, pre) -> index
  auto part_at = [&](int axis, int64_t pre) {
    for (const auto& [ref, index] : first_part) {
      if (ref.axis == axis && ref.pre == pre) return index;
    }
    const auto& of_axis = cuts[axis];
    const int64_t end = *of_axis.upper_bound(pre);
    first_part.emplace_back(AxisRef{axis, pre, end / pre}, parts.size());
    parts.push_back({end / pre, mesh.stride(axis) * (mesh.axis(axis).size / end), -1});
    return parts.size() - 1;
  };
  std::vector<std::pair<size_t, size_t>> pairs;
  for (const DigitLink& link : links) {
    int64_t done = 1;
    while (done < link.a.size) {
      const size_t x = part_at(link.a.axis, link.a.pre * done);
      const size_t y = part_at(link.b.axis, link.b.pre * done);
      if (parts[x].size != parts[y].size) return std::nullopt;
      pairs.emplace_back(x, y);
      done *= parts[x].size;
    }
  }
  std::vector<size_t> root(parts.size());
  std::iota(root.begin(), root.end(), size_t{0});
  auto find = [&](size_t i) {
    while (root[i] != i) i = root[i];
    return i;
  };
  for (const auto& [x, y] : pairs) root[find(x)] = find(y);

  int64_t linked = 1;
  for (const AxisPart& part : parts) linked *= part.size;
  std::vector<DeviceClass> out{{0, mesh.size() / linked}};
  for (size_t c = 0; c < parts.size(); ++c) {
    if (find(c) != c) continue;
    std::vector<size_t> members;
    for (size_t i = 0; i < parts.size(); ++i) {
      if (find(i) == c) members.push_back(i);
    }
    // Patterns of equality: each member repeats a value seen before or takes the next new one.
    std::vector<DeviceClass> next;
    const int64_t size = parts[c].size;
    auto choose = [&](auto&& self, size_t i, int64_t seen, int64_t position, int64_t ways) -> void {
      if (next.size() > kMostClasses) return;
      if (i == members.size()) {
        for (const DeviceClass& one : out) next.push_back({one.position + position, one.devices * ways});
        return;
      }
      const int64_t stride = parts[members[i]].stride;
      for (int64_t v = 0; v < seen; ++v) self(self, i + 1, seen, position + v * stride, ways);
      if (seen < size) self(self, i + 1, seen + 1, position + seen * stride, ways * (size - seen));
    };
    choose(choose, 0, 0, 0, 1);
    if (next.size() > kMostClasses) return std::nullopt;
    out = std::move(next);
  }
  if (static_cast<int64_t>(out.size()) > mesh.size()) return std::nullopt;
  return out;
}

}  // namespace reshard::digits
