// Writes a file or an object of streams, such as the `.distcp` files of PyTorch's distributed checkpoints: one after
// the other, each what torch.save writes for one tensor, or the bytes of one value.
#ifndef RESHARD_CHECKPOINT_LIVE_STREAM_FILE_H_
#define RESHARD_CHECKPOINT_LIVE_STREAM_FILE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "checkpoint/formats/zip/stored_archive.h"
#include "checkpoint/hash/content_sums.h"
#include "checkpoint/hash/hash.h"
#include "reshard/layout/dtype.h"

namespace reshard::live {

// Where a stream is.
struct Stream {
  int64_t at = 0;          // bytes from the start of the file
  int64_t length = 0;      // bytes
  hash::ContentHash hash;  // of the elements of the tensor, dense and row-major, or of the value's bytes
};

class StreamFile {
 public:
  // Where bytes go.
  class Target;

  ~StreamFile();
  // Creates a file. AlreadyExists: something has that name. Errors of the system as io/files.h.
  // At a URL: `lengths` are those of all streams that will be added. A stream stays in memory until its End, since its
  // checksums are written before it. The object appears with Finish, and replaces one of that name. Errors of
  // stores::DestinationAt and of the store.
  static absl::StatusOr<std::unique_ptr<StreamFile>> Create(const std::string& path,
                                                            absl::Span<const int64_t> lengths = {});

  // Length in bytes of the stream of such a tensor; -1 if Begin refuses it.
  static int64_t StreamBytes(DType dtype, absl::Span<const int64_t> shape);
  // Adds a tensor in pieces, so that no rank needs all of it in memory: Begin, then Append with its elements in
  // row-major order, dense, then End. InvalidArgument: Begin before the previous stream's End; more bytes than a stream
  // can have (4 GiB less a little); Append or End that does not fit what was begun.
  absl::Status Begin(DType dtype, absl::Span<const int64_t> shape);
  absl::Status Append(std::string_view bytes);
  absl::StatusOr<Stream> End();
  // Adds a value that is already bytes.
  absl::StatusOr<Stream> AddBytes(std::string_view bytes);

  // Ends the file: nothing is added after this. With `sync`, everything is on the disk.
  absl::Status Finish(bool sync);

 private:
  explicit StreamFile(std::unique_ptr<Target> target);

  const std::unique_ptr<Target> target_;
  int64_t end_ = 0;  // of what is complete
  // Of the tensor that was begun.
  std::optional<zip::StoredArchive> frame_;
  int64_t payload_ = 0;  // bytes of its elements
  int64_t done_ = 0;     // of these
  std::optional<hash::ContentSums> sums_;
};

}  // namespace reshard::live

#endif  // RESHARD_CHECKPOINT_LIVE_STREAM_FILE_H_
