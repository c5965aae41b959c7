#include "reshard/checkpoint/wrappers.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <variant>

#include "absl/strings/str_cat.h"
#include "status/view.h"

namespace reshard {
namespace {

// What torch.compile, FSDP and activation checkpointing call the module that they wrap.
constexpr std::string_view kParts[] = {"_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module."};

// What stands in front of all names: DDP and DeepSpeed, Lightning with DeepSpeed, and keys of dictionaries whose
// nesting the checkpoint does not record.
constexpr std::string_view kPrefixes[] = {"module.", "_forward_module.", "state_dict.", "model_state_dict.",
                                          "model_state."};

// Keys under which training scripts keep the state dict of the model. `app` is that of PyTorch's tutorials.
constexpr std::string_view kContainers[] = {"model",       "module", "state_dict",     "model_state_dict",
                                            "model_state", "app",    "_forward_module"};

// The name without the part, wherever it stands between dots.
std::string WithoutPart(std::string_view name, std::string_view part) {
  std::string out;
  for (size_t at = 0; at < name.size();) {
    const bool begins = at == 0 || name[at - 1] == '.';
    if (begins && name.substr(at).starts_with(part)) {
      at += part.size();
    } else {
      out += name[at++];
    }
  }
  return out;
}

// A name, and the steps to it in nested containers that have not been taken off.
struct Named {
  std::string name;
  absl::Span<const Catalog::PathStep> path;
};

bool AllBeginWith(absl::Span<const Named> all, std::string_view prefix) {
  return std::all_of(all.begin(), all.end(), [&](const Named& each) {
    return each.name.size() > prefix.size() && each.name.starts_with(prefix);
  });
}

// The key of the container that has all of them, with its dot, where that is known by name and recorded as one.
std::optional<std::string> ContainerOf(absl::Span<const Named> all) {
  if (all[0].path.size() < 2) return std::nullopt;
  const auto* const key = std::get_if<std::string>(&all[0].path[0]);
  if (key == nullptr || std::find(std::begin(kContainers), std::end(kContainers), *key) == std::end(kContainers)) {
    return std::nullopt;
  }
  const bool all_in_it = std::all_of(all.begin(), all.end(), [&](const Named& each) {
    return each.path.size() >= 2 && each.path[0] == all[0].path[0];
  });
  // A model that is itself stored as dictionaries of dictionaries has no dotted name anywhere.
  const bool has_names = std::any_of(all.begin(), all.end(), [](const Named& each) {
    const auto* const last = std::get_if<std::string>(&each.path.back());
    return last != nullptr && last->find('.') != std::string::npos;
  });
  std::string prefix = absl::StrCat(*key, ".");
  if (!all_in_it || !has_names || !AllBeginWith(all, prefix)) return std::nullopt;
  return prefix;
}

// The prefix of all of them that is a wrapper's; empty if there is none.
std::string PrefixOf(absl::Span<const Named> all) {
  for (const std::string_view prefix : kPrefixes) {
    if (AllBeginWith(all, prefix)) return std::string(prefix);
  }
  constexpr std::string_view kModel = "model.";
  const bool twice = std::any_of(all.begin(), all.end(), [](const Named& each) {
    return each.name.starts_with("model.model.") || each.name.starts_with("model.lm_head.") ||
           each.name.starts_with("model.base_model.model.");  // of PEFT
  });
  return twice && AllBeginWith(all, kModel) ? std::string(kModel) : std::string();
}

}  // namespace

bool AreSame(absl::Span<const Wrapper> a, absl::Span<const Wrapper> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Wrapper& one, const Wrapper& other) {
    return one.text == other.text && one.place == other.place;
  });
}

std::vector<Wrapper> FindWrappers(const Catalog& weights, std::string_view strip_prefix) {
  std::vector<Named> all;
  for (const Catalog::Tensor& tensor : weights.tensors()) {
    const std::vector<Catalog::PathStep>* const path = weights.PathOf(tensor.name);
    if (!strip_prefix.empty() && tensor.name.starts_with(strip_prefix)) {
      all.push_back({std::string(tensor.name.substr(strip_prefix.size())), {}});
    } else {
      all.push_back({std::string(tensor.name), path == nullptr ? absl::Span<const Catalog::PathStep>() : *path});
    }
  }
  std::vector<Wrapper> found;
  if (all.empty()) return found;
  for (const std::string_view part : kParts) {
    int64_t names = 0;
    for (Named& each : all) {
      std::string bare = WithoutPart(each.name, part);
      if (bare.size() == each.name.size() || bare.empty()) continue;
      ++names;
      each.name = std::move(bare);
    }
    if (names > 0) found.push_back({std::string(part), Wrapper::Position::kPart, names});
  }
  for (;;) {
    const std::optional<std::string> container = ContainerOf(all);
    const std::string prefix = container ? *container : PrefixOf(all);
    if (prefix.empty()) return found;
    for (Named& each : all) {
      each.name.erase(0, prefix.size());
      if (container) each.path.remove_prefix(1);
    }
    found.push_back({prefix, Wrapper::Position::kPrefix, static_cast<int64_t>(all.size())});
  }
}

std::string WithoutWrappers(std::string_view name, absl::Span<const Wrapper> wrappers) {
  std::string bare(name);
  for (const Wrapper& wrapper : wrappers) {
    std::string without = wrapper.place == Wrapper::Position::kPart ? WithoutPart(bare, wrapper.text)
                          : bare.starts_with(wrapper.text)          ? bare.substr(wrapper.text.size())
                                                                    : bare;
    if (!without.empty()) bare = std::move(without);
  }
  return bare;
}

std::string WithoutKnownParts(std::string_view name) {
  std::string bare(name);
  for (const std::string_view part : kParts) bare = WithoutPart(bare, part);
  return bare;
}

}  // namespace reshard
