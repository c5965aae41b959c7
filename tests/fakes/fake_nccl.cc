#include "tests/fakes/fake_nccl.h"

#include "tests/fakes/fake_cuda.h"
#include "tests/fakes/fake_nccl_state.h"

namespace reshard::testing {
namespace fake {
namespace {

NcclResult GetVersion(int* version) {
  const Lock lock(TheWorld().mutex);
  if (const NcclResult result = TheNccl().book.Count("GetVersion", -1)) return result;
  *version = 22809;
  return kNcclSuccess;
}

const char* GetErrorString(NcclResult result) {
  static const char* const texts[] = {"no error",
                                      "unhandled cuda error",
                                      "unhandled system error",
                                      "internal error",
                                      "invalid argument",
                                      "invalid usage",
                                      "remote process exited or there was a network error",
                                      "NCCL operation in progress"};
  return result >= 0 && result <= kNcclInProgress ? texts[result] : "unknown result code";
}

const char* GetLastError(NcclComm) {
  // The words stay where they are until this thread asks again.
  thread_local std::string words;
  const Lock lock(TheWorld().mutex);
  words = TheNccl().last_error;
  return words.c_str();
}

}  // namespace

NcclState& TheNccl() {
  static NcclState* const state = new NcclState();
  return *state;
}

std::string Comm::Text() const {
  return "rank " + std::to_string(rank) + " of communicator " + std::to_string(clique->number);
}

void Comm::Fail(NcclResult result, const std::string& why) {
  if (error != kNcclSuccess) return;  // the first one stays
  error = result;
  last_error = why;
  TheNccl().last_error = why;
  TheWorld().changed.notify_all();
}

NcclResult WrongUse(NcclResult result, const std::string& what) {
  TheNccl().last_error = what;
  TheWorld().Complain(what);
  return result;
}

int64_t& CallsInside() {
  static int64_t calls = 0;
  return calls;
}

CommCall::CommCall(Lock& lock, const char* function, NcclComm handle, Allow allow) {
  NcclState& nccl = TheNccl();
  for (const auto& one : nccl.comms) {
    if (one.get() == handle) comm_ = one.get();
  }
  result_ = nccl.book.Count(function, comm_ == nullptr ? -1 : comm_->device->ordinal);
  if (result_ != kNcclSuccess) return;
  if (comm_ == nullptr) {
    result_ = WrongUse(kNcclInvalidArgument, std::string(function) + " of what is not a communicator");
    return;
  }
  const std::string where = comm_->Text() + ", " + function + ": ";
  const auto none = std::thread::id();
  const auto self = std::this_thread::get_id();
  if (comm_->inside != none || (comm_->group_of != none && comm_->group_of != self)) {
    result_ = WrongUse(kNcclInvalidUsage, where + "another thread uses the communicator at the same time");
  } else if (comm_->gone()) {
    result_ = WrongUse(kNcclInvalidArgument, where + "it was destroyed or aborted before");
  } else if (comm_->in_progress() && !allow.in_progress) {
    result_ = WrongUse(kNcclInvalidArgument, where + "what was called before is still in progress");
  } else if (comm_->finalized && !allow.finalized) {
    result_ = WrongUse(kNcclInvalidUsage, where + "it was finalized before");
  } else if (comm_->error != kNcclSuccess && !allow.failed) {
    result_ = comm_->error;
  }
  if (result_ != kNcclSuccess) return;
  // Another thread that is in a call now, too, gets the chance to show.
  comm_->inside = self;
  entered_ = true;
  ++CallsInside();
  lock.unlock();
  std::this_thread::yield();
  lock.lock();
}

CommCall::~CommCall() {
  if (!entered_) return;
  comm_->inside = std::thread::id();
  --CallsInside();
  TheWorld().changed.notify_all();
}

}  // namespace fake

const NcclApi& FakeNccl::Api() {
  const fake::Lock lock(fake::TheWorld().mutex);
  fake::NcclState& nccl = fake::TheNccl();
  if (nccl.api == nullptr) {
    nccl.api = std::make_unique<NcclApi>();
    nccl.api->GetVersion = fake::GetVersion;
    nccl.api->GetErrorString = fake::GetErrorString;
    nccl.api->GetLastError = fake::GetLastError;
    nccl.api->version = 22809;
    nccl.api->origin = "imagined";
    fake::FillCommFunctions(nccl.api.get());
    fake::FillOperationFunctions(nccl.api.get(), nccl.options.all_to_all);
  }
  return *nccl.api;
}

void FakeNccl::Reset(const FakeNcclOptions& options) {
  fake::Lock lock(fake::TheWorld().mutex);
  // Those of threads that nobody waits for, such as the abort of a communicator that was in a graph.
  fake::TheWorld().changed.wait(lock, [] { return fake::CallsInside() == 0; });
  fake::TheNccl() = fake::NcclState();
  fake::TheNccl().options = options;
}

int64_t FakeNccl::Calls(int rank) {
  const fake::Lock lock(fake::TheWorld().mutex);
  return fake::TheNccl().book.Calls(rank);
}

int64_t FakeNccl::Calls(int rank, const std::string& function) {
  const fake::Lock lock(fake::TheWorld().mutex);
  return fake::TheNccl().book.Calls(rank, function);
}

void FakeNccl::FailAt(int rank, int64_t call, NcclResult result) {
  const fake::Lock lock(fake::TheWorld().mutex);
  fake::TheNccl().book.FailAt(rank, call, result);
}

void FakeNccl::FailAt(int rank, const std::string& function, int64_t nth, NcclResult result) {
  const fake::Lock lock(fake::TheWorld().mutex);
  fake::TheNccl().book.FailAt(rank, function, nth, result);
}

std::vector<FakeOperation> FakeNccl::Operations(int rank) {
  const fake::Lock lock(fake::TheWorld().mutex);
  return fake::TheNccl().operations[rank];
}

int64_t FakeNccl::Groups(int rank) {
  const fake::Lock lock(fake::TheWorld().mutex);
  return fake::TheNccl().groups[rank];
}

void FakeNccl::FailAsync(int rank, int64_t operation, NcclResult result) {
  const fake::Lock lock(fake::TheWorld().mutex);
  fake::TheNccl().fail_async[{rank, operation}] = result;
}

void FakeNccl::Stall(int rank, int64_t operation) {
  const fake::Lock lock(fake::TheWorld().mutex);
  fake::TheNccl().stalled.insert({rank, operation});
}

std::vector<std::string> FakeNccl::Complaints() { return FakeCuda::Complaints(); }

std::vector<std::string> FakeNccl::Leaks() {
  std::vector<std::string> out = FakeCuda::Leaks();
  const fake::Lock lock(fake::TheWorld().mutex);
  for (const auto& comm : fake::TheNccl().comms) {
    if (comm->given && !comm->gone()) out.push_back(comm->Text());
  }
  return out;
}

}  // namespace reshard::testing
