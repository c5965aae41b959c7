#include "checkpoint/catalog/training_state.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "status/view.h"

namespace reshard::catalog {
namespace {

// What optimizers keep of a parameter. Names begin like this: exp_avg_sq, ...
constexpr std::string_view kMoments[] = {"exp_avg",   "max_exp_avg", "momentum_buffer", "square_avg",
                                         "acc_delta", "exp_inf",     "fp32_param",      "master_param"};
// Containers that frameworks keep beside weights.
constexpr std::string_view kOfFrameworks[] = {
    "optim",       "optimizer",  "optimizers",   "callbacks",     "dataloader",
    "dataloaders", "loops",      "lr_scheduler", "lr_schedulers", "progress",
    "scheduler",   "schedulers", "trainer",      "train_state",   "rerun_state_machine_state",
};
// PyTorch's generator on the CPU, in bytes.
constexpr int64_t kGeneratorBytes = 5056;

template <typename List, typename T>
bool IsOneOf(const List& list, const T& one) {
  return std::find(std::begin(list), std::end(list), one) != std::end(list);
}

// Calls part(begin, end) for the parts of a name, between dots and slashes.
template <typename F>
void ForEachPart(std::string_view name, const F& part) {
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find_first_of("./", begin), name.size());
    part(begin, end);
    begin = end + 1;
  }
}

std::string_view FirstPart(std::string_view name) { return name.substr(0, name.find_first_of("./")); }

// "a.b" of the part that begins at `begin` in "a.b.c"; empty for the first part.
std::string_view Before(std::string_view name, size_t begin) { return name.substr(0, begin == 0 ? 0 : begin - 1); }

bool IsInteger(std::optional<DType> dtype) {
  constexpr DType kIntegers[] = {DType::kI8, DType::kI16, DType::kI32, DType::kI64,
                                 DType::kU8, DType::kU16, DType::kU32, DType::kU64};
  return dtype && IsOneOf(kIntegers, *dtype);
}

bool IsGenerator(const Catalog::Tensor& tensor) {
  if (tensor.shape.size() != 1 || !IsInteger(tensor.dtype)) return false;
  if (tensor.dtype == DType::kU8 && tensor.shape[0] == kGeneratorBytes) return true;
  const std::string name = absl::AsciiStrToLower(status::View(tensor.name));
  return absl::StrContains(name, "rng") || absl::StrContains(name, "random");
}

}  // namespace

TrainingState::TrainingState(const Catalog& catalog) {
  std::vector<std::string_view> names;
  for (const Catalog::Tensor& tensor : catalog.tensors()) names.push_back(tensor.name);
  for (const Catalog::ByteItem& item : catalog.byte_items()) names.push_back(item.name);
  for (const Catalog::Attribute& attribute : catalog.attributes()) {
    if (attribute.is_opaque_value()) names.emplace_back(attribute.name);
  }

  // Two members that make a container a scaler or a scheduler: which of them it has.
  absl::flat_hash_map<std::string, int> scalers, schedulers;
  bool is_lightning = false, has_state_dict = false;
  for (const std::string_view name : names) {
    is_lightning |= name == "pytorch-lightning_version";
    has_state_dict |= FirstPart(name) == "state_dict";
    size_t state_at = std::string_view::npos;
    ForEachPart(name, [&](size_t begin, size_t end) {
      const std::string_view part = name.substr(begin, end - begin);
      const std::string container(Before(name, begin));
      if (part == "state") state_at = begin;
      const auto begins = [&](std::string_view moment) { return part.starts_with(moment); };
      const bool is_moment = state_at != std::string_view::npos && state_at != begin &&
                             std::any_of(std::begin(kMoments), std::end(kMoments), begins);
      if (part == "param_groups" || is_moment) {
        const std::string optimizer(is_moment ? Before(name, state_at) : std::string_view(container));
        if (optimizer.empty()) {  // the checkpoint is one
          containers_.insert({"state", "param_groups"});
        } else {
          containers_.insert(optimizer);
        }
      }
      if (end != name.size()) return;
      if (part == "growth_factor") scalers[container] |= 1;
      if (part == "backoff_factor") scalers[container] |= 2;
      if (part == "last_epoch") schedulers[container] |= 1;
      if (part == "_step_count") schedulers[container] |= 2;
    });
  }
  for (const auto* const found : {&scalers, &schedulers}) {
    for (const auto& [container, has] : *found) {
      if (has == 3 && !container.empty()) containers_.insert(container);
    }
  }
  only_state_dict_ = is_lightning && has_state_dict;

  // Containers of frameworks in which nothing has a dimension, and counters beside the container of the weights.
  absl::flat_hash_map<std::string_view, bool> only_scalars;  // by first part
  bool nested = false;
  for (const Catalog::Tensor& tensor : catalog.tensors()) {
    const std::vector<Catalog::PathStep>* const path = catalog.PathOf(tensor.name);
    nested |= path != nullptr && path->size() > 1 && !InContainer(tensor.name);
    const bool is_scalar =
        std::all_of(tensor.shape.begin(), tensor.shape.end(), [](int64_t size) { return size == 1; });
    const auto [found, fresh] = only_scalars.try_emplace(FirstPart(tensor.name), is_scalar);
    if (!fresh) found->second = found->second && is_scalar;
  }
  for (const auto& [part, is_scalar] : only_scalars) {
    if (is_scalar && IsOneOf(kOfFrameworks, part)) containers_.insert(std::string(part));
  }
  for (const Catalog::Tensor& tensor : catalog.tensors()) {
    const std::vector<Catalog::PathStep>* const path = catalog.PathOf(tensor.name);
    const bool is_counter =
        nested && path != nullptr && path->size() == 1 && tensor.shape.empty() && IsInteger(tensor.dtype);
    if (is_counter || IsGenerator(tensor)) names_.insert(std::string(tensor.name));
  }
}

bool TrainingState::InContainer(std::string_view name) const {
  for (size_t end = name.find_first_of("./"); end != std::string_view::npos; end = name.find_first_of("./", end + 1)) {
    if (containers_.contains(status::View(name.substr(0, end)))) return true;
  }
  return containers_.contains(status::View(name));
}

bool TrainingState::Has(std::string_view name) const {
  return (only_state_dict_ && FirstPart(name) != "state_dict") || names_.contains(status::View(name)) ||
         InContainer(name);
}

}  // namespace reshard::catalog
