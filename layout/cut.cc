#include "layout/cut.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace reshard::layout {
namespace {

// What one row of a dimension holds, as far as its total length depends on it: how many intervals of each length and
// parity.
struct AlikeIntervals {
  int64_t length;
  bool odd;  // the parity of the interval's number; only kept while a reflected factor is still to come
  int64_t count;
  bool operator==(const AlikeIntervals&) const = default;
  bool operator<(const AlikeIntervals& other) const {
    return std::tie(length, odd, count) < std::tie(other.length, other.odd, other.count);
  }
};
using Pieces = std::vector<AlikeIntervals>;

// Sorted, without empty pieces, equal pieces merged. Empty intervals stay empty, whatever follows.
void Normalize(Pieces& pieces) {
  std::sort(pieces.begin(), pieces.end());
  Pieces out;
  out.reserve(pieces.size());
  for (const AlikeIntervals& piece : pieces) {
    if (piece.length == 0 || piece.count == 0) continue;
    if (!out.empty() && out.back().length == piece.length && out.back().odd == piece.odd) {
      out.back().count += piece.count;
    } else {
      out.push_back(piece);
    }
  }
  pieces = std::move(out);
}

// All chunks of every piece, as an integer digit keeps them.
Pieces CutByDigit(const Pieces& pieces, int64_t parts, bool keep_parity) {
  Pieces out;
  for (const AlikeIntervals& piece : pieces) {
    const int64_t chunk = CeilDiv(piece.length, parts);
    const int64_t full = piece.length / chunk;
    for (const bool chunk_odd : {false, true}) {
      const int64_t chunks = chunk_odd ? full / 2 : CeilDiv(full, 2);
      out.push_back({chunk, keep_parity && OddAfterDigit(piece.odd, parts, chunk_odd ? 1 : 0), piece.count * chunks});
    }
    if (full < parts) {
      out.push_back({piece.length % chunk, keep_parity && OddAfterDigit(piece.odd, parts, full), piece.count});
    }
  }
  Normalize(out);
  return out;
}

// One chunk of every piece, as the coordinate keeps it.
Pieces KeepChunk(const Pieces& pieces, const Factor& factor, int64_t coordinate, bool keep_parity) {
  Pieces out;
  for (const AlikeIntervals& piece : pieces) {
    const bool mirrored = factor.kind == Factor::Kind::kReflected && piece.odd;
    const int64_t length =
        factor.kind == Factor::Kind::kSizes
            ? factor.sizes[coordinate]
            : CeilChunk({0, piece.length}, factor.parts(), mirrored ? factor.parts() - 1 - coordinate : coordinate)
                  .length();
    out.push_back({length, keep_parity && piece.odd, piece.count});
  }
  Normalize(out);
  return out;
}

// Coordinates that stand for all: between two of them every piece keeps a chunk of the same length.
std::vector<int64_t> Representatives(const Pieces& pieces, const Factor& factor) {
  const int64_t parts = factor.parts();
  std::vector<int64_t> out = {0};
  if (factor.kind == Factor::Kind::kSizes) {
    out.resize(parts);
    for (int64_t j = 0; j < parts; ++j) out[j] = j;
    const auto& sizes = factor.sizes;
    std::sort(out.begin(), out.end(), [&](int64_t a, int64_t b) { return sizes[a] < sizes[b]; });
    out.erase(std::unique(out.begin(), out.end(), [&](int64_t a, int64_t b) { return sizes[a] == sizes[b]; }),
              out.end());
    return out;
  }
  for (const AlikeIntervals& piece : pieces) {
    const int64_t full = piece.length / CeilDiv(piece.length, parts);
    const bool mirrored = factor.kind == Factor::Kind::kReflected && piece.odd;
    // Chunks below `full` are whole, chunk `full` is the remainder, those above are empty.
    for (const int64_t j : {full, full + 1}) {
      const int64_t begin = mirrored ? parts - j : j;
      if (begin > 0 && begin < parts) out.push_back(begin);
    }
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace

std::vector<const Factor*> EffectiveFactors(const DimLayout& dim) {
  std::vector<const Factor*> out;
  out.reserve(dim.factors.size());
  size_t end = 0;
  for (const Factor& factor : dim.factors) {
    if (factor.parts() == 1 && factor.kind != Factor::Kind::kSlots) continue;
    out.push_back(&factor);
    if (factor.has_axis()) end = out.size();
  }
  out.resize(end);
  return out;
}

void JoinRuns(std::vector<Interval>& runs) {
  size_t last = 0;
  for (size_t i = 1; i < runs.size(); ++i) {
    if (runs[last].end == runs[i].begin) {
      runs[last].end = runs[i].end;
    } else {
      runs[++last] = runs[i];
    }
  }
  if (!runs.empty()) runs.resize(last + 1);
}

std::string SlotsText(const std::vector<Interval>& runs) {
  std::string out;
  for (const Interval& run : runs) {
    absl::StrAppend(&out, out.empty() ? "" : ",", run.begin);
    if (run.length() > 1) absl::StrAppend(&out, "-", run.end - 1);
  }
  return out;
}

int64_t NumSlots(const std::vector<Interval>& runs) {
  int64_t slots = 0;
  for (const Interval& run : runs) slots += run.length();
  return slots;
}

int64_t LargestShard(const DimLayout& dim) {
  if (const Factor* table = SlotTable(dim)) {
    int64_t most = 0;
    for (const std::vector<Interval>& runs : table->slots) most = std::max(most, NumSlots(runs));
    return most;
  }
  if (dim.cut_before_flattened()) {
    // No factor in front can cut a longer fragment into shorter chunks.
    DimLayout inside{1, dim.factors};
    for (const DimLayout& inner : dim.flattened) inside.size *= LargestShard(inner);
    return LargestShard(inside);
  }
  const auto plain = [](const Factor& factor) { return factor.kind == Factor::Kind::kAxis; };
  if (std::all_of(dim.factors.begin(), dim.factors.end(), plain)) {
    int64_t length = dim.size;
    for (const Factor& factor : dim.factors) length = CeilDiv(length, factor.parts());
    return length;
  }

  // Where everything divides evenly all shards are equally long.
  int64_t even = dim.size;
  int64_t shards = 1;
  for (const Factor& factor : dim.factors) {
    if (factor.kind == Factor::Kind::kSizes || even % factor.parts() != 0) {
      even = -1;
      break;
    }
    even /= factor.parts();
    if (factor.has_axis()) shards *= factor.parts();
  }
  if (even >= 0) return dim.size / shards;

  // With digits in between, coordinate 0 need not hold the most: <Y,4,X>9 over {X:2,Y:2} gives Y=0 three elements (a
  // chunk of 5 is cut 2+2+1+0) and Y=1 four (1+1+1+1). So all kinds of rows are followed, but each kind only once.
  const std::vector<const Factor*> factors = EffectiveFactors(dim);
  size_t reflected_end = 0;
  for (size_t k = 0; k < factors.size(); ++k) {
    if (factors[k]->kind == Factor::Kind::kReflected) reflected_end = k + 1;
  }
  std::vector<Pieces> rows = {{{dim.size, false, 1}}};
  Normalize(rows[0]);
  for (size_t k = 0; k < factors.size(); ++k) {
    const bool keep_parity = k + 1 < reflected_end;
    std::vector<Pieces> next;
    for (const Pieces& pieces : rows) {
      if (pieces.empty()) continue;
      if (factors[k]->kind == Factor::Kind::kBlocks) {
        next.push_back(CutByDigit(pieces, factors[k]->parts(), keep_parity));
        continue;
      }
      for (const int64_t j : Representatives(pieces, *factors[k])) {
        next.push_back(KeepChunk(pieces, *factors[k], j, keep_parity));
      }
    }
    std::sort(next.begin(), next.end());
    next.erase(std::unique(next.begin(), next.end()), next.end());
    rows = std::move(next);
  }
  int64_t largest = 0;
  for (const Pieces& pieces : rows) {
    int64_t length = 0;
    for (const AlikeIntervals& piece : pieces) length += piece.length * piece.count;
    largest = std::max(largest, length);
  }
  return largest;
}

}  // namespace reshard::layout
