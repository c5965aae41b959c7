// What the program that will load a result looks for.
#ifndef RESHARD_CHECKPOINT_AUXILIARY_FILES_LOADER_H_
#define RESHARD_CHECKPOINT_AUXILIARY_FILES_LOADER_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/side_files.h"

namespace reshard::auxiliary_files {

// How a loader finds safetensors.
struct Loader {
  std::string stem = "model";  // of the names of files and index
  bool one_file = false;       // it reads one file, and no index
};

// PEFT where there is an `adapter_config.json`, unless a `config.json` stands beside it and no name of the result has
// `lora_` in it or begins with `base_model.`; diffusers where the `config.json` has `_class_name` and
// `_diffusers_version`; transformers otherwise. Where no configuration is copied: PEFT or
// diffusers where the files of the source are called as theirs are, PEFT also where all names begin with
// `base_model.model.` and have `.lora_` in them. `files` are those copied from beside `source`. Errors of the system.
absl::StatusOr<Loader> LoaderOf(const Catalog& source, absl::Span<const AuxiliaryFile> files, const Catalog& result);

// Whether a configuration that says what the names should be is among the files.
bool HasConfig(absl::Span<const AuxiliaryFile> files);

// If names are those of Megatron, which no loader of Hugging Face knows: a sentence with one of them and the recipe
// that changes it.
std::optional<std::string> NamesOfMegatron(const Catalog& result);

}  // namespace reshard::auxiliary_files

#endif  // RESHARD_CHECKPOINT_AUXILIARY_FILES_LOADER_H_
