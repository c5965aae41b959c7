// Targets of a load that share memory with each other, such as tied weights, transposes and slices: the checkpoint must
// have one value for every byte.
#ifndef RESHARD_CHECKPOINT_LIVE_SHARED_TARGETS_H_
#define RESHARD_CHECKPOINT_LIVE_SHARED_TARGETS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "reshard/runtime/tensor_view.h"

namespace reshard::live {

// The targets of one rank, in the order in which they are settled. Targets whose address ranges meet, directly or
// through others, form a set; the first of a set is loaded where it is, and each of the others is staged: loaded into
// memory of its own, compared with what the set has so far, and only then copied.
class SharedTargets {
 public:
  SharedTargets() = default;
  // No target may have two indices for one address (MayOverlapItself). Targets without elements share nothing.
  explicit SharedTargets(std::vector<TensorView> targets);

  // Whether target i has to be staged.
  bool staged(size_t i) const { return sets_[i] >= 0 && !first_[i]; }
  // Bytes of memory that staging target i takes.
  int64_t StagedBytes(size_t i) const;
  // Target i in that memory: the same shape, without gaps, its dimensions in the target's memory order.
  TensorView StagedIn(size_t i, char* memory) const;

  // Settles target i after it was loaded: into `loaded` if it is staged, else in place. Calls come in the order of the
  // targets. Post-condition: the target holds what was loaded. If an earlier target of the set has other contents at
  // an address that both have, returns that target, and the contents of the set are unspecified.
  std::optional<size_t> Settle(size_t i, const ConstTensorView& loaded);

 private:
  struct Set {
    const char* first = nullptr;  // of the bytes of all targets
    const char* end = nullptr;
    std::vector<size_t> settled;
    std::vector<bool> written;  // by byte; made for the first target that no single settled one is known to cover
  };

  const char* FirstDifference(size_t i, const ConstTensorView& loaded) const;
  const char* FirstDifferenceOrWrite(size_t i, const ConstTensorView& loaded, Set& set);
  void MarkWritten(size_t i, Set& set) const;

  std::vector<TensorView> targets_;
  std::vector<int64_t> sets_;  // of each target; -1: it shares nothing
  std::vector<bool> first_;    // of its set
  std::vector<Set> list_;
};

}  // namespace reshard::live

#endif  // RESHARD_CHECKPOINT_LIVE_SHARED_TARGETS_H_
