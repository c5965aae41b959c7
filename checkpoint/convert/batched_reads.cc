#include "checkpoint/convert/batched_reads.h"

#include <algorithm>

namespace reshard::convert {
namespace {

using OutputPiece = output::OutputPlan::OutputPiece;

// Where chunks of a tensor begin in their slowest dimension, sorted.
std::vector<int64_t> ChunkRowsOf(const Catalog& catalog, const Catalog::Tensor& tensor) {
  std::vector<int64_t> begins;
  if (tensor.shape.empty()) return begins;
  for (int64_t i = 0; i < tensor.num_chunks; ++i) begins.push_back(catalog.chunk(tensor, i).offset[0]);
  std::sort(begins.begin(), begins.end());
  begins.erase(std::unique(begins.begin(), begins.end()), begins.end());
  return begins;
}

// Batches the pieces of one tensor.
class Joiner {
 public:
  Joiner(const output::OutputPlan& plan, const BatchLimits& limits, BatchedReads* reads)
      : plan_(plan), limits_(limits), reads_(*reads) {}

  void Join(absl::Span<const int64_t> pieces) {
    std::vector<int64_t> sorted(pieces.begin(), pieces.end());
    // The last dimension that the tensor is cut in. Later ones are whole, so that sorting by offset brings together
    // what is adjacent in that one.
    size_t dim = 0;
    for (const int64_t number : sorted) {
      const absl::Span<const int64_t> offset = plan_.offset(piece(number));
      for (size_t d = dim + 1; d < offset.size(); ++d) {
        if (offset[d] != 0) dim = d;
      }
    }
    std::sort(sorted.begin(), sorted.end(), [this](int64_t a, int64_t b) {
      const absl::Span<const int64_t> x = plan_.offset(piece(a)), y = plan_.offset(piece(b));
      return std::lexicographical_compare(x.begin(), x.end(), y.begin(), y.end());
    });
    chunk_rows_.clear();
    if (dim == 0 && sorted.size() > 1) {
      const Catalog& source = plan_.source();
      chunk_rows_ = ChunkRowsOf(source, source.tensors()[piece(sorted[0]).tensor]);
    }
    int64_t bytes = 0;
    for (const int64_t number : sorted) {
      const bool joins = bytes > 0 && bytes + piece(number).payload_bytes <= limits_.bytes &&
                         IsBehind(number, reads_.pieces.back(), dim) &&
                         (dim == 0 ? CutsChunk(number) : HasShortRows(number, dim) && HasRoom(reads_.batches.back()));
      if (joins) {
        ++reads_.batches.back().count;
      } else {
        reads_.batches.push_back({reads_.pieces.size(), 1, dim});
        bytes = 0;
      }
      bytes += piece(number).payload_bytes;
      reads_.pieces.push_back(number);
    }
  }

 private:
  const OutputPiece& piece(int64_t number) const { return plan_.pieces()[number]; }

  bool IsBehind(int64_t number, int64_t before, size_t dim) const {
    const absl::Span<const int64_t> offset = plan_.offset(piece(number)), size = plan_.size(piece(number));
    const absl::Span<const int64_t> other = plan_.offset(piece(before)), other_size = plan_.size(piece(before));
    if (offset.empty() || piece(number).payload_bytes == 0) return false;
    for (size_t d = 0; d < offset.size(); ++d) {
      if (d == dim ? offset[d] != other[d] + other_size[d] : offset[d] != other[d] || size[d] != other_size[d]) {
        return false;
      }
    }
    return true;
  }

  bool HasShortRows(int64_t number, size_t dim) const {
    int64_t rows = 1;
    for (size_t d = 0; d < dim; ++d) rows *= plan_.size(piece(number))[d];
    return piece(number).payload_bytes / rows < limits_.long_run;
  }

  bool HasRoom(const BatchedRead& batch) const { return static_cast<int64_t>(batch.count) < limits_.pieces; }

  // Whether the piece begins within a chunk.
  bool CutsChunk(int64_t number) const {
    return !std::binary_search(chunk_rows_.begin(), chunk_rows_.end(), plan_.offset(piece(number))[0]);
  }

  const output::OutputPlan& plan_;
  const BatchLimits limits_;
  BatchedReads& reads_;
  std::vector<int64_t> chunk_rows_;
};

}  // namespace

BatchedReads BatchReads(const output::OutputPlan& plan, absl::Span<const int64_t> pieces, const BatchLimits& limits) {
  BatchedReads reads;
  Joiner joiner(plan, limits, &reads);
  for (size_t i = 0; i < pieces.size();) {
    const auto tensor_of = [&](size_t k) { return plan.pieces()[pieces[k]].tensor; };
    size_t end = i + 1;
    while (end < pieces.size() && tensor_of(i) >= 0 && tensor_of(end) == tensor_of(i)) ++end;
    joiner.Join(pieces.subspan(i, end - i));
    i = end;
  }
  return reads;
}

source::Box BoxOf(const output::OutputPlan& plan, const OutputPiece& piece) {
  const absl::Span<const int64_t> offset = plan.offset(piece), size = plan.size(piece);
  return {{offset.begin(), offset.end()}, {size.begin(), size.end()}};
}

source::Box BoxOf(const output::OutputPlan& plan, const BatchedReads& reads, const BatchedRead& batch) {
  const absl::Span<const int64_t> pieces = reads.PiecesOf(batch);
  source::Box box = BoxOf(plan, plan.pieces()[pieces.front()]);
  const source::Box last = BoxOf(plan, plan.pieces()[pieces.back()]);
  if (pieces.size() > 1) box.size[batch.dim] = last.offset[batch.dim] + last.size[batch.dim] - box.offset[batch.dim];
  return box;
}

}  // namespace reshard::convert
