// Where everything goes: the files of a checkpoint to be written, and every piece of contents in them, decided before
// the first byte is read. The same input gives the same plan, so that an interrupted job finds its pieces again.
#ifndef RESHARD_CHECKPOINT_OUTPUT_OUTPUT_PLAN_H_
#define RESHARD_CHECKPOINT_OUTPUT_OUTPUT_PLAN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/catalog/boxes.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/layout/layout.h"

namespace reshard::output {

class OutputFormat;

class OutputPlan {
 public:
  struct File {
    std::string name;
    int64_t bytes = 0;
    std::string head;  // its first bytes: the header of a safetensors file
  };

  // A box of a tensor, or a whole byte item.
  struct OutputPiece {
    int64_t tensor = -1;  // index in the catalog; -1: a byte item
    int64_t item = -1;    // index in the catalog
    int64_t first_box = 0;
    Catalog::FileRange place;  // DCP: the stream; otherwise the contents themselves
    int64_t payload_at = 0;    // the contents, in the file
    int64_t payload_bytes = 0;
  };

  // `source` outlives the plan. InvalidArgument: a tensor that no rule fits, or that the
  // format cannot hold. ResourceExhausted: more boxes than fit.
  // DataLoss or Unimplemented: what the format refuses.
  static absl::StatusOr<OutputPlan> Make(const Catalog& source, std::unique_ptr<OutputFormat> format);

  const Catalog& source() const { return *source_; }
  const OutputFormat& format() const { return *format_; }
  const std::vector<File>& files() const { return files_; }
  std::vector<std::string> FileNames() const;  // by file
  // Tensor by tensor in the order of the catalog, boxes ascending; byte items first.
  const std::vector<OutputPiece>& pieces() const { return pieces_; }
  absl::Span<const int64_t> offset(const OutputPiece& piece) const;
  absl::Span<const int64_t> size(const OutputPiece& piece) const;
  // The layout of every tensor that is written, and its mesh, as text; empty where none was asked for.
  const std::vector<std::string>& layouts() const { return layouts_; }
  const std::vector<std::string>& meshes() const { return meshes_; }
  const std::vector<std::string>& left_out() const { return left_out_; }
  const std::vector<std::string>& left_out_items() const { return left_out_items_; }  // names
  int64_t bytes() const { return bytes_; }                                            // of contents
  int64_t disk_bytes() const;                                                         // of files
  int64_t MemoryBytes() const;                                                        // that this plan takes

  // Gives a file another name than the format did. Call it before headers are made.
  void NameFile(int32_t file, std::string name);

  // For OutputFormat::Plan.
  int32_t AddFile(File file);                  // its index
  void GrowFile(int32_t file, int64_t bytes);  // to so many in all
  void AddItem(const OutputPiece& piece);
  // The box of piece.tensor, in elements; payload_bytes follow from it.
  void AddBox(OutputPiece piece, absl::Span<const int64_t> offset, absl::Span<const int64_t> size);
  // A box of a tensor whose elements lie in `file` from `at` on, dense and row-major, in pieces of at most `most`
  // bytes.
  void AddDense(int64_t tensor, int32_t file, int64_t at, const catalog::StoredBox& box, int64_t most);
  void SetLayout(int64_t tensor, const Layout& layout);
  // For what the format cannot hold, and what is not a tensor. Byte items are many, and are all left out for one
  // reason.
  void LeaveOut(std::string_view name, std::string_view reason);
  void LeaveOutItem(std::string_view name);
  // For a tensor that the format cannot hold. Nothing is written then: Make returns an error that names it.
  void Refuse(std::string_view tensor, std::string_view reason);

 private:
  explicit OutputPlan(const Catalog& source);

  const Catalog* source_ = nullptr;
  std::shared_ptr<const OutputFormat> format_;
  std::vector<File> files_;
  std::vector<OutputPiece> pieces_;
  std::vector<int64_t> boxes_;
  std::vector<std::string> layouts_;  // by tensor of the catalog
  std::vector<std::string> meshes_;   // the same
  std::vector<std::string> left_out_;
  std::vector<std::string> left_out_items_;
  std::string refused_;  // the first one, and why
  int64_t num_refused_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace reshard::output

#endif  // RESHARD_CHECKPOINT_OUTPUT_OUTPUT_PLAN_H_
