// https URLs, shown and kept without their secrets.
#ifndef RESHARD_CHECKPOINT_HTTPS_URL_H_
#define RESHARD_CHECKPOINT_HTTPS_URL_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace reshard::https {

// The URL without user, password, query and fragment, and with its path decoded: what is shown, kept and joined with
// names. User, password and query are remembered by this process, and sent with requests for that URL and those below
// it. Only for what a user has written: an admitted URL is not admitted again, as its path may have any characters.
// InvalidArgument, without the URL: another scheme than https; no host, or a port that is not a number; a control
// character; a path with "." or ".." for a part.
absl::StatusOr<std::string> Admit(std::string_view url);

// What a request for an admitted URL consists of.
struct Request {
  std::string url;     // encoded, with the query
  std::string user;    // "name:password", or empty
  std::string header;  // "Authorization: ...", or empty
};
// For huggingface.co the header has the token of the environment variable HF_TOKEN.
Request RequestFor(std::string_view admitted);

}  // namespace reshard::https

#endif  // RESHARD_CHECKPOINT_HTTPS_URL_H_
