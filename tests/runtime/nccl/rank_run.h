// One rank's part of a redistribution on a GPU, or on what a test puts in its place: tensors are filled by logical
// index on the host, go to the device, are redistributed, come back, and are checked by logical index.
#ifndef RESHARD_TESTS_RUNTIME_NCCL_RANK_RUN_H_
#define RESHARD_TESTS_RUNTIME_NCCL_RANK_RUN_H_

#include "absl/status/status.h"
#include "reshard/nccl/nccl_communicator.h"
#include "reshard/planner/plan.h"
#include "reshard/runtime/executor.h"
#include "runtime/self_test/logical_content.h"

namespace reshard::testing {

struct RankRun {
  bool strided = false;  // fragments with gaps between their elements
  Agreement agreement = Agreement::kOff;
  int times = 1;  // executions of the same program, each into outputs that hold something else
};

// OK when every element is right, the source and the gaps are as they were, and as many bytes were counted as the plan
// says. Collective over all ranks of the communicator.
absl::Status RunOnRank(const Plan& plan, const self_test::LogicalContent& content, NcclCommunicator& comm,
                       const RankRun& how = {});

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_RUNTIME_NCCL_RANK_RUN_H_
