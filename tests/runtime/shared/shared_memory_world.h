// Ranks that share memory: as threads of this process, where ThreadSanitizer sees all of it, and as processes.
#ifndef RESHARD_TESTS_RUNTIME_SHARED_SHARED_MEMORY_WORLD_H_
#define RESHARD_TESTS_RUNTIME_SHARED_SHARED_MEMORY_WORLD_H_

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reshard/runtime/communicator.h"
#include "runtime/packed/packed_step.h"
#include "runtime/shared/bootstrap.h"
#include "runtime/shared/shared_memory_transport.h"

namespace reshard::testing {

// Nobody can be asked: an error says for whom this rank waited.
inline shared::WaitContext PlainWatch() {
  return {[](int64_t) {},
          [](int64_t rank, const std::string& reason) {
            const std::string whom = rank < 0 ? "several ranks" : absl::StrCat("rank ", rank);
            return reason.empty() ? absl::DeadlineExceededError(absl::StrCat("waited for ", whom))
                                  : absl::UnavailableError(absl::StrCat(whom, " is gone: ", reason));
          }};
}

class SharedMemoryCommunicator final : public Communicator, private packed::MessageTransport {
 public:
  SharedMemoryCommunicator(std::unique_ptr<shared::SharedMemoryTransport> transport, int64_t size)
      : transport_(std::move(transport)), size_(size) {}
  shared::SharedMemoryTransport& transport() { return *transport_; }

  bool has_rank(int64_t) const override { return true; }
  int64_t rank() const override { return transport_->rank(); }
  int64_t world_size() const override { return size_; }  // of both bases
  CopyFor copies() const override { return CopyFor::kMessages; }
  // Whether this rank has an error at the next agreement.
  void Refuse(bool refuses) { refuses_ = refuses; }
  absl::Status Agree(const absl::Status& own, const Signature&) override {
    std::vector<char> refusals(static_cast<size_t>(size_));
    refusals[rank()] = refuses_ || !own.ok() ? 1 : 0;
    const absl::Status gathered = transport_->AllGather(refusals.data(), 1);
    if (!gathered.ok()) return gathered;
    if (std::find(refusals.begin(), refusals.end(), 1) == refusals.end()) return absl::OkStatus();
    transport_->Rollback();
    // As the details of an agreement are exchanged, which nobody leaves before all have taken back.
    const absl::Status met = Barrier();
    return met.ok() ? absl::AbortedError("refused") : met;
  }
  absl::Status AgreeBefore(const StepProgram& next, absl::Span<const ConstTensorView> inputs,
                           const Signature& problem) override {
    packed::Prepack(next, inputs, static_cast<uint64_t>(operations_ + 1) ^ next.salt, *transport_);
    return Agree(absl::OkStatus(), problem);
  }
  absl::StatusOr<MoveStats> ExecuteStep(const StepProgram& step, absl::Span<const ConstTensorView> inputs,
                                        absl::Span<const TensorView> outputs,
                                        std::unique_ptr<StepMemo>* /*memo*/) override {
    transport_->SetTag(static_cast<uint64_t>(++operations_) ^ step.salt);
    return packed::ExecutePackedStep(step, rank(), inputs, outputs, *this, transport_.get());
  }
  absl::Status Barrier() override {
    std::vector<char> tokens(static_cast<size_t>(size_));
    return transport_->AllGather(tokens.data(), 1);
  }

 private:
  std::unique_ptr<packed::MessageRound> NewRound() override { return nullptr; }
  bool PrefersAllToAll(int64_t, int64_t) const override { return true; }
  absl::Status AllToAll(const void*, absl::Span<const int64_t>, void*, absl::Span<const int64_t>) override {
    return absl::InternalError("a message between ranks that share memory");
  }

  std::unique_ptr<shared::SharedMemoryTransport> transport_;
  const int64_t size_;
  int64_t operations_ = 0;
  bool refuses_ = false;
};

using SharedMemoryBody = std::function<absl::Status(SharedMemoryCommunicator&)>;

// Runs body once a rank, each in a thread; the errors in the order of `ranks`, which ascend.
inline std::vector<absl::Status> RunSharedMemoryThreads(const std::vector<int64_t>& ranks, const SharedMemoryBody& body,
                                                        absl::Duration timeout = absl::Seconds(20)) {
  std::vector<shared::Segment> segments;
  for (const int64_t rank : ranks) {
    std::vector<int64_t> others;
    std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(others), [&](int64_t r) { return r != rank; });
    absl::StatusOr<shared::Segment> segment = shared::Segment::Create(rank, others);
    if (!segment.ok()) return {segment.status()};
    segments.push_back(*std::move(segment));
  }
  std::vector<std::vector<shared::Descriptor>> connections(ranks.size());  // of one to each other
  for (std::vector<shared::Descriptor>& of : connections) of.resize(ranks.size());
  for (size_t i = 0; i < ranks.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      int pair[2];
      if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return {absl::InternalError("no socket")};
      connections[i][k] = shared::Descriptor(pair[0]);
      connections[k][i] = shared::Descriptor(pair[1]);
    }
  }
  std::vector<absl::Status> statuses(ranks.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] {
      std::vector<shared::LocalPeer> others;
      for (size_t k = 0; k < ranks.size(); ++k) {
        if (k != i) others.push_back({ranks[k], segments[k].Borrow(), std::move(connections[i][k]), {}});
      }
      SharedMemoryCommunicator communicator(std::make_unique<shared::SharedMemoryTransport>(
                                                segments[i].Borrow(), std::move(others), true, timeout, PlainWatch()),
                                            static_cast<int64_t>(ranks.size()));
      statuses[i] = body(communicator);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

// What processes that are about to find each other say to each other, in memory that they inherit.
struct SharedMemoryRendezvous {
  static constexpr int64_t kMost = 64;
  std::atomic<int64_t> arrived{0};
  shared::SocketName names[kMost] = {};
  bool mapped[kMost][kMost] = {};
  int codes[kMost] = {};
  char messages[kMost][512] = {};

  static std::shared_ptr<SharedMemoryRendezvous> Create() {
    void* const memory =
        mmap(nullptr, sizeof(SharedMemoryRendezvous), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return {new (memory) SharedMemoryRendezvous,
            [](SharedMemoryRendezvous* meeting) { munmap(meeting, sizeof(SharedMemoryRendezvous)); }};
  }
  // The n-th meeting of `ranks`, counted from 1.
  void Arrive(int64_t ranks, int64_t n) {
    arrived.fetch_add(1);
    while (arrived.load() < ranks * n) std::this_thread::yield();
  }
};

// This process's end of a world of `ranks` processes.
inline absl::StatusOr<std::unique_ptr<SharedMemoryCommunicator>> ConnectSharedMemory(SharedMemoryRendezvous& meeting,
                                                                                     int64_t rank, int64_t ranks,
                                                                                     absl::Duration timeout) {
  absl::StatusOr<shared::Bootstrap> bootstrap = shared::Bootstrap::Listen(rank);
  if (!bootstrap.ok()) return bootstrap.status();
  meeting.names[rank] = bootstrap->name();
  meeting.Arrive(ranks, 1);
  const absl::Status offered = bootstrap->Offer({meeting.names, static_cast<size_t>(ranks)});
  meeting.Arrive(ranks, 2);
  bootstrap->Accept();
  std::vector<bool> mutual;
  for (int64_t r = 0; r < ranks; ++r) meeting.mapped[rank][r] = bootstrap->mapped(r);
  meeting.Arrive(ranks, 3);
  for (int64_t r = 0; r < ranks; ++r) mutual.push_back(meeting.mapped[rank][r] && meeting.mapped[r][rank]);
  std::vector<shared::LocalPeer> others = bootstrap->Keep(mutual);
  if (!offered.ok()) return offered;
  if (static_cast<int64_t>(others.size()) != ranks - 1) return absl::InternalError("not all have met");
  return std::make_unique<SharedMemoryCommunicator>(
      std::make_unique<shared::SharedMemoryTransport>(bootstrap->TakeSegment(), std::move(others), true, timeout,
                                                      PlainWatch()),
      ranks);
}

// Runs body once a rank, each in a process of its own. A process that ends in any other way than by returning from it
// counts as Unknown. `names` gets those of their sockets.
inline std::vector<absl::Status> RunSharedMemoryProcesses(int64_t ranks, const SharedMemoryBody& body,
                                                          absl::Duration timeout = absl::Seconds(20),
                                                          std::vector<shared::SocketName>* names = nullptr) {
  const std::shared_ptr<SharedMemoryRendezvous> meeting = SharedMemoryRendezvous::Create();
  std::vector<pid_t> children;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      absl::StatusOr<std::unique_ptr<SharedMemoryCommunicator>> communicator =
          ConnectSharedMemory(*meeting, rank, ranks, timeout);
      const absl::Status status = communicator.ok() ? body(**communicator) : communicator.status();
      const std::string message(status.message());
      std::strncpy(meeting->messages[rank], message.c_str(), sizeof(meeting->messages[rank]) - 1);
      meeting->codes[rank] = static_cast<int>(status.code());
      _exit(0);
    }
    children.push_back(child);
  }
  std::vector<absl::Status> statuses;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    int ended = 0;
    waitpid(children[rank], &ended, 0);
    const bool returned = WIFEXITED(ended) && WEXITSTATUS(ended) == 0;
    statuses.emplace_back(returned ? static_cast<absl::StatusCode>(meeting->codes[rank]) : absl::StatusCode::kUnknown,
                          meeting->messages[rank]);
  }
  if (names != nullptr) names->assign(meeting->names, meeting->names + ranks);
  return statuses;
}

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_RUNTIME_SHARED_SHARED_MEMORY_WORLD_H_
