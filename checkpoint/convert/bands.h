// Which pieces of a conversion are read together.
#ifndef RESHARD_CHECKPOINT_CONVERT_BANDS_H_
#define RESHARD_CHECKPOINT_CONVERT_BANDS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "checkpoint/output/output_plan.h"
#include "checkpoint/source/box.h"

namespace reshard::convert {

// Pieces side by side: each begins where the one before ends in dimension `dim`, and they are alike in all others, so
// that together they are a box. Those of columns are read together since a row of the box is one run in the source, of
// which each by itself would read a part; those of rows where a chunk goes into both, so that it lies in the box, and
// its checksum is compared on the way (source::Pass). A single piece is a band, too.
struct Band {
  size_t first = 0;  // in Bands::pieces
  size_t count = 1;
  size_t dim = 0;
};

struct Bands {
  std::vector<int64_t> pieces;  // of the plan
  std::vector<Band> bands;

  absl::Span<const int64_t> PiecesOf(const Band& band) const {
    return absl::MakeConstSpan(pieces).subspan(band.first, band.count);
  }
};

struct BandLimits {
  int64_t pieces = 1;  // of a band of columns
  int64_t bytes = 0;   // of a band of several pieces
};

// Puts pieces of the plan, in ascending order, into bands: each into one. Columns whose rows are long runs by
// themselves stay alone.
Bands MakeBands(const output::OutputPlan& plan, absl::Span<const int64_t> pieces, const BandLimits& limits);

// The box of a piece of a tensor.
source::Box BoxOf(const output::OutputPlan& plan, const output::OutputPlan::Piece& piece);
// That of all pieces of a band, which are of a tensor.
source::Box BoxOf(const output::OutputPlan& plan, const Bands& bands, const Band& band);

}  // namespace reshard::convert

#endif  // RESHARD_CHECKPOINT_CONVERT_BANDS_H_
