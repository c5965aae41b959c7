// The part of libcurl that is used, loaded at run time, so that nothing has to be linked with it. The numbers
// are those of curl's own header, which never change (https://curl.se/libcurl/abi.html).
#ifndef RESHARD_CHECKPOINT_HTTPS_CURL_API_H_
#define RESHARD_CHECKPOINT_HTTPS_CURL_API_H_

#include "absl/status/statusor.h"

namespace reshard::https {

enum CurlOption : int {
  kTimeoutSeconds = 13,
  kLowSpeedLimit = 19,
  kLowSpeedTime = 20,
  kFollowLocation = 52,
  kMaxRedirects = 68,
  kNoSignal = 99,
  kConnectTimeoutMs = 156,
  kProtocols = 181,
  kRedirectProtocols = 182,
  kWriteData = 10001,
  kUrl = 10002,
  kUserPassword = 10005,
  kRange = 10007,
  kUserAgent = 10018,
  kHttpHeader = 10023,
  kHeaderData = 10029,
  kCaFile = 10065,
  kWriteFunction = 20011,
  kHeaderFunction = 20079,
};
inline constexpr long kProtocolHttps = 2;       // NOLINT(google-runtime-int): curl's
inline constexpr int kResponseCode = 0x200002;  // of GetInfo, a long
inline constexpr long kGlobalDefault = 3;       // NOLINT(google-runtime-int): curl's

enum CurlCode : int {
  kCurlOk = 0,
  kUnsupportedProtocol = 1,
  kCannotResolveProxy = 5,
  kCannotResolveHost = 6,
  kCannotConnect = 7,
  kWeirdReply = 8,
  kHttp2Error = 16,
  kPartialFile = 18,
  kWriteError = 23,
  kTimedOut = 28,
  kCannotHandshake = 35,
  kBadOption = 43,
  kTooManyRedirects = 47,
  kGotNothing = 52,
  kSendError = 55,
  kReceiveError = 56,
  kHttp2Stream = 92,
};

struct CurlList;

// As the functions of curl_easy_* and curl_slist_*; SetOption and GetInfo take one more argument of the option's type.
struct CurlApi {
  int (*GlobalInit)(long flags) = nullptr;  // NOLINT(google-runtime-int): curl's
  void* (*Init)() = nullptr;
  void (*Reset)(void* handle) = nullptr;
  int (*SetOption)(void* handle, int option, ...) = nullptr;
  int (*Perform)(void* handle) = nullptr;
  int (*GetInfo)(void* handle, int info, ...) = nullptr;
  void (*Cleanup)(void* handle) = nullptr;
  const char* (*ErrorText)(int code) = nullptr;
  CurlList* (*Append)(CurlList* list, const char* text) = nullptr;
  void (*FreeList)(CurlList* list) = nullptr;
  const char* (*Version)() = nullptr;  // "libcurl/7.88.1 OpenSSL/3.0.16 zlib/1.2.13 ..."
};

// Loads it, once. Unavailable: there is no libcurl (what to do).
absl::StatusOr<const CurlApi*> LoadCurl();

}  // namespace reshard::https

#endif  // RESHARD_CHECKPOINT_HTTPS_CURL_API_H_
