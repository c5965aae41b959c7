#include "runtime/groups/c10d_messages.h"

#include <ATen/Functions.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <numeric>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/groups/c10d_rendezvous_store.h"
#include "runtime/groups/why_not.h"
#include "status/macros.h"

namespace reshard::groups {

namespace {

std::chrono::milliseconds StallTimeout(absl::Duration timeout) {
  return std::chrono::milliseconds(std::max<int64_t>(1, absl::ToInt64Milliseconds(timeout)));
}

}  // namespace

class C10dRound final : public packed::MessageRound {
 public:
  C10dRound(C10dMessages* owner, bool coalesces) : owner_(*owner), coalesces_(coalesces) {
    const status::MutexLock lock(owner_.mutex_);
    owner_.round_ = this;
    aborted_ = owner_.aborted_;
  }
  ~C10dRound() override {
    const status::MutexLock lock(owner_.mutex_);
    owner_.round_ = nullptr;
    // Dropping a request of Gloo withdraws its memory.
    receives_.clear();
    sends_.clear();
  }

  absl::Status PostReceive(int64_t peer, void* data, int64_t bytes) override {
    return Post(peer, data, bytes, &receives_, false);
  }
  absl::Status PostSend(int64_t peer, const void* data, int64_t bytes) override {
    return Post(peer, const_cast<void*>(data), bytes, &sends_, true);
  }

  absl::Status Posted() override {
    if (!coalesces_ || (receives_.empty() && sends_.empty())) return absl::OkStatus();
    return Try(-1, [&] {
      owner_.backend_->startCoalescing();
      for (Request& request : receives_) owner_.backend_->recv(request.tensors, static_cast<int>(request.peer), Tag());
      for (Request& request : sends_) owner_.backend_->send(request.tensors, static_cast<int>(request.peer), Tag());
      group_ = owner_.backend_->endCoalescing();
    });
  }

  absl::Status WaitReceive(size_t index) override {
    if (coalesces_) return WaitGroup();
    return Wait(receives_[index]);
  }

  absl::Status WaitSends() override {
    if (coalesces_) return WaitGroup();
    for (Request& request : sends_) {
      RETURN_IF_ERROR(Wait(request));
    }
    return absl::OkStatus();
  }

  // Called with the owner's mutex held.
  void Abort() {
    aborted_ = true;
    for (std::vector<Request>* list : {&receives_, &sends_}) {
      for (Request& request : *list) {
        if (request.work == nullptr) continue;
        try {
          request.work->abort();
        } catch (const std::exception&) {
          // A backend that cannot abort waits for its deadline instead.
        }
      }
    }
  }

 private:
  struct Request {
    int64_t peer = 0;
    std::vector<at::Tensor> tensors;
    c10::intrusive_ptr<c10d::Work> work;
  };

  // Tags of this library are distinct from the small numbers that people choose.
  int Tag() const { return static_cast<int>(0x40000000 | (owner_.operation_ & 0x3FFFFFFF)); }

  absl::Status Post(int64_t peer, void* data, int64_t bytes, std::vector<Request>* list, bool sends) {
    Request request{peer, {at::from_blob(data, {bytes}, at::TensorOptions(at::kByte))}, nullptr};
    absl::Status status;
    if (!coalesces_) {
      status = Try(peer, [&] {
        request.work = sends ? owner_.backend_->send(request.tensors, static_cast<int>(peer), Tag())
                             : owner_.backend_->recv(request.tensors, static_cast<int>(peer), Tag());
      });
    }
    const status::MutexLock lock(owner_.mutex_);
    list->push_back(std::move(request));
    return status;
  }

  absl::Status Wait(Request& request) {
    bool aborted = false;
    {
      const status::MutexLock lock(owner_.mutex_);
      aborted = aborted_;
    }
    if (aborted) return owner_.find_culprit_(request.peer, "");
    owner_.board_->WaitFor(request.peer);
    bool completed = false;
    RETURN_IF_ERROR(Try(request.peer, [&] { completed = request.work->wait(StallTimeout(owner_.timeout_)); }));
    return completed ? absl::OkStatus() : owner_.find_culprit_(request.peer, "");
  }

  absl::Status WaitGroup() {
    if (group_ == nullptr) return absl::OkStatus();
    const c10::intrusive_ptr<c10d::Work> group = std::exchange(group_, nullptr);
    return Try(-1, [&] { group->wait(StallTimeout(owner_.timeout_)); });
  }

  template <typename F>
  absl::Status Try(int64_t peer, F&& f) {
    const std::string reason = WhyNot(f);
    return reason.empty() ? absl::OkStatus() : owner_.find_culprit_(peer, reason);
  }

  C10dMessages& owner_;
  const bool coalesces_;
  std::vector<Request> receives_;
  std::vector<Request> sends_;
  c10::intrusive_ptr<c10d::Work> group_;
  bool aborted_ ABSL_GUARDED_BY(owner_.mutex_) = false;
};

absl::Status C10dMessages::Begin() {
  held_ = group_.lock();
  if (held_ == nullptr) return Gone();
  const std::string failed = WhyNot([&] { backend_ = held_->getBackend(c10::DeviceType::CPU); });
  if (failed.empty()) return absl::OkStatus();
  End();
  return absl::FailedPreconditionError(absl::StrCat("the process group has no backend for host memory: ", failed));
}

// Made when it is needed: it holds the group's store.
std::unique_ptr<RendezvousStore> C10dMessages::Store() {
  const c10::intrusive_ptr<c10d::ProcessGroup> group = group_.lock();
  if (group == nullptr || group->getStore() == nullptr) return nullptr;
  return std::make_unique<C10dRendezvousStore>(group, "", C10dRendezvousStore::Connection::kGroups);
}

std::unique_ptr<packed::MessageRound> C10dMessages::NewRound() {
  return std::make_unique<C10dRound>(this, backend_->supportsCoalescing());
}

absl::Status C10dMessages::AllToAll(const void* send, absl::Span<const int64_t> send_bytes, void* receive,
                                    absl::Span<const int64_t> receive_bytes) {
  std::vector<int64_t> out(send_bytes.begin(), send_bytes.end());
  std::vector<int64_t> in(receive_bytes.begin(), receive_bytes.end());
  const int64_t out_total = std::accumulate(out.begin(), out.end(), int64_t{0});
  const int64_t in_total = std::accumulate(in.begin(), in.end(), int64_t{0});
  {
    const status::MutexLock lock(mutex_);
    if (aborted_) return find_culprit_(-1, "");
    together_ = true;
  }
  board_->WaitFor(peers::PeerState::kEverybody);
  c10::intrusive_ptr<c10d::Work> work;
  const std::string failed = WhyNot([&] {
    at::Tensor input = at::from_blob(const_cast<void*>(send), {out_total}, at::TensorOptions(at::kByte));
    at::Tensor output = at::from_blob(receive, {in_total}, at::TensorOptions(at::kByte));
    work = backend_->alltoall_base(output, input, in, out);
    work->wait(StallTimeout(timeout_));
  });
  {
    const status::MutexLock lock(mutex_);
    together_ = false;
  }
  if (failed.empty()) return absl::OkStatus();
  const absl::Status status = find_culprit_(-1, failed);
  if (work != nullptr && !work->isCompleted()) {
    // The time is over, but the backend is still at work: it must not touch the buffers once this has returned.
    Disconnect();
    while (!work->isCompleted()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return status;
}

void C10dMessages::Disconnect() {
  // A receive of Gloo that is not served in time closes all connections of its group. One whose connection is closed
  // already fails before that, so every peer is tried.
  const auto rank = static_cast<int64_t>(backend_->getRank());
  for (int64_t peer = 0; peer < world_size_; ++peer) {
    if (peer == rank) continue;
    try {
      std::vector<at::Tensor> token = {at::empty({1}, at::TensorOptions(at::kByte))};
      constexpr int kNobodysTag = 0x7FFFFFFF;
      backend_->recv(token, static_cast<int>(peer), kNobodysTag)->wait(std::chrono::milliseconds(1));
    } catch (const std::exception&) {
    }
  }
}

void C10dMessages::Abort() {
  const status::MutexLock lock(mutex_);
  aborted_ = true;
  if (round_ != nullptr) round_->Abort();
  if (together_) Disconnect();
}

}  // namespace reshard::groups
