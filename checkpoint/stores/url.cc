#include "checkpoint/stores/url.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "checkpoint/https/url.h"
#include "reshard/checkpoint/store.h"
#include "status/view.h"

namespace reshard::stores {
namespace {

constexpr std::string_view kMark = "://";

// The https URL of hf://ORG/MODEL[@REVISION][/PATH], by the address of files that the hub documents.
absl::StatusOr<std::string> AtHub(std::string_view rest) {
  // ORG, MODEL[@REVISION] and the path.
  const std::vector<std::string> parts = absl::StrSplit(status::View(rest), absl::MaxSplits('/', 2));
  const std::vector<std::string> model = absl::StrSplit(parts.size() > 1 ? parts[1] : "", absl::MaxSplits('@', 1));
  if (parts[0].empty() || model[0].empty() || model.back().empty()) {
    return absl::InvalidArgumentError("a model of the hub is written hf://ORG/MODEL[@REVISION]");
  }
  const char* const asked = std::getenv("HF_ENDPOINT");
  std::string endpoint = asked != nullptr && *asked != '\0' ? asked : "https://huggingface.co";
  while (endpoint.ends_with('/')) endpoint.pop_back();
  return absl::StrCat(endpoint, "/", parts[0], "/", model[0], "/resolve/", model.size() > 1 ? model[1] : "main",
                      parts.size() > 2 ? "/" : "", parts.size() > 2 ? parts[2] : "");
}

}  // namespace

bool IsUrl(std::string_view path) {
  return path.starts_with("https:") || path.starts_with("http:") || !SchemeOf(path).empty();
}

std::string SchemeOf(std::string_view url) {
  const size_t colon = url.find(kMark);
  if (colon == url.npos || colon == 0) return "";
  const std::string_view scheme = url.substr(0, colon);
  const bool is_scheme = std::all_of(scheme.begin(), scheme.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '+' || c == '-' || c == '.';
  });
  return is_scheme ? absl::AsciiStrToLower(status::View(scheme)) : "";
}

absl::StatusOr<std::string> Admit(std::string_view url) {
  const std::string scheme = SchemeOf(url);
  if (scheme.empty() || scheme == "https" || scheme == "http") return https::Admit(url);
  std::string_view rest = url.substr(std::min(scheme.size() + kMark.size(), url.size()));
  if (scheme == "hf") {
    const absl::StatusOr<std::string> at_hub = AtHub(rest);
    if (!at_hub.ok()) return at_hub.status();
    return https::Admit(*at_hub);
  }
  while (rest.ends_with('/')) rest.remove_suffix(1);
  if (rest.empty()) return absl::InvalidArgumentError(absl::StrCat("a URL of ", scheme, ":// that names nothing"));
  const auto is_control = [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); };
  if (std::any_of(rest.begin(), rest.end(), is_control)) {
    return absl::InvalidArgumentError("a URL with a control character");
  }
  const std::string host(rest.substr(0, rest.find('/')));
  const size_t colon = host.find(':'), at = host.rfind('@');
  if (at != std::string::npos && colon < at) {
    return absl::InvalidArgumentError(
        absl::StrCat("a URL of ", scheme,
                     ":// with a password, which would be shown and logged; give it to the store as its own "
                     "documentation says (environment, configuration file)"));
  }
  for (const absl::string_view part : absl::StrSplit(status::View(rest), '/')) {
    if (part == "." || part == "..") return absl::InvalidArgumentError("a URL with a part \".\" or \"..\"");
  }
  return absl::StrCat(scheme, status::View(kMark), status::View(rest));
}

}  // namespace reshard::stores

std::string reshard::StoreSchemeOf(std::string_view path) {
  const std::string scheme = stores::SchemeOf(path);
  return scheme == "https" || scheme == "http" || scheme == "hf" ? "" : scheme;
}
