// The first form of torch.save: pickles of a magic number, the version of the protocol, facts about the system, the
// description and the list of storages, and then the storages, each with the number of its elements before it.
//
// The bytes of storages are little-endian whatever the facts say: PyTorch swaps them on big-endian machines.
#ifndef RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_FIRST_FORM_H_
#define RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_FIRST_FORM_H_

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "checkpoint/formats/pickle/machine.h"
#include "checkpoint/formats/torch_save/storage.h"
#include "checkpoint/io/files.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard::torch_save {

// Whether a file that begins with these bytes is of that form.
bool IsFirstForm(std::string_view begin);

struct FirstForm {
  pickle::Pickle description;
  Storages storages;  // without those of no element
};

// What is in bytes [at, at + length) of the file, which IsFirstForm. Reads the pickles and the 8 bytes before each
// storage. Errors as Pickle::Read. DataLoss, also: another version of the protocol, a storage that the description does
// not mention, or of another length than it says, or that the file does not have whole; bytes behind the last one, as
// where something else was saved into the same file. Unimplemented: a storage of a type whose size is not known.
absl::StatusOr<FirstForm> ReadFirstForm(const io::ReadFile& file, int64_t at, int64_t length,
                                        const CatalogLimits& limits);

}  // namespace reshard::torch_save

#endif  // RESHARD_CHECKPOINT_FORMATS_TORCH_SAVE_FIRST_FORM_H_
