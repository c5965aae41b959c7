#include "checkpoint/source/read_box.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/io/show.h"
#include "reshard/layout/checked.h"
#include "status/macros.h"

namespace reshard::source {
namespace {

// One dimension of the box: strides in bytes.
struct Axis {
  int64_t size = 1;
  int64_t from = 0;
  int64_t to = 0;
};

template <size_t kBytes>
void CopyRow(const Axis& axis, const char* from, char* to) {
  for (int64_t i = 0; i < axis.size; ++i, from += axis.from, to += axis.to) std::memcpy(to, from, kBytes);
}

void CopyRow(const Axis& axis, int64_t element, const char* from, char* to) {
  if (axis.from == element && axis.to == element) {
    std::memcpy(to, from, static_cast<size_t>(axis.size * element));
  } else if (element == 1) {
    CopyRow<1>(axis, from, to);
  } else if (element == 2) {
    CopyRow<2>(axis, from, to);
  } else if (element == 4) {
    CopyRow<4>(axis, from, to);
  } else if (element == 8) {
    CopyRow<8>(axis, from, to);
  } else {
    CopyRow<16>(axis, from, to);
  }
}

// Calls at(from, to) with the byte distances of every index of `axes`; stops at the first error.
template <typename F>
absl::Status ForEachIndex(absl::Span<const Axis> axes, const F& at) {
  std::vector<int64_t> index(axes.size(), 0);
  int64_t from = 0;
  int64_t to = 0;
  while (true) {
    RETURN_IF_ERROR(at(from, to));
    size_t d = axes.size();
    while (d > 0) {
      --d;
      from += axes[d].from;
      to += axes[d].to;
      if (++index[d] < axes[d].size) break;
      from -= axes[d].from * axes[d].size;
      to -= axes[d].to * axes[d].size;
      index[d] = 0;
      if (d == 0) return absl::OkStatus();
    }
    if (axes.empty()) return absl::OkStatus();
  }
}

void CopyBlock(absl::Span<const Axis> axes, int64_t element, const char* from, char* to) {
  const absl::Span<const Axis> outer = axes.first(axes.size() - 1);
  (void)ForEachIndex(outer, [&](int64_t f, int64_t t) {
    CopyRow(axes.back(), element, from + f, to + t);
    return absl::OkStatus();
  });
}

// Changes the sign of every second float (the imaginary parts) or of all.
void FlipSigns(int64_t float_bytes, bool real, bool imaginary, bool is_complex, absl::Span<char> out) {
  size_t i = 0;
  for (size_t at = 0; at < out.size(); at += static_cast<size_t>(float_bytes), ++i) {
    const bool flip = is_complex && i % 2 == 1 ? imaginary : real;
    if (flip) out[at + static_cast<size_t>(float_bytes) - 1] ^= static_cast<char>(0x80);
  }
}

class BoxReader {
 public:
  BoxReader(const io::ReadFile& file, int64_t first_at, int64_t element, absl::Span<char> out)
      : file_(file), first_at_(first_at), element_(element), out_(out) {}

  // `axes` in the order of the output.
  absl::Status Read(std::vector<Axis> axes) {
    axes.erase(std::remove_if(axes.begin(), axes.end(), [](const Axis& a) { return a.size == 1; }), axes.end());
    // In the order of the file. Dimensions that repeat the same elements go outside: each repetition is read again.
    std::stable_sort(axes.begin(), axes.end(), [](const Axis& a, const Axis& b) {
      if ((a.from == 0) != (b.from == 0)) return a.from == 0;
      return a.from > b.from;
    });
    Merge(&axes);

    // The innermost dimensions that one call reads, and how many indices of the first of them: a run that goes
    // directly to its place if it is long enough, else what fits the buffer.
    if (axes.empty() || axes.back().from != element_) axes.push_back({1, element_, element_});
    size_t inner = axes.size() - 1;
    const bool direct = axes[inner].to == element_;
    int64_t piece = direct ? axes[inner].size : std::min(axes[inner].size, file_.most() / element_);
    int64_t extent = piece * element_;
    while (inner > 0 && piece == axes[inner].size && !(direct && extent >= file_.gap())) {
      const Axis& outer = axes[inner - 1];
      if (outer.from == 0 || outer.from - extent > file_.gap()) break;
      const int64_t fit = std::min(outer.size, 1 + std::max<int64_t>(file_.most() - extent, 0) / outer.from);
      if (fit == 1) break;
      --inner;
      piece = fit;
      extent += (fit - 1) * outer.from;
    }
    const absl::Span<const Axis> all(axes);
    return ForEachIndex(all.first(inner),
                        [&](int64_t from, int64_t to) { return ReadBlocks(all.subspan(inner), piece, from, to); });
  }

 private:
  // Joins neighbors that are one run in the file and in the output.
  void Merge(std::vector<Axis>* axes) const {
    for (size_t d = axes->size(); d-- > 1;) {
      Axis& outer = (*axes)[d - 1];
      const Axis& here = (*axes)[d];
      if (outer.from != here.from * here.size || outer.to != here.to * here.size || here.from == 0) continue;
      outer = {outer.size * here.size, here.from, here.to};
      axes->erase(axes->begin() + static_cast<ptrdiff_t>(d));
    }
  }

  // The block of `axes`, `piece` indices of the first of them at a time.
  absl::Status ReadBlocks(absl::Span<const Axis> axes, int64_t piece, int64_t from, int64_t to) {
    std::vector<Axis> block(axes.begin(), axes.end());
    for (int64_t i = 0; i < axes[0].size; i += piece) {
      block[0].size = std::min(piece, axes[0].size - i);
      const int64_t at = first_at_ + from + i * axes[0].from;
      char* const target = out_.data() + to + i * axes[0].to;
      int64_t extent = element_;
      for (const Axis& axis : block) extent += (axis.size - 1) * axis.from;
      absl::Status read;
      if (block.size() == 1 && block[0].from == element_ && block[0].to == element_) {
        read = file_.ReadAt(at, {target, static_cast<size_t>(extent)});
      } else {
        buffer_.resize(extent);
        read = file_.ReadAt(at, absl::MakeSpan(buffer_));
        if (read.ok()) CopyBlock(block, element_, buffer_.data(), target);
      }
      if (!read.ok()) return read;
    }
    return absl::OkStatus();
  }

  const io::ReadFile& file_;
  const int64_t first_at_;
  const int64_t element_;
  const absl::Span<char> out_;
  std::vector<char> buffer_;
};

}  // namespace

absl::Status ReadBox(const io::ReadFile& file, const catalog::StoredElements& chunk, absl::Span<const int64_t> offset,
                     absl::Span<const int64_t> size, absl::Span<char> out) {
  const size_t rank = chunk.shape.size();
  bool inside = offset.size() == rank && size.size() == rank;
  for (size_t d = 0; inside && d < rank; ++d) {
    inside = offset[d] >= 0 && size[d] >= 0 && offset[d] <= chunk.shape[d] && size[d] <= chunk.shape[d] - offset[d];
  }
  if (!inside) {
    return absl::InvalidArgumentError(absl::StrCat("the box at ", io::Shown(offset), " of size ", io::Shown(size),
                                                   " is not part of a chunk of ", io::Shown(chunk.shape)));
  }
  const int64_t element = SizeOf(chunk.dtype);
  int64_t first_at = chunk.first_at;
  int64_t bytes = element;  // the chunk's bytes fit an int64, so do those of a part
  std::vector<Axis> axes(rank);
  for (size_t d = rank; d-- > 0;) {
    axes[d] = {size[d], chunk.strides[d] * element, bytes};
    bytes *= size[d];
    if (bytes == 0) break;
    first_at += offset[d] * chunk.strides[d] * element;
  }
  if (bytes != static_cast<int64_t>(out.size())) {
    return absl::InvalidArgumentError(absl::StrCat("a box of ", bytes, " bytes for ", out.size()));
  }
  if (bytes == 0) return absl::OkStatus();
  RETURN_IF_ERROR(BoxReader(file, first_at, element, out).Read(std::move(axes)));
  if (chunk.conjugated || chunk.negated) {
    const bool is_complex = chunk.dtype == DType::kC32 || chunk.dtype == DType::kC64 || chunk.dtype == DType::kC128;
    FlipSigns(is_complex ? element / 2 : element, chunk.negated, chunk.conjugated != chunk.negated, is_complex, out);
  }
  return absl::OkStatus();
}

}  // namespace reshard::source
