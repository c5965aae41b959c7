// torch.classes.reshard.StoredCheckpoint: an open checkpoint, for the Python package to read from.
#ifndef RESHARD_CHECKPOINT_PYTORCH_STORED_CHECKPOINT_H_
#define RESHARD_CHECKPOINT_PYTORCH_STORED_CHECKPOINT_H_

#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "checkpoint/pytorch/progress.h"
#include "reshard/live/stored_checkpoint.h"

namespace reshard::pytorch {

class TorchStoredCheckpoint : public ::torch::CustomClassHolder {
 public:
  // Opens `path`. Errors of the system are not thrown; error() has them.
  TorchStoredCheckpoint(const std::string& path, bool check, bool ignore_sidecar, const std::string& recipe);

  // {"error": "missing" | "existing" | "file", "message": ".."}, or an empty text.
  const std::string& error() const { return error_; }

  // Lists the tensors and byte items, as JSON:
  //   {"tensors": [["w", "torch.float32", [8, 4], false, 2], ..],      // name, dtype, shape, requires_grad, chunks
  //    "items": [["step", 123], ..],                                  // name, bytes
  //    "paths": {"model.0.w": ["model", 0, "w"], ..}}
  // and the boxes of the chunks, int64: offset, then size, chunk by chunk, tensor by tensor.
  std::tuple<std::string, at::Tensor> Describe() const;
  // The attributes of the metadata that are plain data: their names, and the bytes of a pickle of each.
  std::tuple<std::vector<std::string>, std::vector<at::Tensor>> Attributes() const;

  // Reads a box of tensor number tensors[i], of the shape of outs[i], into outs[i]. `offsets` has the offsets of all
  // boxes, one after another. `threads`: at most 64; 0: one per core, but at most four. Throws the errors of
  // StoredCheckpoint::Read; returns those of the system as JSON, as in error().
  std::string Read(const std::vector<at::Tensor>& outs, const std::vector<int64_t>& tensors,
                   const std::vector<int64_t>& offsets, int64_t threads);
  // The bytes of a byte item, and errors as Read.
  std::tuple<at::Tensor, std::string> ReadItem(int64_t item);

  // Loads tensors by name, in these meshes and layouts, over the ranks of a group (empty: this process alone), and byte
  // items. Collective. Tells `progress` from this thread. Returns the bytes of the items, and, as JSON, what this rank
  // did or an error of the system, as in error(); throws other errors.
  std::tuple<std::vector<at::Tensor>, std::string> Load(
      const std::vector<at::Tensor>& tensors, const std::vector<std::string>& names,
      const std::vector<std::string>& meshes, const std::vector<std::string>& layouts,
      const std::vector<std::string>& item_names, const std::string& group, bool read_once,
      const std::optional<c10::intrusive_ptr<TorchProgress>>& progress);

  int64_t BytesRead() const { return stored().bytes_read(); }

 private:
  StoredCheckpoint& stored() const { return *stored_; }

  mutable std::optional<StoredCheckpoint> stored_;
  std::string error_;
};

// An error of the system, for the Python package to raise: see TorchStoredCheckpoint::error().
std::string FileErrorJson(const absl::Status& status);
// A tensor of bytes with a copy of these.
at::Tensor BytesTensor(std::string_view bytes);
// Returns an empty text for OK and FileErrorJson for an error of the system; throws all other errors. For calls outside
// a group.
std::string ThrowOrTell(const absl::Status& status);

}  // namespace reshard::pytorch

#endif  // RESHARD_CHECKPOINT_PYTORCH_STORED_CHECKPOINT_H_
