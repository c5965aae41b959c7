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
#include "status/macros.h"
#include "status/view.h"

namespace reshard::stores {
namespace {

constexpr std::string_view kMark = "://";
constexpr std::string_view kNext = "::";  // between the links of a chained URL

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

struct Link {
  std::string scheme;     // of several where those before the last have no path: "simplecache::s3"
  std::string_view path;  // without "/" at its end
};

// The links of a URL, from the outermost inwards: one, but for the chained URLs of fsspec. A key may have "::" in it;
// a link begins where a scheme and "://" follow.
//
//     zip://step-1::simplecache::s3://bucket/runs.zip   ->   {"zip", "step-1"}, {"simplecache::s3", "bucket/runs.zip"}
std::vector<Link> LinksOf(std::string_view url) {
  std::vector<Link> links;
  while (true) {
    links.push_back({SchemeOf(url), url.substr(url.find(kMark) + kMark.size())});
    std::string_view& path = links.back().path;
    size_t end = path.find(kNext);
    while (end != path.npos && SchemeOf(path.substr(end + kNext.size())).empty()) end = path.find(kNext, end + 1);
    if (end != path.npos) {
      url = path.substr(end + kNext.size());
      path = path.substr(0, end);
    }
    while (path.ends_with('/')) path.remove_suffix(1);
    if (end == path.npos) return links;
  }
}

absl::Status CheckLink(const Link& link) {
  const auto is_control = [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); };
  if (std::any_of(link.path.begin(), link.path.end(), is_control)) {
    return absl::InvalidArgumentError("a URL with a control character");
  }
  const std::string host(link.path.substr(0, link.path.find('/')));
  const size_t colon = host.find(':'), at = host.rfind('@');
  if (at != std::string::npos && colon < at) {
    return absl::InvalidArgumentError(
        absl::StrCat("a URL of ", link.scheme,
                     ":// with a password, which would be shown and logged; give it to the store as its own "
                     "documentation says (environment, configuration file)"));
  }
  for (const absl::string_view part : absl::StrSplit(status::View(link.path), '/')) {
    if (part == "." || part == "..") return absl::InvalidArgumentError("a URL with a part \".\" or \"..\"");
  }
  return absl::OkStatus();
}

// The URL of these links as Admit keeps it.
absl::StatusOr<std::string> Joined(const std::vector<Link>& links) {
  if (links.back().path.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("a URL of ", links.back().scheme, ":// that names nothing"));
  }
  std::string schemes, within;
  for (const Link& link : links) {
    RETURN_IF_ERROR(CheckLink(link));
    const bool is_last = &link == &links.back();
    absl::StrAppend(&schemes, link.scheme, is_last ? "" : status::View(kNext));
    if (is_last) continue;
    within = absl::StrCat("!", link.path.empty() ? "" : "/", status::View(link.path), within);
  }
  const auto has_mark = [](const Link& link) { return link.path.find('!') != link.path.npos; };
  if (links.size() > 1 && std::any_of(links.begin(), links.end(), has_mark)) {
    return absl::InvalidArgumentError("a chained URL with \"!\", which ends the names of archives here");
  }
  return absl::StrCat(schemes, status::View(kMark), status::View(links.back().path), within);
}

}  // namespace

bool IsUrl(std::string_view path) {
  return path.starts_with("https:") || path.starts_with("http:") || !SchemeOf(path).empty();
}

std::string SchemeOf(std::string_view url) {
  const size_t colon = url.find(kMark);
  if (colon == url.npos || colon == 0) return "";
  const absl::string_view scheme = status::View(url.substr(0, colon));
  for (const absl::string_view name : absl::StrSplit(scheme, status::View(kNext))) {
    const bool is_name = std::all_of(name.begin(), name.end(), [](char c) {
      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '+' || c == '-' || c == '.';
    });
    if (name.empty() || !is_name) return "";
  }
  return absl::AsciiStrToLower(scheme);
}

absl::StatusOr<std::string> Admit(std::string_view url) {
  const std::string scheme = SchemeOf(url);
  if (scheme.empty() || scheme == "https" || scheme == "http") return https::Admit(url);
  if (scheme == "hf") {
    ASSIGN_OR_RETURN(const std::string at_hub, AtHub(url.substr(scheme.size() + kMark.size())));
    return https::Admit(at_hub);
  }
  return Joined(LinksOf(url));
}

}  // namespace reshard::stores

std::string reshard::StoreSchemeOf(std::string_view path) {
  const std::string scheme = stores::SchemeOf(path);
  return scheme == "https" || scheme == "http" || scheme == "hf" ? "" : scheme;
}
