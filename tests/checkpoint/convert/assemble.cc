#include "tests/checkpoint/convert/assemble.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "checkpoint/formats/torch_save/tensor_stream.h"
#include "checkpoint/io/files.h"
#include "checkpoint/source/read_box.h"

namespace reshard::testing {
namespace {

int64_t Product(absl::Span<const int64_t> sizes) {
  int64_t product = 1;
  for (const int64_t size : sizes) product *= size;
  return product;
}

// Calls at(index) for every index of a box of `size`, in row-major order.
template <typename F>
void ForEachIndex(absl::Span<const int64_t> size, const F& at) {
  const int64_t count = Product(size);
  std::vector<int64_t> index(size.size());
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i;
    for (size_t d = size.size(); d-- > 0;) {
      index[d] = rest % size[d];
      rest /= size[d];
    }
    at(index);
  }
}

int64_t Linear(absl::Span<const int64_t> index, absl::Span<const int64_t> offset, absl::Span<const int64_t> shape) {
  int64_t linear = 0;
  for (size_t d = 0; d < shape.size(); ++d) linear = linear * shape[d] + index[d] + offset[d];
  return linear;
}

}  // namespace

std::string BoxOf(std::string_view dense, absl::Span<const int64_t> shape, int64_t element,
                  absl::Span<const int64_t> offset, absl::Span<const int64_t> size) {
  std::string box;
  ForEachIndex(size, [&](const std::vector<int64_t>& index) {
    box += dense.substr(static_cast<size_t>(Linear(index, offset, shape) * element), static_cast<size_t>(element));
  });
  return box;
}

absl::StatusOr<std::string> ReadTensorBox(const Catalog& catalog, const Catalog::Tensor& tensor,
                                          absl::Span<const int64_t> offset, absl::Span<const int64_t> size) {
  if (!tensor.dtype) return absl::UnimplementedError("dtype");
  const int64_t element = SizeOf(*tensor.dtype);
  const size_t rank = tensor.shape.size();
  std::string out(static_cast<size_t>(Product(size) * element), '\0');
  for (int64_t c = 0; c < tensor.num_chunks; ++c) {
    const Catalog::Chunk chunk = catalog.chunk(tensor, c);
    std::vector<int64_t> begin(rank), in_chunk(rank), part(rank);
    bool common = true;
    for (size_t d = 0; d < rank; ++d) {
      const int64_t first = std::max(offset[d], chunk.offset[d]);
      part[d] = std::min(offset[d] + size[d], chunk.offset[d] + chunk.size[d]) - first;
      in_chunk[d] = first - chunk.offset[d];
      begin[d] = first - offset[d];
      common &= part[d] > 0;
    }
    if (!common) continue;
    const std::string path = io::JoinPath(catalog.root(), catalog.files()[chunk.place.file].path);
    const auto file = io::ReadFile::Open(path);
    if (!file.ok()) return file.status();
    const auto stream = torch_save::FindTensorStream(**file, chunk.place, *tensor.dtype, chunk.size);
    if (!stream.ok()) return stream.status();
    std::string bytes(static_cast<size_t>(Product(part) * element), '\0');
    if (auto read = source::ReadBox(**file, *stream, in_chunk, part, absl::MakeSpan(bytes)); !read.ok()) return read;
    size_t at = 0;
    ForEachIndex(part, [&](const std::vector<int64_t>& index) {
      out.replace(static_cast<size_t>(Linear(index, begin, size) * element), static_cast<size_t>(element), bytes, at,
                  static_cast<size_t>(element));
      at += static_cast<size_t>(element);
    });
  }
  return out;
}

absl::StatusOr<std::string> ReadTensor(const Catalog& catalog, const Catalog::Tensor& tensor) {
  return ReadTensorBox(catalog, tensor, std::vector<int64_t>(tensor.shape.size(), 0), tensor.shape);
}

}  // namespace reshard::testing
