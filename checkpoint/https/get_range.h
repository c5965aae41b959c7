// Reads ranges of bytes from https servers.
#ifndef RESHARD_CHECKPOINT_HTTPS_GET_RANGE_H_
#define RESHARD_CHECKPOINT_HTTPS_GET_RANGE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace reshard::https {

struct Range {
  int64_t total = 0;      // bytes of the whole file
  int64_t length = 0;     // bytes that were written to `out`
  std::string validator;  // the ETag, or else the time of the last modification: differs if the content does
};

// Fills `out`, at least a byte, with the bytes of the admitted URL (url.h) from byte `at` on, as many as there are. At
// most 5 redirects, to https only; credentials go to no other host. Answers that the network or the server may correct
// (no connection, 30 s without a byte, less than 16 KiB/s for long, 408, 429, 5xx) are asked for again, four tries in
// all.
//   RESHARD_HTTPS_TIMEOUT_S  seconds without a byte (30)
//   SSL_CERT_FILE            the certificates to trust, in place of the system's
// NotFound: 404, 410. PermissionDenied: 401, 403. Unimplemented: the server sends whole files, or nothing by which a
// changed file is known. InvalidArgument: other answers of 3xx and 4xx. DataLoss: an answer that is not for the range.
// Unavailable: everything else, with the reason.
absl::StatusOr<Range> GetRange(const std::string& admitted, int64_t at, absl::Span<char> out);

}  // namespace reshard::https

#endif  // RESHARD_CHECKPOINT_HTTPS_GET_RANGE_H_
