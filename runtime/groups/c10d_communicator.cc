#include "reshard/torch/c10d_communicator.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/execute/agreement.h"
#include "runtime/execute/blame.h"
#include "runtime/groups/c10d_messages.h"
#include "runtime/groups/c10d_rendezvous_store.h"
#include "runtime/groups/peer_board.h"
#include "runtime/packed/packed_step.h"
#include "runtime/shared/introduction.h"
#include "runtime/shared/neighbors.h"
#include "status/macros.h"
#include "status/no_throw.h"
#include "status/view.h"

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

}  // namespace

bool DefaultSharedMemory() {
  const char* const wanted = std::getenv("RESHARD_SHARED_MEMORY");
  return wanted == nullptr || std::strcmp(wanted, "0") != 0;
}

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
        if (neighbors != nullptr) neighbors->Abort();
      }
      messages.Abort();
    });
  }
  ~Impl() { board.OnLost(nullptr); }

  // One collective operation: checks, counts, and remembers how it ended.
  template <typename T, typename F>
  T Operate(absl::string_view name, int64_t bytes, uint64_t salt, F&& f);

  void HoldNeighbors();
  absl::Status Meet();
  absl::Status MeetNeighbors(absl::StatusOr<shared::Introduction> introduction);
  absl::Status AllGather(void* records, int64_t bytes);
  absl::Status Blame(int64_t peer, const std::string& reason);
  absl::Status BlameRank(int64_t peer, const std::string& reason);
  absl::Status BlameAnybody(const std::string& reason);
  execute::Waiting WaitingHere(const std::string& reason) const;
  // The store that the group was made with; null if the group is gone or has none.
  std::unique_ptr<groups::C10dRendezvousStore> Store() const;
  std::string Told();
  void Lose(const absl::Status& status);
  void Tell(const std::vector<groups::PeerAddress>& addresses, const std::string& message) const;
  void ForEachOther(const std::vector<groups::PeerAddress>& addresses, const std::function<void(size_t)>& f) const;
  absl::Status AgreeNow(const absl::Status& own, const Signature& problem);

  const c10::weak_intrusive_ptr<c10d::ProcessGroup> group;
  const int64_t rank;
  const int64_t size;
  const C10dOptions options;
  std::vector<int64_t> ranks;
  RecentOperations recent;
  std::shared_ptr<shared::Neighbors> near;  // `neighbors` during an operation, whose thread alone uses it
  groups::PeerBoard board;
  groups::C10dMessages messages;
  std::vector<groups::PeerAddress> peers;  // empty before the ranks have met
  int64_t operations = 0;                  // begun
  std::string place;                       // of the operation under way
  absl::Time begun;                        // and when it began
  absl::Status lost;
  std::atomic<bool> closed = false;
  std::mutex mutex;
  std::string told;  // what a peer told of a failure; guarded by mutex
  // Null: no other rank shares memory with this one, they have not met, or it is closed. Guarded by mutex.
  std::shared_ptr<shared::Neighbors> neighbors;
};

template <typename T, typename F>
T C10dCommunicator::Impl::Operate(absl::string_view name, int64_t bytes, uint64_t salt, F&& f) {
  const auto result = [&]() -> T {
    if (!lost.ok()) {
      return execute::LostEarlier("communicator", lost);
    }
    const std::string known = Told();
    if (!known.empty()) lost = absl::AbortedError(known);
    if (!lost.ok()) return lost;
    const c10::intrusive_ptr<c10d::ProcessGroup> process_group = group.lock();
    if (process_group == nullptr || closed) return absl::UnavailableError("the process group has been destroyed");
    c10::intrusive_ptr<c10d::Backend> backend;
    try {
      backend = process_group->getBackend(c10::DeviceType::CPU);
    } catch (const std::exception& error) {
      return absl::FailedPreconditionError(
          absl::StrCat("the process group has no backend for host memory: ", error.what()));
    }
    const int64_t number = recent.Begin(name, bytes);
    place = std::string(name);
    begun = absl::Now();
    ++operations;
    messages.Use(backend.get(), operations);
    HoldNeighbors();
    board.Begin(operations);
    T outcome = status::NoThrow("communicating", [&]() -> T {
      if (size > 1 && peers.empty()) {
        RETURN_IF_ERROR(Meet());
      }
      messages.Use(backend.get(),
                   operations % kOperationsPerTag + static_cast<int64_t>(salt % kTags) * kOperationsPerTag);
      if (near != nullptr) near->Use(static_cast<uint64_t>(operations) ^ salt);
      return f();
    });
    board.End();
    messages.GoNear(nullptr);
    near = nullptr;
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

// Made when it is needed: it holds the group's store.
std::unique_ptr<groups::C10dRendezvousStore> C10dCommunicator::Impl::Store() const {
  const c10::intrusive_ptr<c10d::ProcessGroup> process_group = group.lock();
  if (process_group == nullptr || process_group->getStore() == nullptr) return nullptr;
  return std::make_unique<groups::C10dRendezvousStore>(process_group, "",
                                                       groups::C10dRendezvousStore::Connection::kGroups);
}

// At the first call: everybody learns where everybody can be asked.
absl::Status C10dCommunicator::Impl::Meet() {
  absl::StatusOr<shared::Introduction> introduction =
      options.shared_memory ? shared::Introduction::Listen(rank) : absl::UnavailableError("not wanted");
  std::vector<groups::PeerAddress> addresses(static_cast<size_t>(size));
  addresses[static_cast<size_t>(rank)] = board.address();
  if (introduction.ok()) addresses[static_cast<size_t>(rank)].near = introduction->name();
  const absl::Status gathered = AllGather(addresses.data(), sizeof(groups::PeerAddress));
  if (!gathered.ok()) {
    // Those that came know where to be told, but not all may have come: for them the verdict is left in the store that
    // the group was made with.
    execute::SharedVerdict(Store().get(), kVerdictKey, rank).Tell(gathered);
    Tell(addresses, std::string(gathered.message()));
    return gathered;
  }
  peers = std::move(addresses);
  RETURN_IF_ERROR(MeetNeighbors(std::move(introduction)));
  // What follows is another operation.
  ++operations;
  board.Begin(operations);
  return absl::OkStatus();
}

// Who shares memory with whom. All ranks take part, also those that share with nobody.
absl::Status C10dCommunicator::Impl::MeetNeighbors(absl::StatusOr<shared::Introduction> introduction) {
  if (introduction.ok()) {
    std::vector<shared::SocketName> names;
    for (const groups::PeerAddress& peer : peers) names.push_back(peer.near);
    // Without memory for it, messages go through the group.
    introduction->Offer(names).IgnoreError();
  }
  // Everybody has offered what it has, then everybody has taken what there is.
  std::vector<char> tokens(static_cast<size_t>(size));
  RETURN_IF_ERROR(AllGather(tokens.data(), 1));
  if (introduction.ok()) introduction->Accept();
  const auto mapped = [&](int64_t r) { return introduction.ok() && introduction->mapped(r); };
  const int64_t pitch = (size + 7) / 8;
  std::vector<uint8_t> bits(static_cast<size_t>(size * pitch));  // of each rank, one for each
  const auto bit = [&](int64_t of, int64_t r) {
    return (bits[static_cast<size_t>(of * pitch + r / 8)] >> r % 8 & 1) != 0;
  };
  for (int64_t r = 0; r < size; ++r) {
    if (mapped(r)) bits[static_cast<size_t>(rank * pitch + r / 8)] |= static_cast<uint8_t>(1 << r % 8);
  }
  RETURN_IF_ERROR(AllGather(bits.data(), pitch));
  bool everybody = true;
  std::vector<bool> mutual(static_cast<size_t>(size));
  for (int64_t r = 0; r < size; ++r) {
    mutual[static_cast<size_t>(r)] = bit(rank, r) && bit(r, rank);
    for (int64_t of = 0; of < size && everybody; ++of) everybody = of == r || bit(of, r);
  }
  if (!introduction.ok()) return absl::OkStatus();
  std::vector<shared::Neighbor> others = introduction->Keep(mutual);
  if (others.empty()) return absl::OkStatus();
  auto made = std::make_shared<shared::Neighbors>(
      introduction->TakeSegment(), std::move(others), everybody, options.timeout,
      shared::Watch{[this](int64_t r) { board.WaitFor(r < 0 ? groups::PeerState::kEverybody : r); },
                    [this](int64_t r, const std::string& reason) { return Blame(r, reason); }});
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!told.empty() || closed) made->Abort();
    neighbors = std::move(made);
  }
  HoldNeighbors();
  return absl::OkStatus();
}

// For the operation under way: Close may drop them meanwhile.
void C10dCommunicator::Impl::HoldNeighbors() {
  const std::lock_guard<std::mutex> lock(mutex);
  near = neighbors;
  messages.GoNear(near.get());
}

void C10dCommunicator::Impl::Tell(const std::vector<groups::PeerAddress>& addresses, const std::string& message) const {
  ForEachOther(addresses, [&](size_t r) { groups::TellPeer(addresses[r], message, kAskOne); });
}

// Calls f(r) for all other ranks that can be reached, all at once: one that is silent must not delay the rest.
void C10dCommunicator::Impl::ForEachOther(const std::vector<groups::PeerAddress>& addresses,
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
  if (near != nullptr && near->everybody()) {
    const absl::Status gathered = near->Gather(data, bytes);
    if (!gathered.ok()) Lose(gathered);
    return gathered;
  }
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
    const std::unique_ptr<packed::MessageRound> round = messages.NewRound();
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
    const std::unique_ptr<packed::MessageRound> round = messages.NewRound();
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
  std::vector<groups::PeerAnswer> answers(peers.size());
  ForEachOther(peers, [&](size_t r) { answers[r] = groups::AskPeer(peers[r], kAskAll); });
  const std::string known = Told();
  if (!known.empty()) return absl::AbortedError(known);
  return execute::Blame(WaitingHere(reason), answers);
}

execute::Waiting C10dCommunicator::Impl::WaitingHere(const std::string& reason) const {
  return {rank, operations, place, options.timeout, reason};
}

// Follows who waits for whom.
absl::Status C10dCommunicator::Impl::BlameRank(int64_t peer, const std::string& reason) {
  const execute::Waiting waiting = WaitingHere(reason);
  const std::string said = reason.empty() ? "" : absl::StrCat(" (", reason.substr(0, 200), ")");
  if (peers.empty()) {
    const absl::StatusOr<std::optional<absl::Status>> verdict =
        execute::SharedVerdict(Store().get(), kVerdictKey, rank).Read();
    // The neighbor may have left because of this, too, and could tell nobody.
    if (!verdict.ok()) {
      return absl::UnavailableError(
          absl::StrCat("the store that the group was made with is gone at ", place,
                       ", with the process that keeps it: rank 0, unless it was started apart", said));
    }
    if (verdict->has_value()) return **verdict;
    // A broken connection ends a wait before its time.
    if (absl::Now() - begun < options.timeout) {
      return absl::UnavailableError(absl::StrCat("rank ", peer, " did not arrive at ", place, said));
    }
    return execute::LateError(waiting, {peer});
  }
  const absl::Time deadline = absl::Now() + kAskAll;
  std::vector<bool> asked(static_cast<size_t>(size));
  while (absl::Now() < deadline) {
    asked[static_cast<size_t>(peer)] = true;
    const groups::PeerAnswer answer = groups::AskPeer(peers[static_cast<size_t>(peer)], kAskOne);
    if (answer.kind != groups::PeerAnswer::Kind::kState) {
      // It may be one that found out before this one, told, and left.
      const std::string known = Told();
      if (!known.empty()) return absl::AbortedError(known);
      return answer.kind == groups::PeerAnswer::Kind::kGone ? execute::GoneError(waiting, {peer})
                                                            : execute::SilentError(waiting, {peer});
    }
    if (answer.state.phase == groups::PeerState::Phase::kLost) return absl::AbortedError(answer.state.message);
    // A rank that waits for another is not to blame, even when it is behind.
    if (answer.state.phase == groups::PeerState::Phase::kRunning &&
        answer.state.waiting_for == groups::PeerState::kEverybody) {
      return BlameAnybody(reason);
    }
    const int64_t next = answer.state.phase == groups::PeerState::Phase::kRunning ? answer.state.waiting_for : -1;
    if (next >= 0 && next < size && next != rank && !asked[static_cast<size_t>(next)]) {
      peer = next;
      continue;
    }
    if (answer.state.operations < operations) {
      return execute::LateError(waiting, {peer});
    }
    break;
  }
  return absl::DeadlineExceededError(absl::StrCat("rank ", peer, " did not go on within ",
                                                  absl::ToInt64Milliseconds(options.timeout), " ms at ", place, said));
}

void C10dCommunicator::Impl::Lose(const absl::Status& status) {
  if (!lost.ok()) return;
  lost = status;
  const std::string message(status.message());
  board.Lose(message);
  Tell(peers, message);
}

absl::Status C10dCommunicator::Impl::AgreeNow(const absl::Status& own, const Signature& problem) {
  std::vector<execute::AgreementRecord> records(static_cast<size_t>(size));
  execute::AgreementRecord& mine = records[static_cast<size_t>(rank)];
  mine.status_code = static_cast<int64_t>(own.raw_code());
  mine.sequence = operations;
  mine.fingerprint = problem.fingerprint;
  absl::Status status = AllGather(records.data(), sizeof(execute::AgreementRecord));
  if (!status.ok()) return status;
  if (execute::AllAgree(records)) return absl::OkStatus();

  // Everybody has seen the same records, so everybody comes here. Lengths first, then the details.
  const std::string all = execute::Details(own, problem);
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
  return execute::Verdict(ranks, records, everybody);
}

C10dCommunicator::C10dCommunicator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
C10dCommunicator::~C10dCommunicator() = default;

absl::StatusOr<std::unique_ptr<C10dCommunicator>> C10dCommunicator::Create(
    const c10::intrusive_ptr<c10d::ProcessGroup>& group, C10dOptions options) {
  if (group == nullptr) return absl::InvalidArgumentError("no process group");
  return status::NoThrow("making a communicator", [&]() -> absl::StatusOr<std::unique_ptr<C10dCommunicator>> {
    return std::unique_ptr<C10dCommunicator>(new C10dCommunicator(std::make_unique<Impl>(group, options)));
  });
}

int64_t C10dCommunicator::rank() const { return impl_->rank; }
int64_t C10dCommunicator::world_size() const { return impl_->size; }
bool C10dCommunicator::alive() const { return !impl_->closed && !impl_->group.expired(); }

void C10dCommunicator::Close() {
  impl_->closed = true;
  impl_->board.Close();
  std::shared_ptr<shared::Neighbors> neighbors;  // goes last, or with the operation under way
  {
    const std::lock_guard<std::mutex> lock(impl_->mutex);
    neighbors = std::move(impl_->neighbors);
  }
  if (neighbors != nullptr) neighbors->Leave();
}

const RecentOperations* C10dCommunicator::recent_operations() const { return &impl_->recent; }

absl::Status C10dCommunicator::Agree(const absl::Status& own, const Signature& problem) {
  if (impl_->size == 1) return own;
  return impl_->Operate<absl::Status>("agreement", sizeof(execute::AgreementRecord), 0,
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
  return impl_->Operate<absl::StatusOr<MoveStats>>(status::View(Name(step.op)), step.recv_bytes, step.salt, [&] {
    absl::StatusOr<MoveStats> moved = packed::ExecutePackedStep(step, impl_->rank, inputs, outputs, impl_->messages);
    if (!moved.ok()) impl_->Lose(moved.status());
    return moved;
  });
}

}  // namespace reshard
