#include "reshard/layout/notation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "layout/notation/foreign.h"
#include "reshard/layout/shard_map.h"
#include "reshard/layout/text.h"
#include "status/macros.h"

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

std::optional<Notation> GuessNotation(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  struct Beginning {
    std::string_view text;
    Notation notation;
  };
  constexpr Beginning kBeginnings[] = {
      {"PartitionSpec", Notation::kJax},   {"P(", Notation::kJax},           {"Shard(", Notation::kDTensor},
      {"Replicate(", Notation::kDTensor},  {"Partial(", Notation::kDTensor}, {"_StridedShard(", Notation::kDTensor},
      {"(Shard(", Notation::kDTensor},     {"[Shard(", Notation::kDTensor},  {"(Replicate(", Notation::kDTensor},
      {"[Replicate(", Notation::kDTensor}, {"S(", Notation::kDTensor},       {"#sdy", Notation::kShardy},
      {"[{", Notation::kShardy},           {"<@", Notation::kShardy},        {"{devices=", Notation::kHlo},
      {"{replicated}", Notation::kHlo},    {"{maximal", Notation::kHlo},
  };
  for (const Beginning& beginning : kBeginnings) {
    if (text.starts_with(beginning.text)) return beginning.notation;
  }
  return std::nullopt;
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
  absl::StatusOr<std::string> text = entry->write(layout);
  if (!text.ok()) return text;
  // The text is what comes nearest; whether it says exactly the same shows when it is read again.
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
