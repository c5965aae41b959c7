#include "checkpoint/auxiliary_files/loader.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/auxiliary_files/config.h"
#include "checkpoint/io/show.h"
#include "json/document.h"
#include "reshard/checkpoint/pattern.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard::auxiliary_files {
namespace {

constexpr std::string_view kAdapterConfig = "adapter_config.json", kConfig = "config.json";
constexpr std::string_view kAdapter = "adapter_model", kDiffusers = "diffusion_pytorch_model";

bool Has(absl::Span<const AuxiliaryFile> files, std::string_view name) {
  return std::any_of(files.begin(), files.end(), [&](const AuxiliaryFile& file) { return file.to == name; });
}

// Whether there is nothing but an adapter of PEFT.
bool AllAreNamesOfAdapter(const Catalog& result) {
  return !result.tensors().empty() &&
         std::all_of(result.tensors().begin(), result.tensors().end(), [](const Catalog::Tensor& tensor) {
           return tensor.name.starts_with("base_model.model.") &&
                  absl::StrContains(status::View(tensor.name), ".lora_");
         });
}

bool HasNamesOfAdapter(const Catalog& result) {
  return std::any_of(result.tensors().begin(), result.tensors().end(), [](const Catalog::Tensor& tensor) {
    return tensor.name.starts_with("base_model.") || absl::StrContains(status::View(tensor.name), "lora_");
  });
}

bool IsOfDiffusers(std::string_view config) {
  const absl::StatusOr<json::Document> document = json::Document::Parse(config);
  if (!document.ok() || !document->root().is_object()) return false;
  return document->root().Find("_class_name") && document->root().Find("_diffusers_version");
}

// Whether all files of the checkpoint are called so.
bool AreCalled(const Catalog& source, std::string_view stem) {
  return !source.files().empty() &&
         std::all_of(source.files().begin(), source.files().end(), [&](const Catalog::File& file) {
           const std::string_view path = file.path;
           const std::string_view name = path.substr(path.rfind('/') + 1);
           if (!name.starts_with(stem)) return false;
           const std::string_view rest = name.substr(stem.size());
           return rest.starts_with('.') || rest.starts_with('-');
         });
}

}  // namespace

absl::StatusOr<Loader> LoaderOf(const Catalog& source, absl::Span<const AuxiliaryFile> files, const Catalog& result) {
  const Loader adapter{std::string(kAdapter), true}, diffusers{std::string(kDiffusers), false};
  if (Has(files, kAdapterConfig) && (!Has(files, kConfig) || HasNamesOfAdapter(result))) return adapter;
  if (Has(files, kConfig)) {
    ASSIGN_OR_RETURN(const std::string config, ReadConfig(source.root(), files));
    return IsOfDiffusers(config) ? diffusers : Loader();
  }
  if (AreCalled(source, kAdapter) || AllAreNamesOfAdapter(result)) return adapter;
  return AreCalled(source, kDiffusers) ? diffusers : Loader();
}

bool HasConfig(absl::Span<const AuxiliaryFile> files) { return Has(files, kConfig) || Has(files, kAdapterConfig); }

std::optional<std::string> NamesOfMegatron(const Catalog& result) {
  constexpr std::string_view kNames[] = {"*self_attention.linear_qkv.weight", "*mlp.linear_fc1.weight",
                                         "*mlp.experts.*linear_fc1.weight"};
  for (const Catalog::Tensor& tensor : result.tensors()) {
    if (!MatchesAny(kNames, tensor.name)) continue;
    return absl::StrCat(io::Shown(tensor.name),
                        " is a name of Megatron, which loaders of Hugging Face models do not know: a recipe makes the "
                        "names and tensors that they do, such as that of examples/recipes/llama_to_megatron.py, "
                        "inverted (docs/tasks/megatron_and_hugging_face.md)");
  }
  return std::nullopt;
}

}  // namespace reshard::auxiliary_files
