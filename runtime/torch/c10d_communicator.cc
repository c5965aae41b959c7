#include "reshard/torch/c10d_communicator.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "planner/layout/no_throw.h"
#include "runtime/core/agreement.h"
#include "runtime/core/packed_step.h"
#include "runtime/torch/c10d_messages.h"
#include "runtime/torch/peer_board.h"

namespace reshard {
namespace {

// Asking who is to blame takes at most so long in all, and one silent peer so long of it.
constexpr absl::Duration kAskAll = absl::Milliseconds(600);
constexpr absl::Duration kAskOne = absl::Milliseconds(250);

// In the store of the group, when the ranks could not even meet.
constexpr char kVerdictKey[] = "reshard/verdict";

// A tag is a number of the plan and the low bits of the number of the operation.
constexpr uint64_t kTags = uint64_t{1} << 14;
constexpr int64_t kOperationsPerTag = int64_t{1} << 16;

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

struct C10dCommunicator::Impl {
  Impl(const c10::intrusive_ptr<c10d::ProcessGroup>& process_group, const C10dOptions& opts)
      : group(process_group),
        rank(process_group->getRank()),
        size(process_group->getSize()),
        options(opts),
        messages(opts.timeout, size, &board,
                 [this](int64_t peer, const std::string& reason) { return Blame(peer, reason); }) {
    for (int64_t r = 0; r < size; ++r) ranks.push_back(r);
    board.OnLost([this](const std::string& message) {
      {
        const std::lock_guard<std::mutex> lock(mutex);
        told = message;
      }
      messages.Abort();
    });
  }
  ~Impl() { board.OnLost(nullptr); }

  // One collective operation: checks, counts, and remembers how it ended.
  template <typename T, typename F>
  T Operate(absl::string_view name, int64_t bytes, uint64_t salt, F&& f);

  absl::Status Meet();
  absl::Status AllGather(void* records, int64_t bytes);
  absl::Status Blame(int64_t peer, const std::string& reason);
  absl::Status BlameRank(int64_t peer, const std::string& reason);
  absl::Status BlameAnybody(const std::string& reason);
  absl::Status Gone(int64_t peer) const;
  absl::Status Silent(int64_t peer) const;
  std::string Told();
  void Lose(const absl::Status& status);
  void Tell(const std::vector<PeerAddress>& addresses, const std::string& message) const;
  void ForEachOther(const std::vector<PeerAddress>& addresses, const std::function<void(size_t)>& f) const;
  void WriteVerdict(const std::string& message);
  // Empty when there is none; nothing when the store cannot be reached.
  std::optional<std::string> ReadVerdict();
  absl::Status AgreeNow(const absl::Status& own, const Signature& problem);

  const c10::weak_intrusive_ptr<c10d::ProcessGroup> group;
  const int64_t rank;
  const int64_t size;
  const C10dOptions options;
  std::vector<int64_t> ranks;
  RecentOperations recent;
  PeerBoard board;
  C10dMessages messages;
  std::vector<PeerAddress> peers;  // empty before the ranks have met
  int64_t operations = 0;          // begun
  std::string place;               // of the operation under way
  absl::Status lost;
  std::mutex mutex;
  std::string told;  // what a peer told of a failure; guarded by mutex
};

template <typename T, typename F>
T C10dCommunicator::Impl::Operate(absl::string_view name, int64_t bytes, uint64_t salt, F&& f) {
  const auto result = [&]() -> T {
    if (!lost.ok()) {
      return absl::Status(lost.code(), absl::StrCat("this communicator was lost earlier: ", lost.message()));
    }
    const std::string known = Told();
    if (!known.empty()) lost = absl::AbortedError(known);
    if (!lost.ok()) return lost;
    const c10::intrusive_ptr<c10d::ProcessGroup> process_group = group.lock();
    if (process_group == nullptr) return absl::UnavailableError("the process group has been destroyed");
    c10::intrusive_ptr<c10d::Backend> backend;
    try {
      backend = process_group->getBackend(c10::DeviceType::CPU);
    } catch (const std::exception& error) {
      return absl::FailedPreconditionError(
          absl::StrCat("the process group has no backend for host memory: ", error.what()));
    }
    const int64_t number = recent.Begin(name, bytes);
    place = std::string(name);
    ++operations;
    messages.Use(backend.get(), operations);
    board.Begin(operations);
    T outcome = NoThrow("communicating", [&]() -> T {
      if (size > 1 && peers.empty()) {
        const absl::Status met = Meet();
        if (!met.ok()) return met;
      }
      messages.Use(backend.get(),
                   operations % kOperationsPerTag + static_cast<int64_t>(salt % kTags) * kOperationsPerTag);
      return f();
    });
    board.End();
    absl::Status status;
    if constexpr (std::is_same_v<T, absl::Status>) {
      status = outcome;
    } else {
      status = outcome.status();
    }
    recent.End(number, status);
    return outcome;
  }();
  return result;
}

// At the first call: everybody learns where everybody can be asked.
absl::Status C10dCommunicator::Impl::Meet() {
  std::vector<PeerAddress> addresses(static_cast<size_t>(size));
  addresses[static_cast<size_t>(rank)] = board.address();
  const absl::Status gathered = AllGather(addresses.data(), sizeof(PeerAddress));
  if (!gathered.ok()) {
    // Those that came know where to be told, but not all may have come: for them the verdict is left in the store that
    // the group was made with.
    WriteVerdict(std::string(gathered.message()));
    Tell(addresses, std::string(gathered.message()));
    return gathered;
  }
  peers = std::move(addresses);
  // What follows is another operation.
  ++operations;
  board.Begin(operations);
  return absl::OkStatus();
}

void C10dCommunicator::Impl::WriteVerdict(const std::string& message) {
  try {
    const c10::intrusive_ptr<c10d::ProcessGroup> process_group = group.lock();
    if (process_group == nullptr || process_group->getStore() == nullptr) return;
    process_group->getStore()->set(kVerdictKey, message);
  } catch (const std::exception&) {
    // The store went with the rank that is lost, perhaps.
  }
}

std::optional<std::string> C10dCommunicator::Impl::ReadVerdict() {
  try {
    const c10::intrusive_ptr<c10d::ProcessGroup> process_group = group.lock();
    if (process_group == nullptr || process_group->getStore() == nullptr) return "";
    const c10::intrusive_ptr<c10d::Store> store = process_group->getStore();
    if (!store->check({kVerdictKey})) return "";
    const std::vector<uint8_t> text = store->get(kVerdictKey);
    return std::string(text.begin(), text.end());
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

void C10dCommunicator::Impl::Tell(const std::vector<PeerAddress>& addresses, const std::string& message) const {
  ForEachOther(addresses, [&](size_t r) { TellPeer(addresses[r], message, kAskOne); });
}

// Calls f(r) for all other ranks that can be reached, all at once: one that is silent must not delay the rest.
void C10dCommunicator::Impl::ForEachOther(const std::vector<PeerAddress>& addresses,
                                          const std::function<void(size_t)>& f) const {
  std::vector<std::thread> threads;
  for (size_t r = 0; r < addresses.size(); ++r) {
    if (static_cast<int64_t>(r) == rank || addresses[r].port == 0) continue;
    try {
      threads.emplace_back([&f, r] { f(r); });
    } catch (const std::system_error&) {
      break;  // no threads to be had: the others find out by waiting, and count as silent
    }
  }
  for (std::thread& thread : threads) thread.join();
}

// records[r] of every rank r to everybody. At the first call by single messages, so that each rank knows who is
// missing; later, when they can ask each other, by one all-to-all in few ranks, and in many by doubling: in round k the
// 2^k records of the rank 2^k further on.
absl::Status C10dCommunicator::Impl::AllGather(void* records, int64_t bytes) {
  auto* const data = static_cast<char*>(records);
  constexpr int64_t kFewRanks = 8;
  if (size <= kFewRanks && !peers.empty()) {
    // The same record for everybody.
    std::vector<char> copies(static_cast<size_t>(size * bytes));
    std::vector<char> gathered(copies.size());
    for (int64_t r = 0; r < size; ++r) {
      std::memcpy(copies.data() + r * bytes, data + rank * bytes, static_cast<size_t>(bytes));
    }
    const std::vector<int64_t> lengths(static_cast<size_t>(size), bytes);
    const absl::Status status = messages.AllToAll(copies.data(), lengths, gathered.data(), lengths);
    if (status.ok()) std::memcpy(data, gathered.data(), gathered.size());
    return status;
  }
  if (peers.empty()) {
    const std::unique_ptr<MessageRound> round = messages.NewRound();
    absl::Status status;
    for (int64_t k = 1; k < size && status.ok(); ++k) {
      const int64_t peer = (rank + k) % size;
      status = round->PostReceive(peer, data + peer * bytes, bytes);
    }
    for (int64_t k = 1; k < size && status.ok(); ++k) {
      status = round->PostSend((rank + k) % size, data + rank * bytes, bytes);
    }
    if (status.ok()) status = round->Posted();
    for (int64_t k = 1; k < size && status.ok(); ++k) status = round->WaitReceive(static_cast<size_t>(k - 1));
    return status.ok() ? round->WaitSends() : status;
  }
  // In the order of distance from this rank, so that what is there is contiguous.
  std::vector<char> turned(static_cast<size_t>(size * bytes));
  std::memcpy(turned.data(), data + rank * bytes, static_cast<size_t>(bytes));
  for (int64_t have = 1; have < size; have *= 2) {
    const int64_t more = std::min(have, size - have);
    const std::unique_ptr<MessageRound> round = messages.NewRound();
    absl::Status status = round->PostReceive((rank + have) % size, turned.data() + have * bytes, more * bytes);
    if (status.ok()) status = round->PostSend((rank - have + size) % size, turned.data(), more * bytes);
    if (status.ok()) status = round->Posted();
    if (status.ok()) status = round->WaitReceive(0);
    if (status.ok()) status = round->WaitSends();
    if (!status.ok()) return status;
  }
  for (int64_t k = 0; k < size; ++k) {
    std::memcpy(data + (rank + k) % size * bytes, turned.data() + k * bytes, static_cast<size_t>(bytes));
  }
  return absl::OkStatus();
}

// The error of a wait for `peer` (-1: for everybody) that failed.
absl::Status C10dCommunicator::Impl::Blame(int64_t peer, const std::string& reason) {
  const std::string known = Told();
  const absl::Status status = !known.empty() ? absl::AbortedError(known)
                              : peer >= 0    ? BlameRank(peer, reason)
                                             : BlameAnybody(reason);
  Lose(status);
  return status;
}

std::string C10dCommunicator::Impl::Told() {
  const std::lock_guard<std::mutex> lock(mutex);
  return told;
}

// Asks all at once. A rank that found out before this one may have left its process since, but it told first: so what
// was told counts more than who is gone.
absl::Status C10dCommunicator::Impl::BlameAnybody(const std::string& reason) {
  const std::string said = reason.empty() ? "" : absl::StrCat(" (", reason.substr(0, 200), ")");
  std::vector<PeerAnswer> answers(peers.size());
  ForEachOther(peers, [&](size_t r) { answers[r] = AskPeer(peers[r], kAskAll); });
  const std::string known = Told();
  if (!known.empty()) return absl::AbortedError(known);
  const auto first = [&](auto condition) {
    for (int64_t r = 0; r < static_cast<int64_t>(answers.size()); ++r) {
      if (r != rank && condition(answers[static_cast<size_t>(r)])) return r;
    }
    return int64_t{-1};
  };
  using Kind = PeerAnswer::Kind;
  using Phase = PeerState::Phase;
  const int64_t lost_rank =
      first([](const PeerAnswer& a) { return a.kind == Kind::kState && a.state.phase == Phase::kLost; });
  if (lost_rank >= 0) return absl::AbortedError(answers[static_cast<size_t>(lost_rank)].state.message);
  const int64_t gone = first([](const PeerAnswer& a) { return a.kind == Kind::kGone; });
  if (gone >= 0) return Gone(gone);
  const std::string waited = absl::StrCat(absl::ToInt64Milliseconds(options.timeout), " ms at ", place);
  const auto behind = [&](const PeerAnswer& a) { return a.kind == Kind::kState && a.state.operations < operations; };
  const int64_t late = first([&](const PeerAnswer& a) { return behind(a) && a.state.phase == Phase::kIdle; });
  if (late >= 0) return absl::DeadlineExceededError(absl::StrCat("rank ", late, " did not arrive within ", waited));
  const int64_t silent = first([](const PeerAnswer& a) { return a.kind == Kind::kSilent; });
  if (silent >= 0) return Silent(silent);
  const int64_t slow = first(behind);
  if (slow >= 0) return absl::DeadlineExceededError(absl::StrCat("rank ", slow, " did not answer within ", waited));
  return absl::UnavailableError(absl::StrCat("communication failed at ", place, said));
}

absl::Status C10dCommunicator::Impl::Gone(int64_t peer) const {
  return absl::UnavailableError(absl::StrCat("rank ", peer, " is gone: its process has ended, at ", place));
}

absl::Status C10dCommunicator::Impl::Silent(int64_t peer) const {
  return absl::UnavailableError(
      absl::StrCat("rank ", peer, " does not answer: its process hangs or its host cannot be reached, at ", place));
}

// Follows who waits for whom.
absl::Status C10dCommunicator::Impl::BlameRank(int64_t peer, const std::string& reason) {
  const std::string waited = absl::StrCat(absl::ToInt64Milliseconds(options.timeout), " ms at ", place);
  const std::string said = reason.empty() ? "" : absl::StrCat(" (", reason.substr(0, 200), ")");
  if (peers.empty()) {
    const std::optional<std::string> verdict = ReadVerdict();
    // The neighbour may have left because of this, too, and could tell nobody.
    if (!verdict) {
      return absl::UnavailableError(
          absl::StrCat("the store that the group was made with is gone at ", place,
                       ", with the process that keeps it: rank 0, unless it was started apart", said));
    }
    if (!verdict->empty()) return absl::AbortedError(*verdict);
    // Gloo speaks of its time only when the time was over.
    if (reason.find("imed out") == std::string::npos) {
      return absl::UnavailableError(absl::StrCat("rank ", peer, " did not arrive at ", place, said));
    }
    return absl::DeadlineExceededError(absl::StrCat("rank ", peer, " did not arrive within ", waited));
  }
  const absl::Time deadline = absl::Now() + kAskAll;
  std::vector<bool> asked(static_cast<size_t>(size));
  while (absl::Now() < deadline) {
    asked[static_cast<size_t>(peer)] = true;
    const PeerAnswer answer = AskPeer(peers[static_cast<size_t>(peer)], kAskOne);
    if (answer.kind != PeerAnswer::Kind::kState) {
      // It may be one that found out before this one, told, and left.
      const std::string known = Told();
      if (!known.empty()) return absl::AbortedError(known);
      return answer.kind == PeerAnswer::Kind::kGone ? Gone(peer) : Silent(peer);
    }
    if (answer.state.phase == PeerState::Phase::kLost) return absl::AbortedError(answer.state.message);
    // A rank that waits for another is not to blame, even when it is behind.
    if (answer.state.phase == PeerState::Phase::kRunning && answer.state.waiting_for == PeerState::kEverybody) {
      return BlameAnybody(reason);
    }
    const int64_t next = answer.state.phase == PeerState::Phase::kRunning ? answer.state.waiting_for : -1;
    if (next >= 0 && next < size && next != rank && !asked[static_cast<size_t>(next)]) {
      peer = next;
      continue;
    }
    if (answer.state.operations < operations) {
      return absl::DeadlineExceededError(absl::StrCat("rank ", peer, " did not arrive within ", waited));
    }
    break;
  }
  return absl::DeadlineExceededError(absl::StrCat("rank ", peer, " did not answer within ", waited, said));
}

void C10dCommunicator::Impl::Lose(const absl::Status& status) {
  if (!lost.ok()) return;
  lost = status;
  const std::string message(status.message());
  board.Lose(message);
  Tell(peers, message);
}

absl::Status C10dCommunicator::Impl::AgreeNow(const absl::Status& own, const Signature& problem) {
  std::vector<AgreementRecord> records(static_cast<size_t>(size));
  AgreementRecord& mine = records[static_cast<size_t>(rank)];
  mine.status_code = static_cast<int64_t>(own.raw_code());
  mine.sequence = operations;
  mine.fingerprint = problem.fingerprint;
  absl::Status status = AllGather(records.data(), sizeof(AgreementRecord));
  if (!status.ok()) return status;
  if (AllAgree(records)) return absl::OkStatus();

  // Everybody has seen the same records, so everybody comes here. Lengths first, then the details.
  const std::string all = Details(own, problem);
  std::vector<int64_t> lengths(static_cast<size_t>(size));
  lengths[static_cast<size_t>(rank)] = static_cast<int64_t>(all.size());
  status = AllGather(lengths.data(), sizeof(int64_t));
  if (!status.ok()) return status;
  constexpr int64_t kLongestDetails = int64_t{1} << 20;
  const int64_t longest = std::clamp<int64_t>(*std::max_element(lengths.begin(), lengths.end()), 1, kLongestDetails);
  std::vector<char> texts(static_cast<size_t>(size * longest), '\0');
  std::memcpy(texts.data() + rank * longest, all.data(), std::min(all.size(), static_cast<size_t>(longest)));
  status = AllGather(texts.data(), longest);
  if (!status.ok()) return status;
  std::vector<std::string> everybody;
  for (int64_t r = 0; r < size; ++r) {
    const int64_t length = std::clamp<int64_t>(lengths[static_cast<size_t>(r)], 0, longest);
    everybody.emplace_back(texts.data() + r * longest, static_cast<size_t>(length));
  }
  if (!own.ok()) return own;
  return Verdict(ranks, records, everybody);
}

C10dCommunicator::C10dCommunicator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
C10dCommunicator::~C10dCommunicator() = default;

absl::StatusOr<std::unique_ptr<C10dCommunicator>> C10dCommunicator::Create(
    const c10::intrusive_ptr<c10d::ProcessGroup>& group, C10dOptions options) {
  if (group == nullptr) return absl::InvalidArgumentError("no process group");
  return NoThrow("making a communicator", [&]() -> absl::StatusOr<std::unique_ptr<C10dCommunicator>> {
    return std::unique_ptr<C10dCommunicator>(new C10dCommunicator(std::make_unique<Impl>(group, options)));
  });
}

int64_t C10dCommunicator::rank() const { return impl_->rank; }
int64_t C10dCommunicator::world_size() const { return impl_->size; }
bool C10dCommunicator::alive() const { return !impl_->group.expired(); }
const RecentOperations& C10dCommunicator::recent_operations() const { return impl_->recent; }

absl::Status C10dCommunicator::Agree(const absl::Status& own, const Signature& problem) {
  if (impl_->size == 1) return own;
  return impl_->Operate<absl::Status>("agreement", sizeof(AgreementRecord), 0,
                                      [&] { return impl_->AgreeNow(own, problem); });
}

absl::Status C10dCommunicator::Barrier() {
  if (impl_->size == 1) return absl::OkStatus();
  return impl_->Operate<absl::Status>("barrier", 1, 0, [&] {
    std::vector<char> tokens(static_cast<size_t>(impl_->size));
    return impl_->AllGather(tokens.data(), 1);
  });
}

absl::StatusOr<MoveStats> C10dCommunicator::ExecuteStep(const StepProgram& step,
                                                        absl::Span<const ConstTensorView> inputs,
                                                        absl::Span<const TensorView> outputs,
                                                        std::unique_ptr<StepMemo>* /*memo*/) {
  const auto on_host = [](const ConstTensorView& view) { return view.memory == MemoryKind::kHost; };
  if (!std::all_of(inputs.begin(), inputs.end(), on_host) || !std::all_of(outputs.begin(), outputs.end(), on_host)) {
    return absl::UnimplementedError("a communicator of host tensors; those of GPUs have one of their own");
  }
  return impl_->Operate<absl::StatusOr<MoveStats>>(View(Name(step.op)), step.recv_bytes, step.salt, [&] {
    absl::StatusOr<MoveStats> moved = ExecutePackedStep(step, impl_->rank, inputs, outputs, impl_->messages);
    if (!moved.ok()) impl_->Lose(moved.status());
    return moved;
  });
}

}  // namespace reshard
