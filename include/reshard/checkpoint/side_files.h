// What lies beside a checkpoint: configurations, tokenizers, what a framework keeps next to the tensors and looks for
// when it loads them.
#ifndef RESHARD_CHECKPOINT_SIDE_FILES_H_
#define RESHARD_CHECKPOINT_SIDE_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard {

// Which files beside a checkpoint belong to it. Those that frameworks are known to look for do: Megatron's `common.pt`
// and `metadata.json`, Lightning's `meta.pt`, the configurations, tokenizers, processors and chat templates of Hugging
// Face models (docs/design/checkpoints.md has the list).
struct AuxiliaryFileTerms {
  std::vector<std::string> also = {};  // patterns of paths (MatchesPattern) of others that do
  bool none = false;                   // none does
  bool may_match_nothing = false;      // it is not an error if one of `also` matches nothing that lies there
  bool beside_file = false;            // what lies beside a single file belongs to it if a `config.json` or an
                                       // `adapter_config.json` does
};

// A file beside a checkpoint. It is copied as it is, without being interpreted.
struct AuxiliaryFile {
  std::string path;      // relative to the checkpoint's directory, with '/' between its parts
  int64_t bytes = 0;     // its size
  int64_t modified = 0;  // time of the last modification, in nanoseconds since 1970
  std::string to;        // where it goes, relative to the result's directory: `path`, except for those that verl keeps
                         // in `huggingface/`, which go where a Hugging Face model has them
  bool may_run = false;  // a pickle or Python source: loading it runs what is in it
};

struct AuxiliaryFiles {
  std::vector<AuxiliaryFile> carried;  // by path
  std::vector<std::string> left;  // paths of all else that lies there, sorted; a directory that was not entered as "a/"
};

// What lies in the directory of the checkpoint at `path`, besides the files that the catalog was read from. If `path`
// is a file, `left` is empty, and nothing is carried unless the terms say `beside_file`: what is in its directory need
// not belong to it. Subdirectories are then not entered.
//
// Never carried, whatever the terms say: files with tensors or their index in any format, and what this library writes
// itself; what is not a regular file; links, except for those of a hub's cache, which lead from a snapshot to `blobs`
// beside all snapshots. Not entered: links, and directories where nothing is looked for, whose names begin with a dot,
// that hold a checkpoint of their own, that are nested deeper than 8 levels, or that come after the first 10,000
// entries. InvalidArgument: a pattern of `also` matches neither what is carried nor what is left. Errors of the system.
absl::StatusOr<AuxiliaryFiles> FindAuxiliaryFiles(const std::string& path, const Catalog& catalog,
                                                  const AuxiliaryFileTerms& terms = {});

// The names that these had before 0.3.
using SideFile [[deprecated("AuxiliaryFile")]] = AuxiliaryFile;
using SideFiles [[deprecated("AuxiliaryFiles")]] = AuxiliaryFiles;
using SideFileTerms [[deprecated("AuxiliaryFileTerms")]] = AuxiliaryFileTerms;
[[deprecated("FindAuxiliaryFiles")]] inline absl::StatusOr<AuxiliaryFiles> FindSideFiles(
    const std::string& path, const Catalog& catalog, const AuxiliaryFileTerms& terms = {}) {
  return FindAuxiliaryFiles(path, catalog, terms);
}

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_SIDE_FILES_H_
