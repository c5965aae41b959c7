// Where everything goes: the files of a checkpoint to be written, and every piece of contents in them, decided before
// the first byte is read. The same input gives the same plan, so that an interrupted job finds its pieces again.
#ifndef RESHARD_CHECKPOINT_OUTPUT_OUTPUT_PLAN_H_
#define RESHARD_CHECKPOINT_OUTPUT_OUTPUT_PLAN_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/rules.h"

namespace reshard::output {

class OutputPlan {
 public:
  struct File {
    std::string name;
    int64_t bytes = 0;
    std::string head;  // its first bytes: the header of a safetensors file
  };

  // A box of a tensor, or a whole byte item.
  struct Piece {
    int64_t tensor = -1;  // index in the catalog; -1: a byte item
    int64_t item = -1;    // index in the catalog
    int64_t first_box = 0;
    Catalog::Place place;    // DCP: the stream; otherwise the contents themselves
    int64_t payload_at = 0;  // the contents, in the file
    int64_t payload_bytes = 0;
  };

  // Who stores what in a DCP checkpoint: the layout of a tensor, and the device that stores a byte item.
  struct Placing {
    std::function<absl::StatusOr<Layout>(const Catalog::Tensor&)> layout_of;
    std::function<int64_t(int64_t item)> device_of;
  };

  // InvalidArgument: a tensor that no rule fits. ResourceExhausted: more boxes than fit. DataLoss or Unimplemented:
  // what the format refuses. `rules` are needed for DCP.
  static absl::StatusOr<OutputPlan> Make(const Catalog& source, CheckpointFormat format,
                                         const std::optional<LayoutRules>& rules, int64_t file_bytes);
  // DCP, by something else than rules. Errors as above, and what `layout_of` reports.
  static absl::StatusOr<OutputPlan> MakeDcp(const Catalog& source, const Placing& placing);

  const std::vector<File>& files() const { return files_; }
  // Tensor by tensor in the order of the catalog, boxes ascending; byte items first.
  const std::vector<Piece>& pieces() const { return pieces_; }
  absl::Span<const int64_t> offset(const Piece& piece) const;
  absl::Span<const int64_t> size(const Piece& piece) const;
  // The layout of every tensor that is written, and its mesh, as text; empty where none was asked for.
  const std::vector<std::string>& layouts() const { return layouts_; }
  const std::vector<std::string>& meshes() const { return meshes_; }
  const std::vector<std::string>& left_out() const { return left_out_; }
  int64_t bytes() const { return bytes_; }  // of contents
  int64_t disk_bytes() const;               // of files
  int64_t MemoryBytes() const;              // that this plan takes

  // The files that say what is where, to be written when all pieces are: name and bytes. DCP's `.metadata`, the index
  // of several safetensors files.
  absl::StatusOr<std::vector<std::pair<std::string, std::string>>> Headers(const std::string& id) const;

 private:
  OutputPlan(const Catalog& source, CheckpointFormat format);
  absl::Status PlanDcp(const Placing& placing);
  absl::Status PlanSafetensors(int64_t file_bytes);
  void LeaveOut(std::string_view name, std::string_view reason);
  void AddPiece(int64_t tensor, absl::Span<const int64_t> offset, absl::Span<const int64_t> size, Piece piece);

  const Catalog* source_ = nullptr;
  CheckpointFormat format_ = CheckpointFormat::kDcp;
  std::vector<File> files_;
  std::vector<Piece> pieces_;
  std::vector<int64_t> boxes_;
  std::vector<std::string> layouts_;  // by tensor of the catalog
  std::vector<std::string> meshes_;   // the same
  std::vector<std::string> left_out_;
  std::vector<std::pair<std::string, std::string>> index_;  // safetensors: tensor and file
  int64_t bytes_ = 0;
};

}  // namespace reshard::output

#endif  // RESHARD_CHECKPOINT_OUTPUT_OUTPUT_PLAN_H_
