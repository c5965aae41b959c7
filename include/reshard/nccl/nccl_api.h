// The functions of NCCL that this library calls, as a table that is filled when the program runs: so everything builds
// and starts on machines without NCCL, a copy that is in the process already (PyTorch's) is used again, and a test can
// put another implementation below.
//
// The types are those of <nccl.h>, declared here because no public header includes that one. A test holds them against
// it where it is there.
#ifndef RESHARD_NCCL_NCCL_API_H_
#define RESHARD_NCCL_NCCL_API_H_

#include <climits>
#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace reshard {

using NcclComm = void*;  // ncclComm_t
struct NcclUniqueId {
  char internal[128] = {};
};

using NcclResult = int;  // ncclResult_t
inline constexpr NcclResult kNcclSuccess = 0;
inline constexpr NcclResult kNcclUnhandledCudaError = 1;
inline constexpr NcclResult kNcclSystemError = 2;
inline constexpr NcclResult kNcclInternalError = 3;
inline constexpr NcclResult kNcclInvalidArgument = 4;
inline constexpr NcclResult kNcclInvalidUsage = 5;
inline constexpr NcclResult kNcclRemoteError = 6;
inline constexpr NcclResult kNcclInProgress = 7;

using NcclDataType = int;  // ncclDataType_t
inline constexpr NcclDataType kNcclInt8 = 0;
inline constexpr NcclDataType kNcclUint8 = 1;
inline constexpr NcclDataType kNcclInt32 = 2;
inline constexpr NcclDataType kNcclUint32 = 3;
inline constexpr NcclDataType kNcclInt64 = 4;
inline constexpr NcclDataType kNcclUint64 = 5;
inline constexpr NcclDataType kNcclFloat16 = 6;
inline constexpr NcclDataType kNcclFloat32 = 7;
inline constexpr NcclDataType kNcclFloat64 = 8;
inline constexpr NcclDataType kNcclBfloat16 = 9;

using NcclRedOp = int;  // ncclRedOp_t
inline constexpr NcclRedOp kNcclSum = 0;
inline constexpr NcclRedOp kNcclProd = 1;
inline constexpr NcclRedOp kNcclMax = 2;
inline constexpr NcclRedOp kNcclMin = 3;
inline constexpr NcclRedOp kNcclAvg = 4;

inline constexpr int kNcclSplitNoColor = -1;

// ncclConfig_t as of 2.18, which later versions read as what it is by its first three fields.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = INT_MIN;  // INT_MIN: undefined
  int cga_cluster_size = INT_MIN;
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
};

// One entry a function, named as in <nccl.h> without its prefix. `stream` is a cudaStream_t.
struct NcclApi {
  NcclResult (*GetVersion)(int* version) = nullptr;
  NcclResult (*GetUniqueId)(NcclUniqueId* id) = nullptr;
  const char* (*GetErrorString)(NcclResult result) = nullptr;
  const char* (*GetLastError)(NcclComm comm) = nullptr;
  NcclResult (*CommInitRankConfig)(NcclComm* comm, int ranks, NcclUniqueId id, int rank, NcclConfig* config) = nullptr;
  NcclResult (*CommSplit)(NcclComm comm, int color, int key, NcclComm* part, NcclConfig* config) = nullptr;
  NcclResult (*CommFinalize)(NcclComm comm) = nullptr;
  NcclResult (*CommDestroy)(NcclComm comm) = nullptr;
  NcclResult (*CommAbort)(NcclComm comm) = nullptr;
  NcclResult (*CommGetAsyncError)(NcclComm comm, NcclResult* error) = nullptr;
  NcclResult (*GroupStart)() = nullptr;
  NcclResult (*GroupEnd)() = nullptr;
  NcclResult (*Send)(const void* data, size_t count, NcclDataType type, int peer, NcclComm comm,
                     void* stream) = nullptr;
  NcclResult (*Recv)(void* data, size_t count, NcclDataType type, int peer, NcclComm comm, void* stream) = nullptr;
  NcclResult (*AllGather)(const void* send, void* receive, size_t send_count, NcclDataType type, NcclComm comm,
                          void* stream) = nullptr;
  NcclResult (*ReduceScatter)(const void* send, void* receive, size_t receive_count, NcclDataType type, NcclRedOp op,
                              NcclComm comm, void* stream) = nullptr;
  NcclResult (*AllReduce)(const void* send, void* receive, size_t count, NcclDataType type, NcclRedOp op, NcclComm comm,
                          void* stream) = nullptr;

  // Optional: null where the library is too old. `count` is what goes to one peer. Since 2.28.3.
  NcclResult (*AlltoAll)(const void* send, void* receive, size_t count, NcclDataType type, NcclComm comm,
                         void* stream) = nullptr;

  int version = 0;     // 22809 is 2.28.9
  std::string origin;  // where it came from: "already in the process", or the path of the library
};

// The NCCL of this process: the copy that is loaded already, else the library at RESHARD_NCCL_LIBRARY, else
// libnccl.so.2 where the loader finds it. Loaded once, never unloaded.
// Unavailable, saying what was looked for and what to do: no library; FailedPrecondition: older than 2.18, or without a
// function that it should have.
absl::StatusOr<const NcclApi*> LoadNcclApi();

// "2.28.9" for 22809, "2.8.4" for 2804.
std::string NcclVersionText(int version);

}  // namespace reshard

#endif  // RESHARD_NCCL_NCCL_API_H_
