#include "reshard/checkpoint/rules.h"

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint/io/show.h"
#include "json/walk.h"
#include "reshard/layout/text.h"
#include "status/macros.h"

namespace reshard {
namespace {

using Kind = json::WalkedValue::Kind;

// Where the character after the one at `at` begins. A byte that belongs to none counts as one.
size_t NextCharacter(std::string_view text, size_t at) {
  ++at;
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) ++at;
  return at;
}

absl::StatusOr<Mesh> MeshOf(std::string_view text) {
  auto mesh = ParseMesh(text);
  if (!mesh.ok()) return absl::Status(mesh.status().code(), absl::StrCat("mesh: ", mesh.status().message()));
  return *std::move(mesh);
}

// Takes the values of the JSON one by one.
struct Collector {
  std::optional<std::string> mesh;
  bool has_layouts = false;
  std::vector<LayoutRules::Rule> rules;
  size_t texts = 0;  // in the last rule

  absl::Status Visit(absl::Span<const json::PathStep> path, const json::WalkedValue& value) {
    if (path.empty()) return Expect(value, Kind::kObject, "the rules are no JSON object");
    const std::string& member = path[0].key;
    if (member == "mesh") {
      RETURN_IF_ERROR(Expect(value, Kind::kString, "mesh: no text"));
      mesh = std::move(*value.text);
      return absl::OkStatus();
    }
    if (member != "layouts") {
      return absl::InvalidArgumentError(absl::StrCat(io::Shown(member), " is none of mesh, layouts"));
    }
    if (path.size() == 1) {
      has_layouts = true;
      return Expect(value, Kind::kArray, "layouts: no list");
    }
    const std::string where = absl::StrCat("layouts[", path[1].index, "]: ");
    if (path.size() == 2) {
      RETURN_IF_ERROR(Whole());
      rules.emplace_back();
      texts = 0;
      return Expect(value, Kind::kArray, where + "no list of a pattern and a layout");
    }
    if (++texts > 2) return absl::InvalidArgumentError(where + "more than a pattern and a layout");
    if (absl::Status s =
            Expect(value, Kind::kString, where + (texts == 1 ? "the pattern" : "the layout") + " is no text");
        !s.ok()) {
      return s;
    }
    (texts == 1 ? rules.back().pattern : rules.back().layout) = std::move(*value.text);
    return absl::OkStatus();
  }

  // The last rule has both of its texts.
  absl::Status Whole() const {
    if (rules.empty() || texts == 2) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("layouts[", rules.size() - 1, "]: a pattern and a layout are needed"));
  }

  static absl::Status Expect(const json::WalkedValue& value, Kind kind, absl::string_view otherwise) {
    return value.kind == kind ? absl::OkStatus() : absl::InvalidArgumentError(otherwise);
  }
};

}  // namespace

bool MatchesPattern(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0;
  // The last `*` met, and what it has taken of the name so far. Only the last one is ever tried with more: an earlier
  // one that takes more leaves less of the name to what follows it.
  std::optional<size_t> star;
  size_t taken = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = n;
    } else if (p < pattern.size() && pattern[p] == '?') {
      ++p;
      n = NextCharacter(name, n);
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star) {
      p = *star + 1;
      n = taken = NextCharacter(name, taken);
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

absl::StatusOr<LayoutRules> LayoutRules::Parse(std::string_view json) {
  constexpr int64_t kDepth = 8;
  Collector collector;
  absl::Status walked =
      json::Walk(json, kDepth, [&](absl::Span<const json::PathStep> path, const json::WalkedValue& value) {
        return collector.Visit(path, value);
      });
  if (absl::IsResourceExhausted(walked)) return absl::InvalidArgumentError(walked.message());
  if (!walked.ok()) return walked;
  RETURN_IF_ERROR(collector.Whole());
  if (!collector.mesh) return absl::InvalidArgumentError("there is no mesh");
  if (!collector.has_layouts) return absl::InvalidArgumentError("there are no layouts");
  LayoutRules out;
  ASSIGN_OR_RETURN(out.mesh_, MeshOf(*collector.mesh));
  out.rules_ = std::move(collector.rules);
  return out;
}

absl::StatusOr<LayoutRules> LayoutRules::ForAll(std::string_view mesh, std::string_view layout) {
  LayoutRules out;
  ASSIGN_OR_RETURN(out.mesh_, MeshOf(mesh));
  out.rules_ = {{"*", std::string(layout)}};
  return out;
}

const LayoutRules::Rule* LayoutRules::Match(std::string_view name) const {
  for (const Rule& rule : rules_) {
    if (MatchesPattern(rule.pattern, name)) return &rule;
  }
  return nullptr;
}

absl::StatusOr<Layout> LayoutRules::LayoutFor(std::string_view name, const std::vector<int64_t>& shape) const {
  const Rule* rule = Match(name);
  if (rule == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("no rule matches tensor ", io::Shown(name), "; end the rules with \"*\""));
  }
  auto layout = ParseLayoutRule(rule->layout, mesh_, shape);
  if (layout.ok()) return layout;
  return absl::Status(layout.status().code(),
                      absl::StrCat("tensor ", io::Shown(name), " of shape [", absl::StrJoin(shape, ", "), "], rule ",
                                   io::Shown(rule->pattern), ": ", layout.status().message()));
}

}  // namespace reshard
