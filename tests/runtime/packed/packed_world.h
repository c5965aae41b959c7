// Ranks as threads whose backend carries messages only: what a process group is to the library, without processes.
#ifndef RESHARD_TESTS_RUNTIME_PACKED_PACKED_WORLD_H_
#define RESHARD_TESTS_RUNTIME_PACKED_PACKED_WORLD_H_

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "reshard/runtime/communicator.h"
#include "runtime/packed/packed_step.h"

namespace reshard::testing {

// Mail between ranks: per pair a queue of messages, and the bytes that went through.
class Mail {
 public:
  void Put(int64_t from, int64_t to, std::vector<char> message) {
    const std::lock_guard<std::mutex> lock(mutex_);
    queues_[{from, to}].push_back(std::move(message));
    changed_.notify_all();
  }
  // A message of `bytes`. What is never sent is found after two minutes: a machine may be busy with other things.
  absl::StatusOr<std::vector<char>> Take(int64_t from, int64_t to, int64_t bytes) {
    std::unique_lock<std::mutex> lock(mutex_);
    std::deque<std::vector<char>>& queue = queues_[{from, to}];
    changed_.wait_for(lock, std::chrono::minutes(2), [&] { return !queue.empty(); });
    if (queue.empty()) return absl::DeadlineExceededError("a message did not come");
    std::vector<char> message = std::move(queue.front());
    queue.pop_front();
    if (static_cast<int64_t>(message.size()) != bytes) return absl::InternalError("a message of another length");
    return message;
  }
  bool empty() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [pair, queue] : queues_) {
      if (!queue.empty()) return false;
    }
    return true;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int64_t, int64_t>, std::deque<std::vector<char>>> queues_;
};

class MailRound final : public packed::MessageRound {
 public:
  MailRound(Mail* mail, int64_t rank) : mail_(*mail), rank_(rank) {}
  absl::Status PostReceive(int64_t peer, void* data, int64_t bytes) override {
    receives_.emplace_back(peer, data, bytes);
    return bytes > 0 && peer != rank_ ? absl::OkStatus() : absl::InternalError("an empty message, or one to oneself");
  }
  absl::Status PostSend(int64_t peer, const void* data, int64_t bytes) override {
    if (bytes <= 0 || peer == rank_) return absl::InternalError("an empty message, or one to oneself");
    const auto* begin = static_cast<const char*>(data);
    mail_.Put(rank_, peer, std::vector<char>(begin, begin + bytes));
    return absl::OkStatus();
  }
  absl::Status Posted() override { return absl::OkStatus(); }
  absl::Status WaitReceive(size_t index) override {
    const auto& [peer, data, bytes] = receives_[index];
    const absl::StatusOr<std::vector<char>> message = mail_.Take(peer, rank_, bytes);
    if (message.ok()) std::memcpy(data, message->data(), message->size());
    return message.status();
  }
  absl::Status WaitSends() override { return absl::OkStatus(); }

 private:
  Mail& mail_;
  const int64_t rank_;
  std::vector<std::tuple<int64_t, void*, int64_t>> receives_;
};

class PackedCommunicator final : public Communicator, private packed::MessageTransport {
 public:
  // `together`: steps of ranks 0 .. size-1 go through all-to-alls wherever their figures are known.
  PackedCommunicator(Mail* mail, int64_t rank, int64_t size, bool together)
      : mail_(mail), rank_(rank), size_(size), together_(together) {}
  bool has_rank(int64_t) const override { return true; }
  int64_t rank() const override { return rank_; }
  int64_t world_size() const override { return size_; }  // of both bases
  CopyFor copies() const override { return CopyFor::kMessages; }
  absl::Status Agree(const absl::Status& own, const Signature&) override { return own; }
  absl::StatusOr<MoveStats> ExecuteStep(const StepProgram& step, absl::Span<const ConstTensorView> inputs,
                                        absl::Span<const TensorView> outputs,
                                        std::unique_ptr<StepMemo>* /*memo*/) override {
    return packed::ExecutePackedStep(step, rank_, inputs, outputs, *this);
  }
  absl::Status Barrier() override { return absl::UnimplementedError("no barrier"); }

 private:
  std::unique_ptr<packed::MessageRound> NewRound() override { return std::make_unique<MailRound>(mail_, rank_); }
  bool PrefersAllToAll(int64_t recv_bytes_max, int64_t) const override { return together_ && recv_bytes_max > 0; }
  absl::Status AllToAll(const void* send, absl::Span<const int64_t> send_bytes, void* receive,
                        absl::Span<const int64_t> receive_bytes) override {
    const auto* from = static_cast<const char*>(send);
    auto* to = static_cast<char*>(receive);
    for (int64_t peer = 0; peer < size_; ++peer) {
      const int64_t bytes = send_bytes[peer];
      // Never empty, so that a message of no bytes is not taken for one that did not come.
      std::vector<char> message(from, from + bytes);
      message.push_back('.');
      mail_->Put(rank_, peer, std::move(message));
      from += bytes;
    }
    for (int64_t peer = 0; peer < size_; ++peer) {
      const int64_t bytes = receive_bytes[peer];
      const absl::StatusOr<std::vector<char>> message = mail_->Take(peer, rank_, bytes + 1);
      if (!message.ok()) return message.status();
      std::memcpy(to, message->data(), static_cast<size_t>(bytes));
      to += bytes;
    }
    return absl::OkStatus();
  }

  Mail* mail_;
  const int64_t rank_;
  const int64_t size_;
  const bool together_;
};

// Runs body once a rank, each in a thread; the errors in the order of `ranks`. No message may be left over.
inline std::vector<absl::Status> RunPacked(const std::vector<int64_t>& ranks,
                                           const std::function<absl::Status(Communicator&)>& body,
                                           bool together = false) {
  Mail mail;
  std::vector<absl::Status> statuses(ranks.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] {
      PackedCommunicator communicator(&mail, ranks[i], static_cast<int64_t>(ranks.size()), together);
      statuses[i] = body(communicator);
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (!mail.empty()) statuses.emplace_back(absl::StatusCode::kInternal, "messages that nobody took");
  return statuses;
}

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_RUNTIME_PACKED_PACKED_WORLD_H_
