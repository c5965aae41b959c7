#include "reshard/layout/notation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "layout/names.h"
#include "layout/notation/foreign.h"
#include "reshard/layout/shard_map.h"
#include "reshard/layout/text.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard {
namespace {

struct Entry {
  Notation notation;
  const char* name;
  absl::StatusOr<Layout> (*import)(std::string_view text, const Mesh& mesh, const std::vector<int64_t>& shape);
  absl::StatusOr<std::string> (*write)(const Layout& layout);
};

absl::StatusOr<std::string> Written(const Layout& layout) { return ToString(layout); }

// All notations; a new one is a line here.
constexpr Entry kNotations[] = {
    {Notation::kReshard, "reshard", ParseLayoutRule, Written},
    {Notation::kDTensor, "dtensor", notation::ImportDTensor, notation::ExportDTensor},
    {Notation::kJax, "jax", notation::ImportJax, notation::ExportJax},
    {Notation::kShardy, "shardy", notation::ImportShardy, notation::ExportShardy},
    {Notation::kHlo, "hlo", notation::ImportHlo, notation::ExportHlo},
};

const Entry* Find(Notation notation) {
  for (const Entry& entry : kNotations) {
    if (entry.notation == notation) return &entry;
  }
  return nullptr;
}

// The reason of an error, without the column and the text that it points at.
std::string Reason(const absl::Status& status) {
  const std::string message(status.message());
  const std::string line = message.substr(0, message.find('\n'));
  return line.substr(0, line.rfind(" at column "));
}

}  // namespace

const char* Name(Notation notation) {
  const Entry* const entry = Find(notation);
  return entry == nullptr ? "unknown" : entry->name;
}

std::optional<Notation> ParseNotation(std::string_view name) {
  for (const Entry& entry : kNotations) {
    if (entry.name == name) return entry.notation;
  }
  return std::nullopt;
}

std::string KnownNotations() {
  std::string names;
  for (const Entry& entry : kNotations) absl::StrAppend(&names, names.empty() ? "" : ", ", entry.name);
  return names;
}

namespace {

// Whether it begins with a placement of DTensor, in a list or not, in quotes or not: S(0), S0R, R, ["S(0)", (Shard(.
bool IsPlacements(std::string_view text) {
  for (const std::string_view brackets : {"([", "'\""}) {
    if (!text.empty() && brackets.find(text[0]) != std::string_view::npos) text.remove_prefix(1);
  }
  for (const std::string_view name : {"Shard(", "Replicate(", "Partial(", "_StridedShard(", "_S(", "S("}) {
    if (text.starts_with(name)) return true;
  }
  const std::string_view word = text.substr(0, text.find_first_of(")],'\" ("));
  return !word.empty() && word.find_first_not_of("SRP0123456789") == std::string_view::npos && word[0] > '9';
}

}  // namespace

std::optional<Notation> GuessNotation(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  struct Beginning {
    std::string_view text;
    Notation notation;
  };
  constexpr Beginning kBeginnings[] = {
      {"PartitionSpec", Notation::kJax}, {"NamedSharding(", Notation::kJax}, {"P(", Notation::kJax},
      {"#sdy", Notation::kShardy},       {"[{", Notation::kShardy},          {"<@", Notation::kShardy},
      {"{devices=", Notation::kHlo},     {"{replicated}", Notation::kHlo},   {"{maximal", Notation::kHlo},
  };
  for (const Beginning& beginning : kBeginnings) {
    if (text.starts_with(beginning.text)) return beginning.notation;
  }
  if (IsPlacements(text)) return Notation::kDTensor;
  return std::nullopt;
}

namespace {

// The specification in "NamedSharding(mesh=Mesh('x': 4), spec=PartitionSpec('x'))"; any other text as it is.
std::string_view WithoutItsMesh(std::string_view text) {
  const size_t begin = text.find("PartitionSpec(");
  if (!text.starts_with("NamedSharding(") || begin == std::string_view::npos) return text;
  int open = 0;
  for (size_t at = begin; at < text.size(); ++at) {
    if (text[at] == '(') ++open;
    if (text[at] == ')' && --open == 0) return text.substr(begin, at + 1 - begin);
  }
  return text;
}

// The axes that a text names in any form, such as dp=2, 'tp': 4 and pp:2, or sizes alone; empty: there are none.
std::string AxesIn(std::string_view text) {
  constexpr size_t kMost = 8;
  std::vector<std::string> named, sizes;
  std::string_view name;
  for (size_t at = 0; at < text.size() && named.size() <= kMost && sizes.size() <= kMost;) {
    size_t end = at;
    while (end < text.size() && layout::IsNameChar(text[end])) ++end;
    if (end == at) {
      if (absl::string_view("=: '\"").find(text[at]) == absl::string_view::npos) name = {};
      ++at;
      continue;
    }
    const std::string_view word = text.substr(at, end - at);
    const bool is_size = word.size() < 8 && word.find_first_not_of("0123456789") == std::string_view::npos;
    if (is_size && !name.empty()) named.push_back(absl::StrCat(status::View(name), ":", status::View(word)));
    if (is_size && name.empty()) sizes.push_back(absl::StrCat("d", sizes.size(), ":", status::View(word)));
    name = is_size ? std::string_view() : word;
    at = end;
  }
  const std::vector<std::string>& axes = named.empty() ? sizes : named;
  if (axes.empty() || axes.size() > kMost) return "";
  std::string mesh = absl::StrCat("{", absl::StrJoin(axes, ","), "}");
  return ParseMesh(mesh).ok() ? mesh : "";
}

}  // namespace

absl::StatusOr<Mesh> ReadMesh(std::string_view text) {
  absl::StatusOr<Mesh> mesh = ParseMesh(text);
  if (mesh.ok()) return mesh;
  const bool is_layout = text.starts_with('[') && text.find('<') != std::string_view::npos;
  const std::string meant = is_layout ? "" : AxesIn(text);
  const std::string hint = is_layout ? "; this is a layout, and its mesh, like {X:4}, comes first"
                           : meant.empty() || meant == text ? ""
                                                            : absl::StrCat("; is it ", meant, "?");
  const std::string message(mesh.status().message());
  const size_t line = message.find('\n');
  return absl::InvalidArgumentError(
      absl::StrCat(message.substr(0, line), hint, line == std::string::npos ? "" : message.substr(line)));
}

absl::StatusOr<Layout> ReadLayout(std::string_view text, const Mesh& mesh, Notation notation,
                                  const std::optional<std::vector<int64_t>>& shape) {
  if (notation == Notation::kReshard) {
    absl::StatusOr<Layout> layout = shape ? ImportLayout(notation, text, mesh, *shape) : ParseLayout(text, mesh);
    const std::optional<Notation> guess = layout.ok() ? std::nullopt : GuessNotation(text);
    if (!guess) return layout;
    notation = *guess;
  }
  if (!shape) {
    return absl::InvalidArgumentError(absl::StrCat("\"", layout::Printable(text), "\" is in the ", Name(notation),
                                                   " notation, which has no sizes: give the shape, "
                                                   "such as 512,128"));
  }
  return ImportLayout(notation, WithoutItsMesh(text), mesh, *shape);
}

absl::StatusOr<Layout> ImportLayout(Notation notation, std::string_view text, const Mesh& mesh,
                                    const std::vector<int64_t>& shape) {
  if (shape.size() > static_cast<size_t>(kMaxRank)) {
    return absl::InvalidArgumentError(absl::StrCat("the tensor has more than ", kMaxRank, " dimensions"));
  }
  const Entry* const entry = Find(notation);
  if (entry == nullptr) return absl::InvalidArgumentError("unknown notation");
  return entry->import(text, mesh, shape);
}

absl::StatusOr<std::string> ExportLayout(Notation notation, const Layout& layout) {
  const Entry* const entry = Find(notation);
  if (entry == nullptr) return absl::InvalidArgumentError("unknown notation");
  if (layout.flattens() && notation != Notation::kReshard && notation != Notation::kDTensor) {
    return absl::UnimplementedError(
        absl::StrCat(Name(notation), " cannot say it: ", ToString(layout), " flattens dimensions"));
  }
  absl::StatusOr<std::string> text = entry->write(layout);
  if (!text.ok()) return text;
  // The text is the nearest one; reading it again shows whether it says exactly the same.
  const absl::StatusOr<Layout> back = ImportLayout(notation, *text, layout.mesh(), layout.shape());
  if (!back.ok()) {
    return absl::UnimplementedError(absl::StrCat(Name(notation), " cannot say it exactly: ", Reason(back.status())));
  }
  ASSIGN_OR_RETURN(const bool same, Equivalent(*back, layout));
  if (!same) {
    return absl::UnimplementedError(
        absl::StrCat(Name(notation), " cannot say it exactly: ", *text, " would cut the uneven sizes otherwise"));
  }
  return text;
}

}  // namespace reshard
