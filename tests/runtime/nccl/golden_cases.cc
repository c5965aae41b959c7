#include "tests/runtime/nccl/golden_cases.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_split.h"
#include "reshard/layout/text.h"

namespace reshard::testing {
namespace {

using Axes = std::vector<std::pair<std::string, int64_t>>;

Axes AxesOf(const std::string& mesh) {
  Axes axes;
  const Mesh parsed = ParseMesh(mesh).value();
  for (const Mesh::Axis& axis : parsed.axes()) axes.emplace_back(axis.name, axis.size);
  return axes;
}

int64_t Devices(const Axes& axes) {
  int64_t devices = 1;
  for (const auto& [name, size] : axes) devices *= size;
  return devices;
}

void Shrink(Axes& axes, int64_t most) {
  while (Devices(axes) > most) {
    const auto largest =
        std::max_element(axes.begin(), axes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    largest->second /= 2;
  }
}

std::string MeshText(const Axes& axes, int64_t first) {
  std::string text = "{";
  for (const auto& [name, size] : axes) {
    text.append(text.size() > 1 ? "," : "").append(name).append(":").append(std::to_string(size));
  }
  text.append("}");
  return first == 0 ? text : text.append("@").append(std::to_string(first));
}

struct Dim {
  std::string factors;  // "<x,y>", or nothing
  int64_t size = 0;
  int64_t shards = 1;
};

// The dimensions of a layout, and what follows them.
std::vector<Dim> DimsOf(const std::string& layout, const Axes& axes, std::string* rest) {
  const std::map<std::string, int64_t> sizes(axes.begin(), axes.end());
  const size_t end = layout.find(']');
  *rest = layout.substr(end);
  const std::string inside = layout.substr(1, end - 1);
  std::vector<Dim> dims;
  for (size_t at = 0; at < inside.size();) {
    // A dimension, with or without factors, ends with its size and a comma.
    const size_t open = inside.find('<', at);
    const size_t comma = inside.find(',', at);
    Dim dim;
    if (open < comma) {
      const size_t close = inside.find('>', open);
      dim.factors = inside.substr(open, close + 1 - open);
      const std::vector<std::string> factors = absl::StrSplit(inside.substr(open + 1, close - open - 1), ',');
      for (const std::string& factor : factors) {
        const auto axis = sizes.find(factor);
        dim.shards *= axis != sizes.end() ? axis->second : std::stoll(factor);
      }
      at = close + 1;
    }
    dim.size = std::stoll(inside.substr(at));
    dims.push_back(std::move(dim));
    at = std::min(inside.find(',', at), inside.size() - 1) + 1;
  }
  return dims;
}

std::string LayoutText(const std::vector<Dim>& dims, const std::string& rest) {
  std::string text = "[";
  for (const Dim& dim : dims)
    text.append(text.size() > 1 ? ", " : "").append(dim.factors).append(std::to_string(dim.size));
  return text + rest;
}

}  // namespace

std::vector<GoldenCase> GoldenCases(const std::string& json_path, int64_t most_ranks) {
  std::ifstream in(json_path);
  std::vector<GoldenCase> cases;
  for (const nlohmann::json& c : nlohmann::json::parse(in)) {
    Axes axes = AxesOf(c["mesh"]);
    const bool two = c.contains("to_mesh");
    Axes to_axes = two ? AxesOf(c["to_mesh"]) : axes;
    if (most_ranks > 0) {
      Shrink(axes, two ? std::max<int64_t>(most_ranks / 2, 1) : most_ranks);
      to_axes = two ? to_axes : axes;
      Shrink(to_axes, two ? std::max<int64_t>(most_ranks / 2, 1) : most_ranks);
    }
    std::string from_rest;
    std::string to_rest;
    std::vector<Dim> from = DimsOf(c["from"], axes, &from_rest);
    std::vector<Dim> to = DimsOf(c["to"], to_axes, &to_rest);
    const int64_t small = from.size() > 2 ? 16 : 64;
    for (size_t d = 0; d < from.size(); ++d) {
      const int64_t least = std::max({small, 2 * from[d].shards, 2 * to[d].shards});
      int64_t size = from[d].size;
      while (size % 2 == 0 && size > least) size /= 2;
      from[d].size = size;
      to[d].size = size;
    }
    const int64_t first = two ? Devices(axes) : 0;
    GoldenCase made{c["name"], {MeshText(axes, 0), LayoutText(from, from_rest), LayoutText(to, to_rest)}};
    if (two) made.problem.target_mesh = MeshText(to_axes, first);
    made.world = Devices(axes) + (two ? Devices(to_axes) : 0);
    cases.push_back(std::move(made));
  }
  return cases;
}

}  // namespace reshard::testing
