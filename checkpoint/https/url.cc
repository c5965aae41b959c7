#include "checkpoint/https/url.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "status/mutex.h"
#include "status/view.h"

namespace reshard::https {
namespace {

constexpr std::string_view kScheme = "https://";

// What requests need and nobody sees, by admitted URL.
struct Secrets {
  std::string user;
  std::string query;
};
struct Kept {
  status::Mutex mutex;
  std::map<std::string, Secrets, std::less<>> secrets ABSL_GUARDED_BY(mutex);
};
Kept& KeptSecrets() {
  static Kept* const kept = new Kept();
  return *kept;
}

int Digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = absl::ascii_tolower(static_cast<unsigned char>(c));
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

std::string Decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool coded = text[i] == '%' && i + 2 < text.size() && Digit(text[i + 1]) >= 0 && Digit(text[i + 2]) >= 0;
    out.push_back(coded ? static_cast<char>(16 * Digit(text[i + 1]) + Digit(text[i + 2])) : text[i]);
    if (coded) i += 2;
  }
  return out;
}

// A path for a request: everything but letters, digits and what is harmless is written as %XX.
std::string Encoded(std::string_view path) {
  constexpr std::string_view kPlain = "/-._~";
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string out;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isalnum(byte) || kPlain.find(c) != std::string_view::npos) {
      out.push_back(c);
    } else {
      out.push_back('%');
      out.push_back(kHex[byte >> 4]);
      out.push_back(kHex[byte & 15]);
    }
  }
  return out;
}

// "https://host:port" of an admitted URL, and the rest.
size_t EndOfOrigin(std::string_view url) { return std::min(url.find('/', kScheme.size()), url.size()); }

}  // namespace

absl::StatusOr<std::string> Admit(std::string_view url) {
  const size_t colon = std::min(url.find("://"), url.size());
  const std::string scheme = absl::AsciiStrToLower(status::View(url.substr(0, std::min(colon + 3, url.size()))));
  if (colon == url.size()) return absl::InvalidArgumentError("a URL begins with https://");
  if (scheme != kScheme) {
    return absl::InvalidArgumentError(absl::StrCat("URLs of ", scheme, " are not read, those of https:// are"));
  }
  std::string_view rest = url.substr(kScheme.size());
  rest = rest.substr(0, rest.find('#'));
  Secrets secrets;
  if (const size_t question = rest.find('?'); question != rest.npos) {
    secrets.query = std::string(rest.substr(question + 1));
    rest = rest.substr(0, question);
  }
  const size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view host = rest.substr(0, slash);
  if (const size_t at = host.rfind('@'); at != host.npos) {
    secrets.user = Decoded(host.substr(0, at));
    host = host.substr(at + 1);
  }
  const auto is_in_host = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == ':' || c == '[' ||
           c == ']' || c == '_';
  };
  if (host.empty() || !std::all_of(host.begin(), host.end(), is_in_host)) {
    return absl::InvalidArgumentError("a URL without the name of a host");
  }
  const size_t port = host.find(':', host.front() == '[' ? std::min(host.find(']'), host.size()) : 0);
  const auto is_digit = [](char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); };
  if (port != host.npos && (port + 1 == host.size() ||
                            !std::all_of(host.begin() + static_cast<std::ptrdiff_t>(port) + 1, host.end(), is_digit))) {
    return absl::InvalidArgumentError("a URL with a port that is not a number; a / in a password is written %2F");
  }
  const std::string path = Decoded(rest.substr(slash));
  const auto is_control = [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); };
  if (std::any_of(path.begin(), path.end(), is_control) ||
      std::any_of(secrets.query.begin(), secrets.query.end(), [&](char c) { return is_control(c) || c == ' '; }) ||
      std::any_of(secrets.user.begin(), secrets.user.end(), is_control)) {
    return absl::InvalidArgumentError("a URL with a control character");
  }
  for (const absl::string_view part : absl::StrSplit(path, '/')) {
    if (part == "." || part == "..") return absl::InvalidArgumentError("a URL with a part \".\" or \"..\"");
  }
  std::string admitted = absl::StrCat(status::View(kScheme), absl::AsciiStrToLower(status::View(host)), path);
  while (admitted.size() > kScheme.size() && admitted.back() == '/') admitted.pop_back();
  if (!secrets.user.empty() || !secrets.query.empty()) {
    Kept& kept = KeptSecrets();
    const status::MutexLock lock(kept.mutex);
    kept.secrets[admitted] = std::move(secrets);
  }
  return admitted;
}

Request RequestFor(std::string_view admitted) {
  const size_t end = EndOfOrigin(admitted);
  Request request;
  request.url = absl::StrCat(status::View(admitted.substr(0, end)), Encoded(admitted.substr(end)));
  {
    Kept& kept = KeptSecrets();
    const status::MutexLock lock(kept.mutex);
    // From the URL itself upwards, to its host.
    for (std::string_view above = admitted;; above = above.substr(0, above.rfind('/'))) {
      if (const auto found = kept.secrets.find(above); found != kept.secrets.end()) {
        request.user = found->second.user;
        if (!found->second.query.empty()) absl::StrAppend(&request.url, "?", found->second.query);
        break;
      }
      if (above.size() <= end) break;
    }
  }
  const char* const token = std::getenv("HF_TOKEN");
  if (admitted.substr(0, end) == "https://huggingface.co" && token != nullptr && *token != '\0' &&
      request.user.empty()) {
    request.header = absl::StrCat("Authorization: Bearer ", token);
  }
  return request;
}

}  // namespace reshard::https
