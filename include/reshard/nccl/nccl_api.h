// The NCCL functions that this library calls, as a table that is filled at run time, so that everything builds and
// starts on machines without NCCL, a copy that is already in the process (PyTorch's) is reused, and tests can
// substitute another implementation.
//
// The types and constants are those of <nccl.h>, declared here because no public header includes it. Where it is
// installed, a test compares them with it.
#ifndef RESHARD_NCCL_NCCL_API_H_
#define RESHARD_NCCL_NCCL_API_H_

#include <climits>
#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace reshard {

using NcclComm = void*;  // ncclComm_t
// ncclUniqueId: what the ranks of a communicator must have in common to meet.
struct NcclUniqueId {
  char internal[128] = {};  // opaque
};

// ncclResult_t, and its values.
using NcclResult = int;
inline constexpr NcclResult kNcclSuccess = 0;
inline constexpr NcclResult kNcclUnhandledCudaError = 1;
inline constexpr NcclResult kNcclSystemError = 2;
inline constexpr NcclResult kNcclInternalError = 3;
inline constexpr NcclResult kNcclInvalidArgument = 4;
inline constexpr NcclResult kNcclInvalidUsage = 5;
inline constexpr NcclResult kNcclRemoteError = 6;
inline constexpr NcclResult kNcclInProgress = 7;

// ncclDataType_t, and its values.
using NcclDataType = int;
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

// ncclRedOp_t, and its values.
using NcclRedOp = int;
inline constexpr NcclRedOp kNcclSum = 0;
inline constexpr NcclRedOp kNcclProd = 1;
inline constexpr NcclRedOp kNcclMax = 2;
inline constexpr NcclRedOp kNcclMin = 3;
inline constexpr NcclRedOp kNcclAvg = 4;

inline constexpr int kNcclSplitNoColor = -1;  // NCCL_SPLIT_NOCOLOR: a rank that is in no part

// ncclConfig_t as of 2.18. Later versions recognize it by its first three fields. INT_MIN and null: left to NCCL.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);  // of this struct in bytes
  unsigned magic = 0xcafebeef;       // marks an initialized config
  unsigned version = 21800;          // the NCCL version whose fields this has
  int blocking = INT_MIN;            // 0: calls may return kNcclInProgress
  int cga_cluster_size = INT_MIN;    // thread blocks per cluster
  int min_ctas = INT_MIN;            // fewest thread blocks per collective
  int max_ctas = INT_MIN;            // most thread blocks per collective
  const char* net_name = nullptr;    // network plugin
  int split_share = INT_MIN;         // 1: parts made by CommSplit share resources with their parent
};

// One entry per function, named as in <nccl.h> without the prefix "nccl"; see NCCL's documentation for what they do.
// `stream` is a cudaStream_t; counts are in elements of `type`.
struct NcclApi {
  // Process-wide.
  NcclResult (*GetVersion)(int* version) = nullptr;
  NcclResult (*GetUniqueId)(NcclUniqueId* id) = nullptr;
  const char* (*GetErrorString)(NcclResult result) = nullptr;
  const char* (*GetLastError)(NcclComm comm) = nullptr;
  // Making and ending communicators.
  NcclResult (*CommInitRankConfig)(NcclComm* comm, int ranks, NcclUniqueId id, int rank, NcclConfig* config) = nullptr;
  NcclResult (*CommSplit)(NcclComm comm, int color, int key, NcclComm* part, NcclConfig* config) = nullptr;
  NcclResult (*CommFinalize)(NcclComm comm) = nullptr;
  NcclResult (*CommDestroy)(NcclComm comm) = nullptr;
  NcclResult (*CommAbort)(NcclComm comm) = nullptr;
  NcclResult (*CommGetAsyncError)(NcclComm comm, NcclResult* error) = nullptr;
  // Everything enqueued between these two is one operation.
  NcclResult (*GroupStart)() = nullptr;
  NcclResult (*GroupEnd)() = nullptr;
  // Point-to-point and collective operations, enqueued on `stream`.
  NcclResult (*Send)(const void* data, size_t count, NcclDataType type, int peer, NcclComm comm,
                     void* stream) = nullptr;
  NcclResult (*Recv)(void* data, size_t count, NcclDataType type, int peer, NcclComm comm, void* stream) = nullptr;
  NcclResult (*AllGather)(const void* send, void* receive, size_t send_count, NcclDataType type, NcclComm comm,
                          void* stream) = nullptr;
  NcclResult (*ReduceScatter)(const void* send, void* receive, size_t receive_count, NcclDataType type, NcclRedOp op,
                              NcclComm comm, void* stream) = nullptr;
  NcclResult (*AllReduce)(const void* send, void* receive, size_t count, NcclDataType type, NcclRedOp op, NcclComm comm,
                          void* stream) = nullptr;

  // Optional, since 2.28.3: null if the library is older. `count` is what goes to one peer.
  NcclResult (*AlltoAll)(const void* send, void* receive, size_t count, NcclDataType type, NcclComm comm,
                         void* stream) = nullptr;

  int version = 0;     // 22809 is 2.28.9
  std::string origin;  // where the functions are from: "already in the process", or the path of the library
};

// The NCCL of this process: the copy that is already loaded, else the library at RESHARD_NCCL_LIBRARY, else the
// libnccl.so.2 that the loader finds. Loaded once and never unloaded.
// Unavailable: no library was found; the message says where LoadNcclApi looked and what to do. FailedPrecondition: the
// library is older than 2.18, or lacks a required function.
absl::StatusOr<const NcclApi*> LoadNcclApi();

// "2.28.9" for 22809, "2.8.4" for 2804.
std::string NcclVersionText(int version);

}  // namespace reshard

#endif  // RESHARD_NCCL_NCCL_API_H_
