#include "runtime/mpi/mpi_messages.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/mpi/backoff.h"
#include "status/macros.h"

namespace reshard::mpi {
namespace {

// MPI counts are ints.
constexpr int64_t kLongestMessage = int64_t{1} << 30;

// How long MPI may take to give back what was cancelled.
constexpr absl::Duration kGrace = absl::Seconds(2);

// One message: a request for each kLongestMessage of it.
struct Message {
  int64_t peer = 0;
  std::vector<MPI_Request> requests;
};

}  // namespace

bool IsRunning() {
  int begun = 0;
  int ended = 0;
  MPI_Initialized(&begun);
  MPI_Finalized(&ended);
  return begun != 0 && ended == 0;
}

std::string TextOf(int error) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(error, text, &length);
  return std::string(text, static_cast<size_t>(std::max(length, 0)));
}

class MpiRound final : public packed::MessageRound {
 public:
  explicit MpiRound(MpiMessages* owner) : owner_(*owner) {}

  ~MpiRound() override {
    if (IsRunning()) Abandon();
  }

  absl::Status PostReceive(int64_t peer, void* data, int64_t bytes) override {
    return Post(peer, bytes, &receives_, [&](int64_t at, int length, MPI_Request* request) {
      return MPI_Irecv(static_cast<char*>(data) + at, length, MPI_BYTE, static_cast<int>(peer), owner_.tag_,
                       owner_.comm_, request);
    });
  }
  absl::Status PostSend(int64_t peer, const void* data, int64_t bytes) override {
    return Post(peer, bytes, &sends_, [&](int64_t at, int length, MPI_Request* request) {
      return MPI_Isend(static_cast<const char*>(data) + at, length, MPI_BYTE, static_cast<int>(peer), owner_.tag_,
                       owner_.comm_, request);
    });
  }
  absl::Status Posted() override { return absl::OkStatus(); }
  absl::Status WaitReceive(size_t index) override { return Wait(receives_[index]); }
  absl::Status WaitSends() override {
    for (Message& message : sends_) {
      RETURN_IF_ERROR(Wait(message));
    }
    return absl::OkStatus();
  }

 private:
  template <typename F>
  absl::Status Post(int64_t peer, int64_t bytes, std::vector<Message>* list, F&& post) {
    Message& message = list->emplace_back(Message{peer, {}});
    for (int64_t at = 0; at < bytes; at += kLongestMessage) {
      const auto length = static_cast<int>(std::min(bytes - at, kLongestMessage));
      MPI_Request request = MPI_REQUEST_NULL;
      const int error = post(at, length, &request);
      if (error != MPI_SUCCESS) return Fail(peer, TextOf(error));
      message.requests.push_back(request);
    }
    return absl::OkStatus();
  }

  // The error of a message that did not come from, or go to, a peer. Nothing is in flight afterwards, or the error says
  // so.
  absl::Status Fail(int64_t peer, const std::string& reason) {
    const absl::Status status = owner_.find_culprit_(peer, reason);
    Abandon();
    if (!owner_.holds_) return status;
    return absl::Status(status.code(), absl::StrCat(status.message(),
                                                    "; MPI holds on to messages of this rank: what was passed to the "
                                                    "call must not be freed"));
  }

  absl::Status Wait(Message& message) {
    bool announced = false;
    Backoff backoff;
    const absl::Time deadline = absl::Now() + owner_.timeout_;
    for (MPI_Request& request : message.requests) {
      for (;;) {
        if (owner_.aborted_) return Fail(message.peer, "");
        int done = 0;
        const int error = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (error != MPI_SUCCESS) return Fail(message.peer, TextOf(error));
        if (done != 0) break;
        if (!announced) owner_.board_->WaitFor(message.peer);
        announced = true;
        if (backoff.Pause() && absl::Now() > deadline) return Fail(message.peer, "");
      }
    }
    return absl::OkStatus();
  }

  // Takes back what is still in flight.
  void Abandon() {
    std::vector<MPI_Request*> left;
    for (std::vector<Message>* list : {&receives_, &sends_}) {
      for (Message& message : *list) {
        for (MPI_Request& request : message.requests) {
          int done = 0;
          if (request == MPI_REQUEST_NULL) continue;
          if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done != 0) continue;
          if (request != MPI_REQUEST_NULL) left.push_back(&request);
        }
      }
    }
    for (MPI_Request* request : left) MPI_Cancel(request);
    const absl::Time deadline = absl::Now() + kGrace;
    Backoff backoff;
    const auto ended = [](MPI_Request* request) {
      int done = 0;
      return MPI_Test(request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0 || *request == MPI_REQUEST_NULL;
    };
    while (!left.empty() && absl::Now() < deadline) {
      std::erase_if(left, ended);
      if (!left.empty()) backoff.Pause();
    }
    if (!left.empty()) owner_.holds_ = true;
  }

  MpiMessages& owner_;
  std::vector<Message> receives_;
  std::vector<Message> sends_;
};

MpiMessages::MpiMessages(MPI_Comm comm, absl::Duration timeout, peers::PeerBoard* board,
                         peers::FindCulprit find_culprit)
    : comm_(comm), timeout_(timeout), board_(board), find_culprit_(std::move(find_culprit)) {
  int size = 0;
  int rank = 0;
  MPI_Comm_size(comm_, &size);
  MPI_Comm_rank(comm_, &rank);
  world_size_ = size;
  rank_ = rank;
  void* value = nullptr;
  int known = 0;
  if (MPI_Comm_get_attr(comm_, MPI_TAG_UB, &value, &known) == MPI_SUCCESS && known != 0) {
    largest_tag_ = *static_cast<const int*>(value);
  }
}

MpiMessages::~MpiMessages() {
  // MPI may still need the communicator for the messages that it holds on to.
  if (IsRunning() && !holds_) MPI_Comm_free(&comm_);
}

absl::Status MpiMessages::Gone() const { return absl::UnavailableError("the MPI communicator has been closed"); }

absl::Status MpiMessages::Begin() {
  return IsRunning() ? absl::OkStatus() : absl::UnavailableError("MPI has been finalized");
}

std::unique_ptr<packed::MessageRound> MpiMessages::NewRound() { return std::make_unique<MpiRound>(this); }

absl::Status MpiMessages::AllToAll(const void* send, absl::Span<const int64_t> send_bytes, void* receive,
                                   absl::Span<const int64_t> receive_bytes) {
  std::vector<const char*> from;
  std::vector<char*> to;
  const char* next_from = static_cast<const char*>(send);
  char* next_to = static_cast<char*>(receive);
  for (size_t r = 0; r < send_bytes.size(); ++r) {
    from.push_back(std::exchange(next_from, next_from + send_bytes[r]));
    to.push_back(std::exchange(next_to, next_to + receive_bytes[r]));
  }
  MpiRound round(this);
  size_t posted = 0;
  for (int64_t k = 1; k < world_size_; ++k) {
    const auto peer = static_cast<size_t>((rank_ + k) % world_size_);
    if (receive_bytes[peer] == 0) continue;
    RETURN_IF_ERROR(round.PostReceive(static_cast<int64_t>(peer), to[peer], receive_bytes[peer]));
    ++posted;
  }
  for (int64_t k = 1; k < world_size_; ++k) {
    const auto peer = static_cast<size_t>((rank_ + k) % world_size_);
    if (send_bytes[peer] == 0) continue;
    RETURN_IF_ERROR(round.PostSend(static_cast<int64_t>(peer), from[peer], send_bytes[peer]));
  }
  const auto own = static_cast<size_t>(rank_);
  std::memcpy(to[own], from[own], static_cast<size_t>(send_bytes[own]));
  for (size_t i = 0; i < posted; ++i) {
    RETURN_IF_ERROR(round.WaitReceive(i));
  }
  return round.WaitSends();
}

}  // namespace reshard::mpi
