#include "reshard/checkpoint/selection.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <variant>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/catalog/derived_catalog.h"
#include "checkpoint/catalog/training_state.h"
#include "checkpoint/io/show.h"
#include "reshard/checkpoint/pattern.h"
#include "reshard/layout/checked.h"
#include "status/macros.h"

namespace reshard {
namespace {

// What a selection takes of one catalog.
class Chooser {
 public:
  Chooser(const Catalog& catalog, const Selection& selection) : catalog_(catalog), selection_(selection) {
    if (selection.weights_only) training_.emplace(catalog);
  }

  bool TakesTensor(std::string_view name) const { return Takes(name); }
  // A byte item, or a value that is not plain data.
  bool TakesValue(std::string_view name) const {
    return selection_.byte_items && !selection_.weights_only && Takes(name);
  }

 private:
  bool Takes(std::string_view name) const {
    const std::string_view in_files = catalog_.NameInFiles(name);
    const auto matches = [&](const std::vector<std::string>& patterns) {
      return MatchesAny(patterns, name) || (in_files != name && MatchesAny(patterns, in_files));
    };
    if (!selection_.include.empty() && !matches(selection_.include)) return false;
    if (training_ && training_->Has(name)) return false;
    return !matches(selection_.exclude);
  }

  const Catalog& catalog_;
  const Selection& selection_;
  std::optional<catalog::TrainingState> training_;
};

// Checks the checkpoint as a whole, before anything is taken of it.
absl::Status CheckWhole(const Catalog& catalog, const Selection& selection, const Chooser& chooser) {
  if (!catalog.incomplete().empty() && !selection.partial) {
    return absl::DataLossError(absl::StrCat(io::Shown(catalog.root()), " is not complete: ", catalog.incomplete(),
                                            "; bring the rest, or take what is there (--partial; in Python "
                                            "partial=True)"));
  }
  if (selection.keep_rank_local) return absl::OkStatus();
  const Catalog::RankLocal* first = nullptr;
  int64_t count = 0;
  for (const Catalog::RankLocal& one : catalog.rank_local()) {
    const auto taken = [&](const std::string& name) {
      return catalog.FindTensor(name) != nullptr ? chooser.TakesTensor(name) : chooser.TakesValue(name);
    };
    if (std::none_of(one.names.begin(), one.names.end(), taken)) continue;
    if (++count == 1) first = &one;
  }
  if (first == nullptr) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(io::Shown(first->name), count > 1 ? absl::StrCat(" and ", count - 1, " others differ") : " differs",
                   " between the files of ranks, such as ", io::Shown(first->files.first), " and ",
                   io::Shown(first->files.second), "; keep each rank's as ", io::Shown(first->names[0]),
                   ", ... (--rank-local keep; in Python rank_local=\"keep\"), or leave it out (--exclude ",
                   io::Shown(first->name), ")"));
}

// Adds up what is left out.
class Remains {
 public:
  Remains(const Catalog& catalog, std::vector<LeftOut>* out) : catalog_(catalog), out_(out) {}

  void AddTensor(const Catalog::Tensor& tensor) {
    if (LeftOut* const left = Of(tensor.name)) {
      ++left->tensors;
      left->bytes = CheckedAdd(left->bytes, catalog_.BytesOf(tensor)).value_or(std::numeric_limits<int64_t>::max());
    }
  }
  void AddValue(std::string_view name, int64_t bytes) {
    if (LeftOut* const left = Of(name)) {
      ++left->values;
      left->bytes = CheckedAdd(left->bytes, bytes).value_or(std::numeric_limits<int64_t>::max());
    }
  }

 private:
  LeftOut* Of(std::string_view name) {
    if (out_ == nullptr) return nullptr;
    const std::vector<Catalog::PathStep>* const path = catalog_.PathOf(name);
    const std::string* const step =
        path != nullptr && path->size() > 1 ? std::get_if<std::string>(&path->front()) : nullptr;
    const std::string_view container = step != nullptr ? std::string_view(*step) : name.substr(0, name.find('.'));
    const auto [found, fresh] = index_.try_emplace(std::string(container), out_->size());
    if (fresh) out_->push_back({std::string(container)});
    return &(*out_)[found->second];
  }

  const Catalog& catalog_;
  std::vector<LeftOut>* const out_;
  absl::flat_hash_map<std::string, size_t> index_;
};

// `to` with what its $ stand for; nothing where one stands for no capture.
std::optional<std::string> Fill(std::string_view to, const std::vector<std::string_view>& captures) {
  std::string name;
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i] != '$') {
      name += to[i];
      continue;
    }
    if (++i == to.size()) return std::nullopt;
    if (to[i] == '$') {
      name += '$';
    } else if (to[i] >= '1' && to[i] <= '9' && static_cast<size_t>(to[i] - '1') < captures.size()) {
      name += captures[to[i] - '1'];
    } else {
      return std::nullopt;
    }
  }
  return name;
}

// The text of the first of the renamings that matches, if one does.
absl::StatusOr<std::optional<std::string>> RenamedFrom(const Selection& selection, std::string_view name) {
  for (const auto& [from, to] : selection.renamings) {
    const auto captures = Captures(from, name);
    if (!captures) continue;
    std::optional<std::string> filled = Fill(to, *captures);
    if (!filled) return CheckRenaming(from, to);
    return filled;
  }
  return std::nullopt;
}

absl::StatusOr<std::string> Renamed(const Selection& selection, std::string_view name) {
  const std::string_view prefix = selection.strip_prefix;
  const bool is_stored = !prefix.empty() && name.starts_with(prefix);
  if (is_stored) name.remove_prefix(prefix.size());
  std::string bare = WithoutWrappers(name, selection.wrappers);
  if (!is_stored && !prefix.empty() && bare.starts_with(prefix)) {
    bare.erase(0, prefix.size());
  } else if (!is_stored && selection.needs_prefix) {
    return absl::InvalidArgumentError(absl::StrCat(io::Shown(name), " does not begin with ", io::Shown(prefix),
                                                   ", which is to be taken from all names"));
  }
  ASSIGN_OR_RETURN(std::optional<std::string> renamed, RenamedFrom(selection, bare));
  if (!renamed && bare != name) {
    ASSIGN_OR_RETURN(renamed, RenamedFrom(selection, name));
    // What a star stands for may have wrappers in it.
    if (renamed) renamed = WithoutKnownParts(*renamed);
  }
  return absl::StrCat(selection.add_prefix, renamed ? *renamed : bare);
}

// The error if a selection takes nothing of a checkpoint that has something.
absl::Status NothingLeft(const Catalog& catalog, const Selection& selection) {
  const size_t tensors = catalog.tensors().size(), items = catalog.byte_items().size();
  const std::string_view first = tensors > 0 ? catalog.tensors()[0].name : catalog.byte_items()[0].name;
  const char* const why = !selection.include.empty() || !selection.exclude.empty() ? "the selection takes none of them"
                          : selection.weights_only                                 ? "none of them is a weight"
                                                                                   : "none of them is taken";
  return absl::InvalidArgumentError(absl::StrCat(
      io::Shown(catalog.root()), " has ", tensors == 0 ? "no tensors" : absl::StrCat(tensors, " tensors"), " and ",
      items, " byte items, such as ", io::Shown(first), "; ", why, ", and nothing would be left"));
}

}  // namespace

bool Selection::takes_all() const {
  return include.empty() && exclude.empty() && byte_items && !weights_only && wrappers.empty() &&
         strip_prefix.empty() && renamings.empty() && add_prefix.empty();
}

Selection Selection::under_stored_names() const {
  Selection same = *this;
  same.wrappers.clear();
  same.strip_prefix.clear();
  same.renamings.clear();
  same.add_prefix.clear();
  return same;
}

absl::Status CheckRenaming(std::string_view from, std::string_view to) {
  const auto stars = static_cast<size_t>(std::count(from.begin(), from.end(), '*'));
  if (Fill(to, std::vector<std::string_view>(stars))) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the new name ", io::Shown(to), " has a $ that stands for no * of ",
                                                 io::Shown(from), "; $$ is a dollar"));
}

absl::StatusOr<std::pair<std::string, std::string>> ParseRenaming(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat(io::Shown(text), " is not of the form OLD=NEW"));
  }
  const std::string_view from = text.substr(0, equals), to = text.substr(equals + 1);
  RETURN_IF_ERROR(CheckRenaming(from, to));
  return std::pair(std::string(from), std::string(to));
}

absl::StatusOr<Catalog> Select(Catalog catalog, const Selection& selection, std::vector<LeftOut>* left_out) {
  const Chooser chooser(catalog, selection);
  RETURN_IF_ERROR(CheckWhole(catalog, selection, chooser));
  if (left_out != nullptr) left_out->clear();
  if (selection.takes_all()) return catalog;
  Remains remains(catalog, left_out);
  std::vector<catalog::Kept> tensors, items;
  std::vector<Catalog::Attribute> attributes;
  absl::flat_hash_map<std::string, std::string_view> old_names;  // by new name
  const auto keep = [&](std::string_view name, size_t index, std::vector<catalog::Kept>* out) -> absl::Status {
    ASSIGN_OR_RETURN(std::string renamed, Renamed(selection, name));
    const auto [other, fresh] = old_names.try_emplace(renamed, name);
    if (!fresh) {
      return absl::InvalidArgumentError(absl::StrCat(
          io::Shown(other->second), " and ", io::Shown(name), " would both be called ", io::Shown(renamed),
          selection.wrappers.empty() ? "" : "; --keep-names leaves names as they are, --exclude leaves one out"));
    }
    out->push_back({index, std::move(renamed)});
    return absl::OkStatus();
  };
  for (size_t t = 0; t < catalog.tensors().size(); ++t) {
    const Catalog::Tensor& tensor = catalog.tensors()[t];
    if (chooser.TakesTensor(tensor.name)) {
      RETURN_IF_ERROR(keep(tensor.name, t, &tensors));
    } else {
      remains.AddTensor(tensor);
    }
  }
  for (size_t i = 0; i < catalog.byte_items().size(); ++i) {
    const Catalog::ByteItem& item = catalog.byte_items()[i];
    if (chooser.TakesValue(item.name)) {
      RETURN_IF_ERROR(keep(item.name, i, &items));
    } else {
      remains.AddValue(item.name, item.place.length);
    }
  }
  for (const Catalog::Attribute& attribute : catalog.attributes()) {
    if (attribute.is_opaque_value() ? chooser.TakesValue(attribute.name) : !selection.weights_only) {
      attributes.push_back(attribute);
    } else if (attribute.is_opaque_value()) {
      remains.AddValue(attribute.name, 0);
    }
  }
  if (tensors.empty() && items.empty() && !(catalog.tensors().empty() && catalog.byte_items().empty())) {
    return NothingLeft(catalog, selection);
  }
  return catalog::DerivedCatalog(std::move(catalog)).Make(std::move(tensors), std::move(items), std::move(attributes));
}

}  // namespace reshard
