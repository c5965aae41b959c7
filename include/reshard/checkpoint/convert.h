// Rewrites a checkpoint in another layout or format without loading it: pieces of every tensor are read, assembled and
// written, a few at a time.
//
// The source is only read. The result appears atomically and complete, or not at all (docs/design/checkpoints.md says
// how). What is at the destination is not touched unless `overwrite` allows it to be replaced.
#ifndef RESHARD_CHECKPOINT_CONVERT_H_
#define RESHARD_CHECKPOINT_CONVERT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/error.h"
#include "reshard/checkpoint/progress.h"
#include "reshard/checkpoint/recipe.h"
#include "reshard/checkpoint/rules.h"
#include "reshard/checkpoint/selection.h"
#include "reshard/checkpoint/side_files.h"
#include "reshard/checkpoint/wrappers.h"
#include "reshard/layout/dtype.h"

namespace reshard {

// At most this many processes share a conversion.
inline constexpr int64_t kMaxConvertWorkers = 4096;

// How to convert.
struct ConvertOptions {
  CheckpointFormat format = CheckpointFormat::kDcp;  // of the result
  // In bytes, for buffers, the catalog and the new metadata together.
  int64_t memory_limit = int64_t{1} << 30;
  int threads = 0;         // 0: one per core
  bool overwrite = false;  // whether something at the destination may be replaced
  // Discards what an interrupted run of the same job wrote. Without it the job continues where that run stopped: what
  // was written is read and compared first.
  bool restart = false;
  // A destination that this same job already completed is a success instead of AlreadyExists: for jobs that a
  // scheduler may restart.
  bool resume = false;
  // Reads the result and compares it with the source before it is moved to the destination.
  bool verify = false;
  bool ignore_sidecar = false;  // does not read the source's reshard.json
  // Several processes may share one job, on one machine or on many that share the filesystems of source and destination
  // (with flock locks that all of them see). Each calls Convert with the same arguments except `worker`, in any order
  // and at any time. Each writes its share of the bytes; the last one to finish moves the result to the destination,
  // and the others wait for that. Workers continue from what exists, also from what a different number of workers left
  // behind, once none of those is alive; a result that is complete is a success, as with `resume`.
  int64_t workers = 1;
  int64_t worker = 0;  // which of them this one is, 0 .. workers-1
  // Stall timeout: how long a worker that is done waits while none of the others makes progress.
  absl::Duration stall_timeout = absl::Minutes(10);
  // safetensors: at most this many bytes of tensors in one file, unless a single tensor has more; in a store, in one
  // object, also for DCP. 0: 5 GiB, in a store 1 GiB. Orbax: at most this many bytes in a chunk, as far as the divisors
  // of its dimensions allow; 0: 64 MiB.
  int64_t file_bytes = 0;
  // safetensors: an index even for a single file, as some readers of Hugging Face models require.
  bool always_index = false;
  bool unwrap = false;  // names are first reduced to those of the bare model (reshard/checkpoint/wrappers.h)
  // The result's reshard.json records whether it was made of weights alone, and what was taken off names: a comparison
  // of source and result then does the same.
  bool record_made = false;
  Recipe recipe;                  // what of the source is taken, and what is made of it; its layouts are ignored
  AuxiliaryFileTerms side_files;  // which files beside the source belong to it, and are copied
  CatalogLimits limits;           // on the source's metadata
  // Called about five times per second from one of the worker threads; may be empty.
  std::function<void(const ConvertProgress&)> progress;
  // Called once, before anything is written, if a single worker continues an interrupted run: with the directory that
  // run wrote to, and the bytes that it takes on disk.
  std::function<void(const std::string& stage, int64_t bytes)> continuing;
  // Ends the run soon after a stop is requested: Cancelled, an error of kind kSystem; the same call then continues.
  std::stop_token stop;
};

// A tensor of a result that is not written yet.
struct PlannedTensor {
  std::string name;
  std::string from;  // the name of the stored tensor that it is, or what it is made of
  DType dtype = DType::kU8;
  std::vector<int64_t> shape;  // in elements
  int64_t bytes = 0;
  std::string layout;  // as text; empty where the format has none
};

// What a conversion did, or would do; for all workers together unless it says otherwise.
struct ConvertSummary {
  int64_t tensors = 0;        // number of tensors written
  int64_t byte_items = 0;     // number of byte items written
  int64_t pieces = 0;         // number of boxes and items that they are written in
  int64_t bytes = 0;          // of contents
  int64_t own_pieces = 0;     // this worker's share of `pieces`
  int64_t own_bytes = 0;      // this worker's share of `bytes`
  int64_t files = 0;          // number of files of the result, without auxiliary files
  int64_t disk_bytes = 0;     // size of all these files and of the auxiliary files
  int64_t free_bytes = 0;     // free on the destination's filesystem, before; 2^63 - 1 in a store
  int64_t staged_bytes = 0;   // that an interrupted run of this job takes there: they are reused or freed
  int64_t memory_bytes = 0;   // planned for this process; at most the limit
  int64_t read_bytes = 0;     // that this worker read from the source's files of contents
  int64_t kept_bytes = 0;     // of this worker's share, kept from an interrupted run
  double seconds = 0.0;       // wall-clock time of this worker, waiting included
  bool was_complete = false;  // an earlier run had completed it: there was nothing left to do
  bool committed = false;     // this worker moved the result to the destination
  // What the target format cannot represent, as "name: reason". Never a tensor: an unrepresentable one is an error.
  std::vector<std::string> left_out;
  std::vector<std::string> left_out_items;  // names of the byte items that it cannot
  std::vector<LeftOut> not_selected;        // what the selection leaves in the source
  // Attributes of the source that describe its files, and that the result has no use for.
  std::vector<std::string> dropped_attributes;
  std::vector<AuxiliaryFile> side_files;  // copied from beside the source
  // Tensors that a recipe uses only in part, as "name: 6 of 8 elements are used".
  std::vector<std::string> partly_used;
  // Names of quantized tensors that have scales beside them, but whose values the result does not scale: they are cast
  // unscaled, or stay as they are because the requested dtype applies only to wider floats.
  std::vector<std::string> cast_unscaled, left_quantized;
  // Where the model's configuration, one of `side_files`, contradicts the tensors: one sentence each.
  std::vector<std::string> contradictions;
  std::vector<std::string> left_beside;  // paths of what else lies beside the source
  std::vector<Wrapper> taken_off;        // off names, with ConvertOptions::unwrap
  // With ConvertOptions::unwrap, where no configuration is copied that would say what the names should be: the first
  // names of the result.
  std::vector<std::string> first_names;
  std::vector<std::string> warnings;   // what the next program will probably reject: one sentence each
  std::vector<PlannedTensor> planned;  // PlanConversion only: all tensors, in the order of the source

  // Bytes that have to be free for the result.
  int64_t needed_bytes() const { return disk_bytes - staged_bytes; }
};

// Whether layout rules say how a checkpoint of that format is cut, and it cannot be written without them.
bool NeedsLayoutRules(CheckpointFormat format);
// Whether layout rules say how a checkpoint of that format is cut; otherwise it has every tensor whole.
bool TakesLayoutRules(CheckpointFormat format);

// Sets the options that --to NAME means: a format, or "hf", which is safetensors as Hugging Face's loaders take them:
// the weights alone, without what wrappers added to names, with an index even for one file, and with the files beside a
// source that is one file. All other options stay. False: NAME is neither.
bool SetTarget(std::string_view name, ConvertOptions* options);

// What Convert would do with these arguments, and whether it could: reads the source's metadata and writes nothing.
// Errors as Convert, except those of writing.
absl::StatusOr<ConvertSummary> PlanConversion(const std::string& source, const std::string& destination,
                                              const std::optional<LayoutRules>& rules, const ConvertOptions& options);

// Converts the checkpoint at `source`. `rules` say how tensors are sharded; safetensors stores each tensor whole, and
// needs none.
// InvalidArgument: a tensor that the format cannot hold, before anything is written. AlreadyExists: something is at the
// destination. ResourceExhausted: the memory limit (with the bytes needed and allowed), or the disk is full. DataLoss:
// the source is damaged. FailedPrecondition: another live process does the same job, or the source was modified
// meanwhile. DeadlineExceeded: no progress for `stall_timeout`; the message says which workers are missing, and what
// was written stays. Otherwise as ReadCatalog and LayoutRules::LayoutFor. After an error the destination is as it was.
// What was written so far is kept beside it, so that the same call can continue, if the error is of kind kSystem or
// kPeer, and removed otherwise.
absl::StatusOr<ConvertSummary> Convert(const std::string& source, const std::string& destination,
                                       const std::optional<LayoutRules>& rules, const ConvertOptions& options);

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_CONVERT_H_
