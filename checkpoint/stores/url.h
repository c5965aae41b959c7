// URLs as paths of checkpoints: shown and kept without their secrets.
#ifndef RESHARD_CHECKPOINT_STORES_URL_H_
#define RESHARD_CHECKPOINT_STORES_URL_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace reshard::stores {

// Whether a path is a URL of any scheme ("s3://bucket"), or was meant to be one ("https:/host"), and so no path of the
// filesystem.
bool IsUrl(std::string_view path);

// "s3" of "s3://bucket/key", in lower case; empty where there is none. Of a chained URL of fsspec, what stands before
// its first "://": "simplecache::s3".
std::string SchemeOf(std::string_view url);

// The URL as it is shown, kept and joined with names: https as https::Admit makes it; "hf://ORG/MODEL[@REVISION]" as
// that of its files at huggingface.co, or at the host of the environment variable HF_ENDPOINT; all others without "/"
// at the end. A chain of links with paths of their own ends with the outermost path, so that names can be joined to it:
// "zip://step-1::s3://b/runs.zip" is kept as "zip::s3://b/runs.zip!/step-1". Call it once, on what a user has written.
// InvalidArgument, without the URL: what https::Admit refuses; a password; a part "." or ".."; a control character; no
// bucket or host; "!" in a chain.
absl::StatusOr<std::string> Admit(std::string_view url);

}  // namespace reshard::stores

#endif  // RESHARD_CHECKPOINT_STORES_URL_H_
