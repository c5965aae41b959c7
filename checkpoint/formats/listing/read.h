// Reads listings: a file that says which bytes of the files beside it are which part of which tensor. It can describe
// whatever stores elements dense and row-major, without copying it. docs/listing.schema.json has the form:
//
//   {"reshard_listing": 1,
//    "tensors": [{"name": "w", "dtype": "bf16", "shape": [4, 8],
//                 "chunks": [{"offset": [0, 0], "shape": [2, 8], "file": "rank0.bin", "at": 4096},
//                            {"offset": [2, 0], "shape": [2, 8], "file": "rank1.bin", "at": 4096}]}],
//    "notes": {"made_by": "..."}}
#ifndef RESHARD_CHECKPOINT_FORMATS_LISTING_READ_H_
#define RESHARD_CHECKPOINT_FORMATS_LISTING_READ_H_

#include <string>

#include "absl/status/statusor.h"
#include "checkpoint/catalog/format_traits.h"
#include "checkpoint/formats/listing/format.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard::listing {

// What `reshard.listing.json` in the directory says, as a catalog of that format. Its names of files are relative to
// the directory, and do not leave it. A chunk may say how many `bytes` it has; where the dtype is not one of this
// library it must, and the tensor can be listed, but not read. CheckCover checks that chunks cover their tensors.
// DataLoss: not JSON, or not of that form; a name twice, a chunk that leaves its tensor or its file, or has other bytes
// than its shape; a file that is not there. Unimplemented: another version. ResourceExhausted: over a limit.
// InvalidArgument: a file outside the directory. NotFound, Unavailable: as the system says.
absl::StatusOr<Catalog> ReadListing(const std::string& directory, const CatalogLimits& limits,
                                    const catalog::FormatTraits& format = kFormat);

}  // namespace reshard::listing

#endif  // RESHARD_CHECKPOINT_FORMATS_LISTING_READ_H_
