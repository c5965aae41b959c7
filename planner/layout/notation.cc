#include "reshard/layout/notation.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/layout/foreign.h"
#include "reshard/layout/shard_map.h"
#include "reshard/layout/text.h"

namespace reshard {
namespace {

constexpr Notation kAll[] = {Notation::kReshard, Notation::kDTensor, Notation::kJax, Notation::kShardy, Notation::kHlo};

absl::StatusOr<std::string> ExportUnchecked(Notation notation, const Layout& layout) {
  switch (notation) {
    case Notation::kReshard:
      return ToString(layout);
    case Notation::kDTensor:
      return ExportDTensor(layout);
    case Notation::kJax:
      return ExportJax(layout);
    case Notation::kShardy:
      return ExportShardy(layout);
    case Notation::kHlo:
      return ExportHlo(layout);
  }
  return absl::InvalidArgumentError("unknown notation");
}

// The reason of an error, without the column and the text that it points at.
std::string Reason(const absl::Status& status) {
  const std::string message(status.message());
  const std::string line = message.substr(0, message.find('\n'));
  return line.substr(0, line.rfind(" at column "));
}

}  // namespace

const char* Name(Notation notation) {
  switch (notation) {
    case Notation::kReshard:
      return "reshard";
    case Notation::kDTensor:
      return "dtensor";
    case Notation::kJax:
      return "jax";
    case Notation::kShardy:
      return "shardy";
    case Notation::kHlo:
      return "hlo";
  }
  return "reshard";
}

std::optional<Notation> ParseNotation(std::string_view name) {
  for (const Notation notation : kAll) {
    if (Name(notation) == name) return notation;
  }
  return std::nullopt;
}

absl::StatusOr<Layout> ImportLayout(Notation notation, std::string_view text, std::shared_ptr<const Mesh> mesh,
                                    const std::vector<int64_t>& shape) {
  if (mesh == nullptr) return absl::InvalidArgumentError("a layout needs a mesh");
  if (shape.size() > static_cast<size_t>(kMaxRank)) {
    return absl::InvalidArgumentError(absl::StrCat("the tensor has more than ", kMaxRank, " dimensions"));
  }
  switch (notation) {
    case Notation::kReshard:
      return ParseLayoutRule(text, std::move(mesh), shape);
    case Notation::kDTensor:
      return ImportDTensor(text, mesh, shape);
    case Notation::kJax:
      return ImportJax(text, mesh, shape);
    case Notation::kShardy:
      return ImportShardy(text, mesh, shape);
    case Notation::kHlo:
      return ImportHlo(text, mesh, shape);
  }
  return absl::InvalidArgumentError("unknown notation");
}

absl::StatusOr<std::string> ExportLayout(Notation notation, const Layout& layout) {
  absl::StatusOr<std::string> text = ExportUnchecked(notation, layout);
  if (!text.ok()) return text;
  // The text is what comes nearest; whether it says exactly the same shows when it is read again.
  const absl::StatusOr<Layout> back = ImportLayout(notation, *text, layout.mesh_ptr(), layout.shape());
  if (!back.ok()) {
    return absl::UnimplementedError(absl::StrCat(Name(notation), " cannot say it exactly: ", Reason(back.status())));
  }
  const absl::StatusOr<bool> same = Equivalent(*back, layout);
  if (!same.ok()) return same.status();
  if (!*same) {
    return absl::UnimplementedError(
        absl::StrCat(Name(notation), " cannot say it exactly: ", *text, " would cut the uneven sizes otherwise"));
  }
  return text;
}

}  // namespace reshard
