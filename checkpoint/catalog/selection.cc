#include "reshard/checkpoint/selection.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/catalog/derived_catalog.h"
#include "checkpoint/io/show.h"
#include "reshard/checkpoint/pattern.h"
#include "status/macros.h"

namespace reshard {
namespace {

constexpr std::string_view kTraining[] = {
    "optim",         "optimizer", "optimizers", "optimizer_states", "optimizer_state_dict",      "lr_scheduler",
    "lr_schedulers", "rng_state", "rng_states", "train_state",      "rerun_state_machine_state",
};
// Words that models use, too, but not as the first part of a name.
constexpr std::string_view kTrainingFirst[] = {"scheduler", "schedulers", "rng", "dataloader", "callbacks", "loops"};

bool Takes(const Selection& selection, std::string_view name) {
  if (!selection.include.empty() && !MatchesAny(selection.include, name)) return false;
  if (selection.weights_only && IsTrainingState(name)) return false;
  return !MatchesAny(selection.exclude, name);
}

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
      name += captures[static_cast<size_t>(to[i] - '1')];
    } else {
      return std::nullopt;
    }
  }
  return name;
}

absl::StatusOr<std::string> Renamed(const Selection& selection, std::string_view name) {
  if (!selection.strip_prefix.empty() && name.starts_with(selection.strip_prefix)) {
    name.remove_prefix(selection.strip_prefix.size());
  }
  std::string renamed(name);
  for (const auto& [from, to] : selection.renamings) {
    const auto captures = Captures(from, name);
    if (!captures) continue;
    std::optional<std::string> filled = Fill(to, *captures);
    if (!filled) return CheckRenaming(from, to);
    renamed = *std::move(filled);
    break;
  }
  return absl::StrCat(selection.add_prefix, renamed);
}

}  // namespace

bool Selection::takes_all() const {
  return include.empty() && exclude.empty() && byte_items && !weights_only && strip_prefix.empty() &&
         renamings.empty() && add_prefix.empty();
}

bool IsTrainingState(std::string_view name) {
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find_first_of("./", begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    const auto is_one_of = [&](const auto& words) {
      return std::find(std::begin(words), std::end(words), part) != std::end(words);
    };
    if (is_one_of(kTraining) || (begin == 0 && is_one_of(kTrainingFirst))) return true;
    begin = end + 1;
  }
  return false;
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

absl::StatusOr<Catalog> Select(Catalog catalog, const Selection& selection) {
  if (selection.takes_all()) return catalog;
  std::vector<catalog::Kept> tensors, items;
  absl::flat_hash_map<std::string, std::string_view> old_names;  // by new name
  const auto keep = [&](std::string_view name, size_t index, std::vector<catalog::Kept>* out) -> absl::Status {
    if (!Takes(selection, name)) return absl::OkStatus();
    ASSIGN_OR_RETURN(std::string renamed, Renamed(selection, name));
    const auto [other, fresh] = old_names.try_emplace(renamed, name);
    if (!fresh) {
      return absl::InvalidArgumentError(absl::StrCat(io::Shown(other->second), " and ", io::Shown(name),
                                                     " would both be called ", io::Shown(renamed)));
    }
    out->push_back({index, std::move(renamed)});
    return absl::OkStatus();
  };
  for (size_t t = 0; t < catalog.tensors().size(); ++t) {
    RETURN_IF_ERROR(keep(catalog.tensors()[t].name, t, &tensors));
  }
  for (size_t i = 0; selection.byte_items && !selection.weights_only && i < catalog.byte_items().size(); ++i) {
    RETURN_IF_ERROR(keep(catalog.byte_items()[i].name, i, &items));
  }
  if (tensors.empty() && items.empty() && !(catalog.tensors().empty() && catalog.byte_items().empty())) {
    return absl::InvalidArgumentError(absl::StrCat("nothing is left of the ", catalog.tensors().size(), " tensors and ",
                                                   catalog.byte_items().size(), " byte items of ", catalog.root()));
  }
  return catalog::DerivedCatalog(std::move(catalog))
      .Make(std::move(tensors), std::move(items), !selection.weights_only);
}

}  // namespace reshard
