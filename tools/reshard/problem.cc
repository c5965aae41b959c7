#include "tools/reshard/problem.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "reshard/layout/text.h"

namespace reshard::tool {
namespace {

absl::Status Named(std::string_view name, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(std::string(name), ": ", status.message()));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Mesh>> ReadMesh(const std::string& text) {
  auto mesh = ParseMesh(text);
  if (!mesh.ok()) return Named("mesh", mesh.status());
  return std::make_shared<const Mesh>(*std::move(mesh));
}

absl::StatusOr<Layout> ReadLayout(std::string_view name, const std::string& text, std::shared_ptr<const Mesh> mesh,
                                  Notation format, const std::optional<std::vector<int64_t>>& shape) {
  if (format != Notation::kReshard && !shape) {
    return absl::InvalidArgumentError(absl::StrCat(std::string(name), ": the ", Name(format),
                                                   " notation has no sizes; give the shape (--shape 512,128)"));
  }
  auto layout = shape ? ImportLayout(format, text, std::move(mesh), *shape) : ParseLayout(text, std::move(mesh));
  if (!layout.ok()) return Named(name, layout.status());
  return layout;
}

absl::StatusOr<Problem> ReadProblem(const ProblemText& text) {
  auto mesh = ReadMesh(text.mesh);
  if (!mesh.ok()) return mesh.status();
  auto to_mesh = mesh;
  if (text.to_mesh) {
    to_mesh = ReadMesh(*text.to_mesh);
    if (!to_mesh.ok()) return Named("target", to_mesh.status());
  }
  auto source = ReadLayout("source", text.from, *mesh, text.from_format, text.shape);
  if (!source.ok()) return source.status();
  // The target may be a rule without sizes when the source has them.
  auto target = ReadLayout("target", text.to, *to_mesh, text.to_format, text.shape);
  if (!target.ok()) return target.status();
  return Problem{*std::move(source), *std::move(target)};
}

absl::StatusOr<int64_t> ParseBytes(std::string_view text) {
  static constexpr struct {
    std::string_view suffix;
    double factor;
  } kUnits[] = {{"tib", 1099511627776.0},
                {"gib", 1073741824.0},
                {"mib", 1048576.0},
                {"kib", 1024.0},
                {"tb", 1e12},
                {"gb", 1e9},
                {"mb", 1e6},
                {"kb", 1e3},
                {"b", 1.0}};
  const std::string lower = absl::AsciiStrToLower(std::string(text));
  std::string number = lower;
  double factor = 1;
  for (const auto& unit : kUnits) {
    if (lower.size() > unit.suffix.size() && lower.ends_with(unit.suffix)) {
      number = lower.substr(0, lower.size() - unit.suffix.size());
      factor = unit.factor;
      break;
    }
  }
  absl::StripAsciiWhitespace(&number);
  int64_t whole = 0;
  double value = 0;
  const bool digits_only = !number.empty() && std::all_of(number.begin(), number.end(), absl::ascii_isdigit);
  const bool plain = !number.empty() && std::all_of(number.begin(), number.end(),
                                                    [](char c) { return absl::ascii_isdigit(c) || c == '.'; });
  if (digits_only && factor == 1 && absl::SimpleAtoi(number, &whole)) return whole;
  if (!plain || !absl::SimpleAtod(number, &value) || !(value * factor < 9.2e18)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", Clipped(text), "\" is not a size; write bytes or a unit, like 512, 64KiB, 2GiB"));
  }
  return std::llround(std::floor(value * factor));
}

absl::StatusOr<std::vector<int64_t>> ParseShape(std::string_view text) {
  std::vector<int64_t> out;
  const std::string copy(text);
  if (copy.empty()) return out;
  for (absl::string_view part : absl::StrSplit(copy, ',')) {
    int64_t size = 0;
    part = absl::StripAsciiWhitespace(part);
    if (part.empty() || !std::all_of(part.begin(), part.end(), absl::ascii_isdigit) || !absl::SimpleAtoi(part, &size)) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", Clipped(copy), "\" is not a shape; write sizes like 512,128"));
    }
    out.push_back(size);
  }
  return out;
}

absl::Status ParseOps(std::string_view text, PlanOptions& options) {
  if (text == "all") return absl::OkStatus();
  if (text == "boxes") {
    options.boxes_only = true;
    return absl::OkStatus();
  }
  options.ops = OpSet::None();
  std::vector<std::string> names;
  for (int i = 0; i < kNumOps; ++i) names.emplace_back(Name(static_cast<Op>(i)));
  const std::string copy(text);
  for (absl::string_view part : absl::StrSplit(copy, ',')) {
    part = absl::StripAsciiWhitespace(part);
    const auto op = ParseOp(std::string_view(part.data(), part.size()));
    if (!op) {
      std::string all;
      for (const std::string& name : names) absl::StrAppend(&all, all.empty() ? "" : ", ", name);
      const auto near = Nearest(std::string_view(part.data(), part.size()), names);
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", Clipped(std::string_view(part.data(), part.size())), "\" is no operation",
          near ? absl::StrCat("; did you mean ", *near, "?") : "", " (all, boxes, or a list of ", all, ")"));
    }
    options.ops = options.ops.with(*op);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream content;
  if (in) content << in.rdbuf();
  if (!in || in.bad() || std::filesystem::is_directory(path))
    return absl::NotFoundError(absl::StrCat("cannot read ", path, ": ", std::strerror(errno)));
  return content.str();
}

absl::Status WriteFile(const std::string& path, std::string_view content) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  if (out) out.write(content.data(), static_cast<std::streamsize>(content.size()));
  if (out) out.close();
  if (!out) return absl::NotFoundError(absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
  return absl::OkStatus();
}

std::string Clipped(std::string_view word) {
  constexpr size_t kMost = 60;
  return word.size() <= kMost ? std::string(word) : absl::StrCat(std::string(word.substr(0, kMost)), "...");
}

std::optional<std::string> Nearest(std::string_view word, const std::vector<std::string>& candidates) {
  if (word.size() > 64) return std::nullopt;
  auto distance = [](std::string_view a, std::string_view b) {
    std::vector<size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 1; i <= a.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j <= b.size(); ++j) {
        const size_t up = row[j];
        const bool same = absl::ascii_tolower(a[i - 1]) == absl::ascii_tolower(b[j - 1]);
        row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (same ? 0 : 1)});
        diagonal = up;
      }
    }
    return row[b.size()];
  };
  std::optional<std::string> best;
  size_t least = word.size() / 2 + 1;
  for (const std::string& candidate : candidates) {
    const size_t d = distance(word, candidate);
    if (d < least) {
      least = d;
      best = candidate;
    }
  }
  return best;
}

}  // namespace reshard::tool
