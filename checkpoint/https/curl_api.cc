#include "checkpoint/https/curl_api.h"

#include <dlfcn.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "reshard/checkpoint/https.h"

namespace reshard::https {
namespace {

constexpr const char* kLibraries[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};

template <typename F>
bool Find(void* library, const char* name, F* function) {
  *function = reinterpret_cast<F>(dlsym(library, name));
  return *function != nullptr;
}

absl::StatusOr<const CurlApi*> Load() {
  for (const char* const name : kLibraries) {
    void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) continue;
    static CurlApi api;
    const bool all =
        Find(library, "curl_global_init", &api.GlobalInit) && Find(library, "curl_easy_init", &api.Init) &&
        Find(library, "curl_easy_reset", &api.Reset) && Find(library, "curl_easy_setopt", &api.SetOption) &&
        Find(library, "curl_easy_perform", &api.Perform) && Find(library, "curl_easy_getinfo", &api.GetInfo) &&
        Find(library, "curl_easy_cleanup", &api.Cleanup) && Find(library, "curl_easy_strerror", &api.ErrorText) &&
        Find(library, "curl_slist_append", &api.Append) && Find(library, "curl_slist_free_all", &api.FreeList) &&
        Find(library, "curl_version", &api.Version);
    if (all && api.GlobalInit(kGlobalDefault) == kCurlOk) return &api;
    return absl::UnavailableError(absl::StrCat(name, " exists, but cannot be used"));
  }
  return absl::UnavailableError("https needs libcurl, which is not installed; on Debian: apt-get install libcurl4");
}

}  // namespace

absl::StatusOr<const CurlApi*> LoadCurl() {
  static const absl::StatusOr<const CurlApi*> api = Load();
  return api;
}

}  // namespace reshard::https

namespace reshard {

absl::StatusOr<std::string> HttpsLibrary() {
  const absl::StatusOr<const https::CurlApi*> api = https::LoadCurl();
  if (!api.ok()) return api.status();
  const std::string words = (*api)->Version();
  return words.substr(0, words.find(' ', words.find(' ') + 1));  // itself, and what it does TLS with
}

}  // namespace reshard
