// Compares what a model's configuration says of its tensors with what they are.
#ifndef RESHARD_CHECKPOINT_AUXILIARY_FILES_CONFIG_H_
#define RESHARD_CHECKPOINT_AUXILIARY_FILES_CONFIG_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/side_files.h"

namespace reshard::auxiliary_files {

// What the text of a Hugging Face `config.json`, which is copied as it is, says wrongly: a dtype that most floats lack,
// unless they are narrow ones and it has a `quantization_config`; a quantization to FP8 without tensors of such
// elements; a size of the vocabulary that the embedding does not have; an output layer that is tied and there all the
// same, or not tied and not there. One sentence each. Nothing if the text is not such a configuration.
std::vector<std::string> Contradictions(std::string_view config, const Catalog& result);

// The `config.json` among the files beside a checkpoint in `directory`, if there is one of at most 16 MiB; otherwise an
// empty text. Errors of the system.
absl::StatusOr<std::string> ReadConfig(const std::string& directory, absl::Span<const AuxiliaryFile> files);

// The same of the `config.json` among the files beside a checkpoint in `directory`, if there is one of at most 16 MiB.
// Errors of the system.
absl::StatusOr<std::vector<std::string>> FindContradictions(const std::string& directory,
                                                            absl::Span<const AuxiliaryFile> files,
                                                            const Catalog& result);

}  // namespace reshard::auxiliary_files

#endif  // RESHARD_CHECKPOINT_AUXILIARY_FILES_CONFIG_H_
