#include "reshard/runtime/local_world.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/local/local_communicator.h"
#include "status/macros.h"
#include "status/no_throw.h"

namespace reshard {
namespace {

std::vector<int64_t> FirstIds(int64_t count) {
  std::vector<int64_t> ids(static_cast<size_t>(std::max<int64_t>(count, 1)));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

std::vector<int64_t> Sorted(std::vector<int64_t> ids) {
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace

LocalWorld::LocalWorld(int64_t ranks, LocalWorldOptions options) : LocalWorld(FirstIds(ranks), options) {
  assert(ranks >= 1);
}

LocalWorld::LocalWorld(std::vector<int64_t> device_ids, LocalWorldOptions options)
    : device_ids_(Sorted(std::move(device_ids))), options_(options) {}

LocalWorld::Outcome LocalWorld::RunThreads(absl::FunctionRef<absl::Status(Communicator&)> body) {
  const size_t ranks = device_ids_.size();
  local::LocalShared shared(device_ids_, options_.timeout);
  Outcome outcome;
  outcome.statuses.assign(ranks, absl::OkStatus());
  const auto run_rank = [&](size_t index) {
    local::LocalCommunicator communicator(&shared, index);
    absl::Status status = status::NoThrow("running a rank", [&] { return body(communicator); });
    if (status.ok()) {
      shared.rendezvous.Leave(index);
    } else {
      shared.rendezvous.Fail(index, status);
    }
    outcome.statuses[index] = std::move(status);
  };
  std::vector<std::thread> threads;
  threads.reserve(ranks);
  for (size_t i = 0; i < ranks; ++i) {
    try {
      threads.emplace_back(run_rank, i);
    } catch (const std::system_error& error) {
      // The ranks that run already must not wait for those that never will.
      const absl::Status status = absl::ResourceExhaustedError(
          absl::StrCat("could not start ", ranks, " threads, only ", i, ": ", error.what()));
      for (size_t rest = i; rest < ranks; ++rest) outcome.statuses[rest] = status;
      shared.rendezvous.Fail(i, status);
      break;
    }
  }
  for (std::thread& thread : threads) thread.join();
  outcome.first_failure = shared.rendezvous.first_failure();
  return outcome;
}

std::vector<absl::Status> LocalWorld::RunEach(absl::FunctionRef<absl::Status(Communicator&)> body) {
  return RunThreads(body).statuses;
}

absl::Status LocalWorld::Run(absl::FunctionRef<absl::Status(Communicator&)> body) {
  Outcome outcome;
  RETURN_IF_ERROR(status::NoThrow("starting the ranks", [&]() -> absl::Status {
    outcome = RunThreads(body);
    return absl::OkStatus();
  }));
  size_t culprit = static_cast<size_t>(std::max<int64_t>(outcome.first_failure, 0));
  if (outcome.first_failure < 0 || outcome.statuses[culprit].ok()) {
    // No rank failed by itself, or it hid its error: the first rank that reports one counts.
    culprit = 0;
    while (culprit < outcome.statuses.size() && outcome.statuses[culprit].ok()) ++culprit;
    if (culprit == outcome.statuses.size()) return absl::OkStatus();
    return outcome.statuses[culprit];
  }
  const absl::Status& status = outcome.statuses[culprit];
  return {status.code(), absl::StrCat("rank ", device_ids_[culprit], ": ", status.message())};
}

}  // namespace reshard
