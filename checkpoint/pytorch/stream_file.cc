// torch.classes.reshard.StreamFile and torch.ops.reshard._replace_metadata: what reshard.dcp.StorageWriter writes.
#include "checkpoint/live/stream_file.h"

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "checkpoint/live/replace_metadata.h"
#include "checkpoint/pytorch/stored_checkpoint.h"
#include "runtime/groups/scalar_types.h"
#include "runtime/pytorch/tensors.h"
#include "status/macros.h"
#include "status/no_throw.h"

namespace reshard::pytorch {
namespace {

using TextList = c10::List<std::string>;

// The memory of a dense host tensor.
absl::StatusOr<std::string_view> BytesOf(const at::Tensor& tensor) {
  RETURN_IF_ERROR(CheckTensor(tensor, at::kCPU));
  if (!tensor.is_contiguous()) return absl::InvalidArgumentError("a piece of a stream is not contiguous");
  return std::string_view(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
}

// live::StreamFile for Python. Each call returns an error of the system as JSON, or an empty text. last() has the place
// and the hash of the stream that was completed last.
class TorchStreamFile : public ::torch::CustomClassHolder {
 public:
  TorchStreamFile(const std::string& path, const std::vector<int64_t>& lengths) {
    error_ = ThrowOrTell(status::NoThrow("writing a checkpoint", [&]() -> absl::Status {
      ASSIGN_OR_RETURN(file_, live::StreamFile::Create(path, lengths));
      return absl::OkStatus();
    }));
  }

  std::string Begin(const at::Tensor& like, const std::vector<int64_t>& shape) {
    return Do([&]() -> absl::Status {
      ASSIGN_OR_RETURN(const DType dtype, groups::DTypeOf(like.scalar_type()));
      return file_->Begin(dtype, shape);
    });
  }
  std::string Append(const at::Tensor& piece) {
    return Do([&]() -> absl::Status {
      ASSIGN_OR_RETURN(const std::string_view bytes, BytesOf(piece));
      return file_->Append(bytes);
    });
  }
  std::string End() {
    return Do([&]() -> absl::Status {
      ASSIGN_OR_RETURN(last_, file_->End());
      return absl::OkStatus();
    });
  }
  std::string AddBytes(const at::Tensor& bytes) {
    return Do([&]() -> absl::Status {
      ASSIGN_OR_RETURN(const std::string_view text, BytesOf(bytes));
      ASSIGN_OR_RETURN(last_, file_->AddBytes(text));
      return absl::OkStatus();
    });
  }
  std::string Finish(bool sync) {
    return Do([&] { return file_->Finish(sync); });
  }

  std::tuple<int64_t, int64_t, std::string> last() const { return {last_.at, last_.length, last_.hash.ToText()}; }

 private:
  template <typename Step>
  std::string Do(const Step& step) {
    if (file_ == nullptr) return error_;
    return ThrowOrTell(status::NoThrow("writing a checkpoint", step));
  }

  std::unique_ptr<live::StreamFile> file_;
  live::Stream last_;
  std::string error_;
};

int64_t StreamBytesOp(const at::Tensor& like, at::IntArrayRef shape) {
  const absl::StatusOr<DType> dtype = groups::DTypeOf(like.scalar_type());
  return dtype.ok() ? live::StreamFile::StreamBytes(*dtype, {shape.data(), shape.size()}) : -1;
}

std::string ReplaceMetadataOp(c10::string_view directory, const at::Tensor& bytes, int64_t rank, const TextList& files,
                              const TextList& chunk_files, at::IntArrayRef chunk_offsets, at::IntArrayRef chunk_lengths,
                              const TextList& hashes) {
  return ThrowOrTell(status::NoThrow("writing a checkpoint", [&]() -> absl::Status {
    live::NewMetadata metadata;
    ASSIGN_OR_RETURN(const std::string_view text, BytesOf(bytes));
    metadata.bytes = std::string(text);
    metadata.rank = rank;
    metadata.files = files.vec();
    if (chunk_offsets.size() != chunk_files.size() || chunk_lengths.size() != chunk_files.size() ||
        hashes.size() != chunk_files.size()) {
      return absl::InvalidArgumentError("lists of chunks differ in length");
    }
    for (size_t i = 0; i < chunk_files.size(); ++i) {
      hash::ContentHash hash;
      if (!hash::ContentHash::FromText(hashes.get(i), &hash)) return absl::InvalidArgumentError("a bad hash");
      metadata.chunks.push_back({chunk_files.get(i), chunk_offsets[i], chunk_lengths[i], hash});
    }
    return live::ReplaceMetadata(std::string(directory), metadata);
  }));
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(reshard, library) {
  library.class_<TorchStreamFile>("StreamFile")
      .def(::torch::init<const std::string&, const std::vector<int64_t>&>())
      .def("begin", &TorchStreamFile::Begin)
      .def("append", &TorchStreamFile::Append)
      .def("end", &TorchStreamFile::End)
      .def("add_bytes", &TorchStreamFile::AddBytes)
      .def("finish", &TorchStreamFile::Finish)
      .def("last", &TorchStreamFile::last);
  library.def("_stream_bytes(Tensor like, int[] shape) -> int", StreamBytesOp);
  library.def(
      "_replace_metadata(str directory, Tensor bytes, int rank, str[] files, str[] chunk_files, int[] chunk_offsets, "
      "int[] chunk_lengths, str[] hashes) -> str",
      ReplaceMetadataOp);
}

}  // namespace reshard::pytorch
