#include "reshard/nccl/nccl_api.h"

#include <dlfcn.h>

#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/nccl/load_nccl.h"

namespace reshard {
namespace {

constexpr int kOldest = 21800;

constexpr char kWhatToDo[] =
    "install NCCL 2.18 or newer, or set RESHARD_NCCL_LIBRARY to the path of its libnccl.so.2 (PyTorch's copy is used "
    "where PyTorch is imported first)";

std::string LoaderWords() {
  const char* words = dlerror();
  return words == nullptr ? "the loader gives no reason" : words;
}

// The file that a function came from.
std::string FileOf(void* function, const std::string& otherwise) {
  Dl_info info;
  return dladdr(function, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : otherwise;
}

template <typename F>
bool Find(void* library, const char* name, F** function) {
  *function = reinterpret_cast<F*>(dlsym(library, name));
  return *function != nullptr;
}

}  // namespace

absl::StatusOr<NcclApi> nccl::OpenNccl(const nccl::NcclPlaces& places) {
  NcclApi api;
  void* library = nullptr;
  if (!places.in_process.empty()) {
    library = dlopen(places.in_process.c_str(), RTLD_NOW | RTLD_NOLOAD);
    if (library != nullptr) api.origin = "already in the process";
  }
  if (library == nullptr && !places.path.empty()) {
    library = dlopen(places.path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      return absl::UnavailableError(absl::StrCat("RESHARD_NCCL_LIBRARY is ", places.path,
                                                 ", which cannot be loaded: ", LoaderWords(), "; set it to ",
                                                 "the path of libnccl.so.2, or unset it"));
    }
  }
  if (library == nullptr && !places.by_name.empty()) {
    library = dlopen(places.by_name.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("NCCL was not found: it is not loaded in the process, RESHARD_NCCL_LIBRARY is not set, and ",
                     places.by_name.empty() ? "nothing else was looked for" : LoaderWords(), "; ", kWhatToDo));
  }

  const char* missing = nullptr;
  const auto need = [&](const char* name, auto** function) {
    if (!Find(library, name, function) && missing == nullptr) missing = name;
  };
  need("ncclGetVersion", &api.GetVersion);
  if (api.origin.empty()) {
    api.origin = FileOf(reinterpret_cast<void*>(api.GetVersion), places.path.empty() ? places.by_name : places.path);
  }
  if (api.GetVersion != nullptr) {
    if (const NcclResult result = api.GetVersion(&api.version); result != kNcclSuccess) {
      return absl::FailedPreconditionError(
          absl::StrCat("NCCL (", api.origin, ") does not report its version: ncclGetVersion returned ", result));
    }
    if (api.version < kOldest) {
      return absl::FailedPreconditionError(
          absl::StrCat("NCCL (", api.origin, ") is ", NcclVersionText(api.version), ", older than 2.18; ", kWhatToDo));
    }
  }
  need("ncclGetUniqueId", &api.GetUniqueId);
  need("ncclGetErrorString", &api.GetErrorString);
  need("ncclGetLastError", &api.GetLastError);
  need("ncclCommInitRankConfig", &api.CommInitRankConfig);
  need("ncclCommSplit", &api.CommSplit);
  need("ncclCommFinalize", &api.CommFinalize);
  need("ncclCommDestroy", &api.CommDestroy);
  need("ncclCommAbort", &api.CommAbort);
  need("ncclCommGetAsyncError", &api.CommGetAsyncError);
  need("ncclGroupStart", &api.GroupStart);
  need("ncclGroupEnd", &api.GroupEnd);
  need("ncclSend", &api.Send);
  need("ncclRecv", &api.Recv);
  need("ncclAllGather", &api.AllGather);
  need("ncclReduceScatter", &api.ReduceScatter);
  need("ncclAllReduce", &api.AllReduce);
  Find(library, "ncclAlltoAll", &api.AlltoAll);
  if (missing != nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("the library ", api.origin, " has no function ", missing,
                                                      ", so it is not NCCL 2.18 or newer; ", kWhatToDo));
  }
  return api;
}

absl::StatusOr<const NcclApi*> LoadNcclApi() {
  // Never destroyed: other threads may still use it when main() has returned.
  static const auto* const loaded = [] {
    nccl::NcclPlaces places;
    if (const char* path = std::getenv("RESHARD_NCCL_LIBRARY"); path != nullptr) places.path = path;
    return new absl::StatusOr<NcclApi>(nccl::OpenNccl(places));
  }();
  if (!loaded->ok()) return loaded->status();
  return &**loaded;
}

std::string NcclVersionText(int version) {
  // The scheme changed after 2.8.
  const int unit = version < 10000 ? 1000 : 10000;
  return absl::StrCat(version / unit, ".", version % unit / 100, ".", version % 100);
}

}  // namespace reshard
