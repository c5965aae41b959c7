// `reshard.json`, the file that this library writes beside a checkpoint, with the mesh, the layout of every tensor, and
// hashes of everything. PyTorch and the safetensors package ignore it.
//
//   {"content":{"schema":"reshard.sidecar/1","reshard_version":"0.1.0","job":"..","mesh":"{dp:2}",
//               "headers":[[".metadata","<hash>"]],
//               "tensors":[["model.w","[<dp>8, 4]"],["model.v","[<tp>6]","{tp:3}"]],
//               "chunks":[["__0_0.distcp",64,1234,"<hash>"]]},
//    "hash":"<hash of the content, as it is written here>"}
//
// The hash of a chunk is that of its elements, dense, row-major and little-endian. `headers` are the files that say
// what is where. A checkpoint that was made of the weights of another, under the names of the bare model, also has
// `"made":{"weights_only":true,"taken_off":[["_orig_mod.","part"],["model.","prefix"]]}`.
#ifndef RESHARD_CHECKPOINT_SOURCE_SIDECAR_H_
#define RESHARD_CHECKPOINT_SOURCE_SIDECAR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/hash/hash.h"
#include "reshard/checkpoint/wrappers.h"

namespace reshard::source {

inline constexpr std::string_view kSidecarName = "reshard.json";

struct Sidecar {
  struct Tensor {
    std::string name;
    std::string layout;  // with sizes; empty where a tensor is stored whole and no layout was asked for
    std::string mesh;    // of the layout; written if it differs from the sidecar's
  };
  struct Chunk {
    std::string file;
    int64_t at = 0;  // as in Catalog::FileRange
    int64_t length = 0;
    hash::ContentHash hash;
  };

  // How the checkpoint was made of another one, so that this can be repeated to compare the two.
  struct Made {
    bool weights_only = false;       // Selection::weights_only
    std::vector<Wrapper> taken_off;  // off the names of its tensors; without numbers of names
  };

  std::string job;   // what made it, see convert.h
  std::string mesh;  // of most tensors; empty where no layout was asked for
  std::vector<std::pair<std::string, hash::ContentHash>> headers;  // file, hash of all of it
  std::vector<Tensor> tensors;
  std::vector<Chunk> chunks;
  std::optional<Made> made;  // where names were to be those of the bare model

  // The file's bytes. Names that are not UTF-8 are written with U+FFFD in place of invalid bytes.
  std::string ToJson() const;
  // DataLoss: not such a file, or its hash is not that of its content.
  static absl::StatusOr<Sidecar> Parse(std::string_view json);
};

}  // namespace reshard::source

#endif  // RESHARD_CHECKPOINT_SOURCE_SIDECAR_H_
