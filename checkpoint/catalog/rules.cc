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
    if (path.empty()) return Expect(value, Kind::kObject, "the rules are not a JSON object");
    const std::string& member = path[0].key;
    if (member == "mesh") {
      RETURN_IF_ERROR(Expect(value, Kind::kString, "mesh: not a string"));
      mesh = std::move(*value.text);
      return absl::OkStatus();
    }
    if (member != "layouts") {
      return absl::InvalidArgumentError(absl::StrCat(io::Shown(member), " is neither mesh nor layouts"));
    }
    if (path.size() == 1) {
      has_layouts = true;
      return Expect(value, Kind::kArray, "layouts: not a list");
    }
    const std::string where = absl::StrCat("layouts[", path[1].index, "]: ");
    if (path.size() == 2) {
      RETURN_IF_ERROR(Whole());
      rules.emplace_back();
      texts = 0;
      return Expect(value, Kind::kArray, where + "not a list of a pattern and a layout");
    }
    if (++texts > 2) return absl::InvalidArgumentError(where + "more than a pattern and a layout");
    if (absl::Status s =
            Expect(value, Kind::kString, where + (texts == 1 ? "the pattern" : "the layout") + " is not text");
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
  for (size_t i = 0; i < out.rules_.size(); ++i) {
    const absl::Status fits = CheckLayoutRule(out.rules_[i].layout, out.mesh_);
    if (!fits.ok()) return absl::InvalidArgumentError(absl::StrCat("layouts[", i, "]: ", fits.message()));
  }
  return out;
}

absl::StatusOr<LayoutRules> LayoutRules::ForAll(std::string_view mesh, std::string_view layout) {
  ASSIGN_OR_RETURN(const Mesh parsed, MeshOf(mesh));
  return ForAll(parsed, layout);
}

absl::StatusOr<LayoutRules> LayoutRules::ForAll(const Mesh& mesh, std::string_view layout) {
  LayoutRules out;
  out.mesh_ = mesh;
  RETURN_IF_ERROR(CheckLayoutRule(layout, out.mesh_));
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
  auto layout = NamesOne(rule->pattern) ? ParseLayoutRule(rule->layout, mesh_, shape)
                                        : ParseLayoutRuleForAnyRank(rule->layout, mesh_, shape);
  if (layout.ok()) return layout;
  return absl::Status(layout.status().code(),
                      absl::StrCat("tensor ", io::Shown(name), " of shape [", absl::StrJoin(shape, ", "), "], rule ",
                                   io::Shown(rule->pattern), ": ", layout.status().message()));
}

}  // namespace reshard
