#include "checkpoint/https/get_range.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "checkpoint/https/curl_api.h"
#include "checkpoint/https/url.h"
#include "status/log.h"
#include "status/macros.h"
#include "status/mutex.h"
#include "status/view.h"

namespace reshard::https {
namespace {

constexpr int kTries = 4;
constexpr long kRedirects = 5;  // NOLINT(google-runtime-int): curl's
constexpr int64_t kConnectMs = 20'000;
constexpr int64_t kQuietSeconds = 30;
constexpr int64_t kSlowestBytesASecond = int64_t{16} << 10;

// Handles keep their connections open from request to request.
class Handles {
 public:
  void* Take(const CurlApi& curl) {
    {
      const status::MutexLock lock(mutex_);
      if (!free_.empty()) {
        void* const handle = free_.back();
        free_.pop_back();
        curl.Reset(handle);
        return handle;
      }
    }
    return curl.Init();
  }
  void Return(const CurlApi& curl, void* handle) {
    const status::MutexLock lock(mutex_);
    if (free_.size() < kMost) {
      free_.push_back(handle);
    } else {
      curl.Cleanup(handle);
    }
  }

 private:
  static constexpr size_t kMost = 32;
  status::Mutex mutex_;
  std::vector<void*> free_ ABSL_GUARDED_BY(mutex_);
};
Handles& FreeHandles() {
  static Handles* const handles = new Handles();
  return *handles;
}

int64_t QuietSeconds() {
  const char* const text = std::getenv("RESHARD_HTTPS_TIMEOUT_S");
  int64_t seconds = 0;
  constexpr int64_t kMost = 86'400;
  if (text == nullptr || !absl::SimpleAtoi(text, &seconds) || seconds < 1) return kQuietSeconds;
  return std::min(seconds, kMost);
}

// What an answer says; its headers, and those of the redirects before it, which are forgotten when the next begins.
struct Answer {
  absl::Span<char> out;
  size_t got = 0;
  bool too_much = false;
  std::string range, etag, modified;

  static size_t TakeBody(char* data, size_t one, size_t count, void* self) {
    Answer& answer = *static_cast<Answer*>(self);
    const size_t bytes = one * count;
    if (bytes > answer.out.size() - answer.got) {
      answer.too_much = true;
      return 0;  // and curl ends the transfer
    }
    std::memcpy(answer.out.data() + answer.got, data, bytes);
    answer.got += bytes;
    return bytes;
  }
  static size_t TakeHeader(char* data, size_t one, size_t count, void* self) {
    Answer& answer = *static_cast<Answer*>(self);
    const absl::string_view line(data, one * count);
    if (absl::StartsWithIgnoreCase(line, "HTTP/")) {
      answer.range.clear();
      answer.etag.clear();
      answer.modified.clear();
      answer.got = 0;
      return line.size();
    }
    const size_t colon = std::min(line.find(':'), line.size());
    const absl::string_view value = absl::StripAsciiWhitespace(line.substr(std::min(colon + 1, line.size())));
    constexpr size_t kLongest = 1024;
    const auto is = [&](absl::string_view name) { return absl::EqualsIgnoreCase(line.substr(0, colon), name); };
    if (value.size() > kLongest) return line.size();
    if (is("content-range")) answer.range = std::string(value);
    if (is("etag")) answer.etag = std::string(value);
    if (is("last-modified")) answer.modified = std::string(value);
    return line.size();
  }
};

// One try. `again`: another one may go better.
class Try {
 public:
  Try(const CurlApi& curl, const std::string& admitted) : curl_(curl), admitted_(admitted) {}

  absl::StatusOr<Range> Get(int64_t at, absl::Span<char> out) {
    again_ = false;
    void* const handle = FreeHandles().Take(curl_);
    if (handle == nullptr) return absl::UnavailableError("libcurl cannot create a handle");
    Answer answer;
    answer.out = out;
    const Request request = RequestFor(admitted_);
    const std::string range = absl::StrCat(at, "-", at + static_cast<int64_t>(out.size()) - 1);
    CurlList* const headers = request.header.empty() ? nullptr : curl_.Append(nullptr, request.header.c_str());
    bool all_set = true;
    const auto number = [&](CurlOption option, int64_t value) {
      const auto given = static_cast<long>(value);  // NOLINT(google-runtime-int): curl's
      all_set &= curl_.SetOption(handle, option, given) == kCurlOk;
    };
    const auto text = [&](CurlOption option, const char* value) {
      all_set &= curl_.SetOption(handle, option, value) == kCurlOk;
    };
    number(kNoSignal, 1);
    number(kProtocols, kProtocolHttps);
    number(kRedirectProtocols, kProtocolHttps);
    number(kFollowLocation, 1);
    number(kMaxRedirects, kRedirects);
    number(kConnectTimeoutMs, std::min(kConnectMs, 1000 * QuietSeconds()));
    number(kLowSpeedLimit, 1);
    number(kLowSpeedTime, QuietSeconds());
    // A server that drips is no better than one that is silent.
    number(kTimeoutSeconds, 3 * QuietSeconds() + static_cast<int64_t>(out.size()) / kSlowestBytesASecond);
    text(kUrl, request.url.c_str());
    text(kRange, range.c_str());
    text(kUserAgent, "reshard");
    if (!request.user.empty()) text(kUserPassword, request.user.c_str());
    if (const char* const trusted = std::getenv("SSL_CERT_FILE")) text(kCaFile, trusted);
    if (headers != nullptr) curl_.SetOption(handle, kHttpHeader, headers);
    curl_.SetOption(handle, kWriteFunction, &Answer::TakeBody);
    curl_.SetOption(handle, kWriteData, static_cast<void*>(&answer));
    curl_.SetOption(handle, kHeaderFunction, &Answer::TakeHeader);
    curl_.SetOption(handle, kHeaderData, static_cast<void*>(&answer));
    // Without one of them a request might go where it must not.
    const int code = all_set ? curl_.Perform(handle) : kBadOption;
    long status = 0;  // NOLINT(google-runtime-int): curl's
    if (all_set) curl_.GetInfo(handle, kResponseCode, &status);
    curl_.Reset(handle);  // it points to what ends here
    FreeHandles().Return(curl_, handle);
    curl_.FreeList(headers);
    return Judge(code, status, answer, at);
  }
  bool again() const { return again_; }

 private:
  template <typename... Text>
  std::string Says(const Text&... text) const {
    return absl::StrCat(admitted_, ": ", text...);
  }

  absl::StatusOr<Range> Judge(int code, int64_t status, const Answer& answer, int64_t at) {
    // An answer for the whole file or for nothing has a body that does not matter, and that was perhaps cut off.
    const bool followed = status / 100 == 3 && code != kCurlOk;  // or rather not, for the reason in `code`
    const bool answered = status != 0 && !followed && (code == kCurlOk || status != 206);
    if (answered && status != 206 && status != 416) return Refused(status);
    if (!answered || (code != kCurlOk && !answer.too_much)) {
      constexpr int kPassing[] = {kCannotResolveProxy, kCannotResolveHost, kCannotConnect, kWeirdReply,
                                  kHttp2Error,         kPartialFile,       kTimedOut,      kCannotHandshake,
                                  kGotNothing,         kSendError,         kReceiveError,  kHttp2Stream};
      again_ = !answer.too_much && std::find(std::begin(kPassing), std::end(kPassing), code) != std::end(kPassing);
      if (answer.too_much) return absl::DataLossError(Says("the server sends more than was asked for"));
      if (code == kTooManyRedirects) return absl::UnavailableError(Says("more than ", kRedirects, " redirects"));
      if (code == kUnsupportedProtocol)
        return absl::UnavailableError(Says("redirected to another protocol than https"));
      return absl::UnavailableError(Says(curl_.ErrorText(code)));
    }
    if (answer.too_much) return absl::DataLossError(Says("the server sends more than was asked for"));
    return Understand(status, answer, at);
  }

  absl::Status Refused(int64_t status) {
    if (status == 404 || status == 410) return absl::NotFoundError(Says("the server has no such file (", status, ")"));
    if (status == 401 || status == 403) {
      return absl::PermissionDeniedError(Says("the server denies access (", status, ")"));
    }
    if (status == 200) {
      return absl::UnimplementedError(Says(
          "the server sends whole files only, no ranges of them (200 where 206 was asked for); download it first"));
    }
    again_ = status == 408 || status == 429 || status >= 500;
    if (!again_) return absl::InvalidArgumentError(Says("the server refuses the request (", status, ")"));
    return absl::UnavailableError(Says("the server answers ", status));
  }

  // "bytes 0-99/1234", or "bytes */0" with 416 for a range that an empty file does not have.
  absl::StatusOr<Range> Understand(int64_t status, const Answer& answer, int64_t at) const {
    const auto bad = [&] {
      return absl::DataLossError(
          Says("the server answered for the range ", answer.range.empty() ? "(none)" : answer.range));
    };
    Range range;
    if (status == 416 && at == 0) {  // of an empty file some servers say nothing else
      if (answer.range != "bytes */0" && !answer.range.empty()) return bad();
      range.validator = "empty";
      return range;
    }
    if (!answer.etag.empty()) {
      range.validator = absl::StrCat("ETag ", answer.etag);
    } else if (!answer.modified.empty()) {
      range.validator = absl::StrCat("Last-Modified ", answer.modified);
    } else {
      return absl::UnimplementedError(Says(
          "the server sends neither ETag nor Last-Modified, so that a change would not be noticed; download it first"));
    }
    absl::string_view text = answer.range;
    const size_t slash = text.find('/');
    if (!absl::ConsumePrefix(&text, "bytes ") || slash == text.npos) return bad();
    const absl::string_view all = absl::string_view(answer.range).substr(slash + 1);
    if (!absl::SimpleAtoi(all, &range.total) || range.total < 0) return bad();
    if (status == 416) {
      if (range.total > at) return bad();
      return range;
    }
    const absl::string_view part = text.substr(0, text.find('/'));
    const size_t dash = part.find('-');
    int64_t first = 0, last = 0;
    if (dash == part.npos || !absl::SimpleAtoi(part.substr(0, dash), &first) ||
        !absl::SimpleAtoi(part.substr(dash + 1), &last)) {
      return bad();
    }
    const int64_t wanted = std::min(static_cast<int64_t>(answer.out.size()), range.total - at);
    range.length = static_cast<int64_t>(answer.got);
    if (first != at || wanted < 1 || last != at + wanted - 1 || range.length != wanted) return bad();
    return range;
  }

  const CurlApi& curl_;
  const std::string& admitted_;
  bool again_ = false;
};

}  // namespace

absl::StatusOr<Range> GetRange(const std::string& admitted, int64_t at, absl::Span<char> out) {
  ASSIGN_OR_RETURN(const CurlApi* const curl, LoadCurl());
  Try one(*curl, admitted);
  auto pause = std::chrono::milliseconds(200);
  for (int tried = 1;; ++tried) {
    absl::StatusOr<Range> range = one.Get(at, out);
    if (range.ok() || !one.again() || tried == kTries) return range;
    RESHARD_LOG(kInfo, "attempt ", tried, " of ", kTries, " to read over https failed: ", range.status().message());
    std::this_thread::sleep_for(pause);
    pause *= 4;
  }
}

}  // namespace reshard::https
