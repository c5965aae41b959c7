// How a format writes a checkpoint: what goes into which file, what stands around a piece of contents, and the files
// that say what is where. Each format that can be written has one, and a line in output_formats.cc.
#ifndef RESHARD_CHECKPOINT_OUTPUT_OUTPUT_FORMAT_H_
#define RESHARD_CHECKPOINT_OUTPUT_OUTPUT_FORMAT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/output/output_plan.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/rules.h"

namespace reshard::output {

class OutputFormat {
 public:
  // Name and bytes of a file.
  using NamedBytes = std::pair<std::string, std::string>;
  // What stands in a file before and after the payload of a piece.
  struct Frame {
    std::string before;
    std::string after;
  };

  virtual ~OutputFormat() = default;

  // Adds the files and pieces of plan->source() to a plan that has none. Called once. Errors as OutputPlan::Make.
  virtual absl::Status Plan(OutputPlan* plan) = 0;
  // The files that say what is where, for a plan that this object made. `id` names the checkpoint.
  virtual absl::StatusOr<std::vector<NamedBytes>> Headers(const OutputPlan& plan, const std::string& id) const = 0;
  // Names of all headers but the last, which makes what is there a checkpoint.
  virtual std::vector<std::string> HeadersBeforeLast() const { return {}; }
  // Whether a header's hash goes into the sidecar, so that it is compared when the checkpoint is opened.
  virtual bool IsHashed(std::string_view header) const;
  // The frame of a piece whose payload has that CRC-32. Both are empty where the contents stand alone.
  virtual absl::StatusOr<Frame> FrameOf(const OutputPlan& plan, const OutputPlan::OutputPiece& piece,
                                        uint32_t crc) const;
};

// How safetensors files are written.
struct SafetensorsTerms {
  int64_t file_bytes = 0;      // most bytes of tensors in one file, unless a single tensor has more
  bool always_index = false;   // an index even of a single file
  std::string stem = "model";  // what files and index are called: "model.safetensors", ...
  bool one_file = false;       // one file, however many bytes it has, and no index: its loader knows no other form
};

// How objects of a store are written: each from its beginning to its end, in the order in which the source is read.
struct ObjectTerms {
  int64_t bytes = 0;  // at which an object ends; 0: these are files, which are written at any place
  // Most bytes of a tensor that lie between the first and the last byte of one row of boxes: that much is put
  // together in memory before the object goes on. A piece has no more.
  int64_t batch_bytes = 0;
  std::string tag;  // a part of the names of objects with contents, so that they are not those of another result
};

// What a user may say about a result.
struct OutputTerms {
  const std::optional<LayoutRules>& rules;
  SafetensorsTerms safetensors;
  int64_t chunk_bytes = 0;  // Orbax: most bytes of a chunk
  ObjectTerms objects = {};
};

// Whether a format cannot be written without layout rules; whether they change what is written.
bool NeedsRules(CheckpointFormat format);
bool TakesRules(CheckpointFormat format);

// InvalidArgument: the format needs layout rules, and there are none; it cannot be written.
absl::StatusOr<std::unique_ptr<OutputFormat>> MakeOutputFormat(CheckpointFormat format, const OutputTerms& terms);

}  // namespace reshard::output

#endif  // RESHARD_CHECKPOINT_OUTPUT_OUTPUT_FORMAT_H_
