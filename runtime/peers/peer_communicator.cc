#include "runtime/peers/peer_communicator.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <utility>

#include "absl/time/clock.h"
#include "runtime/execute/agreement.h"
#include "runtime/packed/packed_step.h"
#include "status/log.h"
#include "status/macros.h"
#include "status/no_throw.h"
#include "status/view.h"

namespace reshard::peers {
namespace {

// A message carries a number of the plan and the low bits of the number of the operation.
constexpr uint64_t kPlans = uint64_t{1} << 14;
constexpr int64_t kOperationsPerPlan = int64_t{1} << 16;

bool OnHost(const ConstTensorView& view) { return view.memory == MemoryKind::kHost; }

}  // namespace

PeerCommunicator::PeerCommunicator(int64_t rank, int64_t size, PeerOptions options, MakeTransport make_transport)
    : rank_(rank), size_(size), options_(options), others_(rank, size, options.timeout) {
  transport_ = make_transport(
      others_.board(), [this](int64_t peer, const std::string& reason) { return others_.FindCulprit(peer, reason); });
  others_.Use(
      [this] {
        {
          const status::MutexLock lock(mutex_);
          if (shared_memory_ != nullptr) shared_memory_->Abort();
        }
        transport_->Abort();
      },
      [this] { return transport_->Store(); });
}

PeerCommunicator::~PeerCommunicator() = default;

template <typename T, typename F>
T PeerCommunicator::Operate(absl::string_view name, int64_t bytes, uint64_t salt, F&& f) {
  if (!others_.failure().ok()) return execute::FailedEarlier("communicator", others_.failure());
  if (!others_.PollFailure().ok()) return others_.failure();
  if (closed_) return transport_->Gone();
  RETURN_IF_ERROR(transport_->Begin());
  const int64_t number = recent_.Begin(name, bytes);
  RESHARD_LOG(kDebug, "operation ", others_.operations() + 1, ", ", name, " of ", bytes, " bytes, begins on rank ",
              rank_, " of ", size_);
  const absl::Time began = status::Logs(status::LogLevel::kDebug) ? absl::Now() : absl::InfinitePast();
  others_.Begin(name);
  transport_->Use(others_.operations());
  HoldSharedMemory();
  T outcome = status::NoThrow("communicating", [&]() -> T {
    if (size_ > 1 && !others_.met()) {
      RETURN_IF_ERROR(Rendezvous());
    }
    const int64_t operations = others_.operations();
    transport_->Use(operations % kOperationsPerPlan + static_cast<int64_t>(salt % kPlans) * kOperationsPerPlan);
    if (current_shared_memory_ != nullptr) current_shared_memory_->SetTag(SharedMemoryTag(operations, salt));
    return f();
  });
  RESHARD_LOG(kDebug, "operation ", others_.operations(), ", ", name, ", ended on rank ", rank_, " after ",
              absl::FormatDuration(absl::Now() - began));
  others_.End();
  current_shared_memory_ = nullptr;
  transport_->End();
  if constexpr (std::is_same_v<T, absl::Status>) {
    recent_.End(number, outcome);
  } else {
    recent_.End(number, outcome.status());
  }
  return outcome;
}

// At the first call: every rank learns where every other rank can be asked.
absl::Status PeerCommunicator::Rendezvous() {
  absl::StatusOr<shared::Bootstrap> bootstrap =
      options_.shared_memory ? shared::Bootstrap::Listen(rank_) : absl::UnavailableError("not wanted");
  std::vector<PeerAddress> addresses(static_cast<size_t>(size_));
  addresses[rank_] = others_.board().address();
  if (bootstrap.ok()) addresses[rank_].shared_memory_socket = bootstrap->name();
  const absl::Status gathered = AllGather(addresses.data(), sizeof(PeerAddress));
  if (!gathered.ok()) {
    others_.GiveUpRendezvous(addresses, gathered);
    return gathered;
  }
  others_.Met(std::move(addresses));
  RETURN_IF_ERROR(ConnectSharedMemory(std::move(bootstrap)));
  others_.GoOn();
  RESHARD_LOG(kInfo, "rank ", rank_, " of ", size_, " has met all others; ",
              current_shared_memory_ == nullptr     ? "no rank shares memory with it"
              : current_shared_memory_->everybody() ? "all ranks share memory"
                                                    : "some ranks share memory with it");
  return absl::OkStatus();
}

// Finds the ranks that share memory. All ranks take part, also those that share with none.
absl::Status PeerCommunicator::ConnectSharedMemory(absl::StatusOr<shared::Bootstrap> bootstrap) {
  if (bootstrap.ok()) {
    std::vector<shared::SocketName> names;
    for (const PeerAddress& peer : others_.addresses()) names.push_back(peer.shared_memory_socket);
    // Without memory for it, all goes through the transport.
    bootstrap->Offer(names).IgnoreError();
  }
  // After this, all ranks have offered their memory, so all can take what there is.
  std::vector<char> tokens(static_cast<size_t>(size_));
  RETURN_IF_ERROR(AllGather(tokens.data(), 1));
  if (bootstrap.ok()) bootstrap->Accept();
  const auto mapped = [&](int64_t r) { return bootstrap.ok() && bootstrap->mapped(r); };
  const int64_t pitch = (size_ + 7) / 8;
  std::vector<uint8_t> bits(static_cast<size_t>(size_ * pitch));  // per rank, one bit for each rank
  const auto bit = [&](int64_t of, int64_t r) { return (bits[of * pitch + r / 8] >> r % 8 & 1) != 0; };
  for (int64_t r = 0; r < size_; ++r) {
    if (mapped(r)) bits[rank_ * pitch + r / 8] |= static_cast<uint8_t>(1 << r % 8);
  }
  RETURN_IF_ERROR(AllGather(bits.data(), pitch));
  bool everybody = true;
  std::vector<bool> mutual(static_cast<size_t>(size_));
  for (int64_t r = 0; r < size_; ++r) {
    mutual[r] = bit(rank_, r) && bit(r, rank_);
    for (int64_t of = 0; of < size_ && everybody; ++of) everybody = of == r || bit(of, r);
  }
  if (!bootstrap.ok()) return absl::OkStatus();
  std::vector<shared::LocalPeer> kept = bootstrap->Keep(mutual);
  if (kept.empty()) return absl::OkStatus();
  auto made = std::make_shared<shared::SharedMemoryTransport>(
      bootstrap->TakeSegment(), std::move(kept), everybody, options_.timeout,
      shared::WaitContext{[this](int64_t r) { others_.board().WaitFor(r < 0 ? PeerState::kEverybody : r); },
                          [this](int64_t r, const std::string& reason) { return others_.FindCulprit(r, reason); }});
  {
    const status::MutexLock lock(mutex_);
    if (!others_.told().empty() || closed_) made->Abort();
    shared_memory_ = std::move(made);
  }
  HoldSharedMemory();
  return absl::OkStatus();
}

// For the operation under way: Close may drop it meanwhile.
void PeerCommunicator::HoldSharedMemory() {
  const status::MutexLock lock(mutex_);
  current_shared_memory_ = shared_memory_;
}

// Sends records[r] of every rank r to all ranks.
absl::Status PeerCommunicator::AllGather(void* records, int64_t bytes) {
  auto* const data = static_cast<char*>(records);
  if (current_shared_memory_ != nullptr && current_shared_memory_->everybody()) {
    const absl::Status gathered = current_shared_memory_->AllGather(data, bytes);
    if (!gathered.ok()) others_.Fail(gathered);
    return gathered;
  }
  constexpr int64_t kFewRanks = 8;
  if (!others_.met()) return GatherFromEach(data, bytes);
  return size_ <= kFewRanks ? GatherTogether(data, bytes) : GatherByDoubling(data, bytes);
}

// By single messages, so that each rank knows who is missing, before they can ask each other.
absl::Status PeerCommunicator::GatherFromEach(char* records, int64_t bytes) {
  const std::unique_ptr<packed::MessageRound> round = transport_->NewRound();
  for (int64_t k = 1; k < size_; ++k) {
    const int64_t peer = (rank_ + k) % size_;
    RETURN_IF_ERROR(round->PostReceive(peer, records + peer * bytes, bytes));
  }
  for (int64_t k = 1; k < size_; ++k) {
    RETURN_IF_ERROR(round->PostSend((rank_ + k) % size_, records + rank_ * bytes, bytes));
  }
  RETURN_IF_ERROR(round->Posted());
  for (int64_t k = 1; k < size_; ++k) {
    RETURN_IF_ERROR(round->WaitReceive(static_cast<size_t>(k - 1)));
  }
  return round->WaitSends();
}

// One all-to-all in which a rank sends the same record to all.
absl::Status PeerCommunicator::GatherTogether(char* records, int64_t bytes) {
  std::vector<char> copies(static_cast<size_t>(size_ * bytes));
  std::vector<char> gathered(copies.size());
  for (int64_t r = 0; r < size_; ++r) {
    std::memcpy(copies.data() + r * bytes, records + rank_ * bytes, static_cast<size_t>(bytes));
  }
  const std::vector<int64_t> lengths(static_cast<size_t>(size_), bytes);
  RETURN_IF_ERROR(transport_->AllToAll(copies.data(), lengths, gathered.data(), lengths));
  std::memcpy(records, gathered.data(), gathered.size());
  return absl::OkStatus();
}

// Round k gets the 2^k records of the rank 2^k further on. Records are in the order of distance from this rank, so that
// those already there are contiguous.
absl::Status PeerCommunicator::GatherByDoubling(char* records, int64_t bytes) {
  std::vector<char> turned(static_cast<size_t>(size_ * bytes));
  std::memcpy(turned.data(), records + rank_ * bytes, static_cast<size_t>(bytes));
  for (int64_t have = 1; have < size_; have *= 2) {
    const int64_t more = std::min(have, size_ - have);
    const std::unique_ptr<packed::MessageRound> round = transport_->NewRound();
    RETURN_IF_ERROR(round->PostReceive((rank_ + have) % size_, turned.data() + have * bytes, more * bytes));
    RETURN_IF_ERROR(round->PostSend((rank_ - have + size_) % size_, turned.data(), more * bytes));
    RETURN_IF_ERROR(round->Posted());
    RETURN_IF_ERROR(round->WaitReceive(0));
    RETURN_IF_ERROR(round->WaitSends());
  }
  for (int64_t k = 0; k < size_; ++k) {
    std::memcpy(records + (rank_ + k) % size_ * bytes, turned.data() + k * bytes, static_cast<size_t>(bytes));
  }
  return absl::OkStatus();
}

absl::Status PeerCommunicator::AgreeNow(const absl::Status& own, const Signature& problem) {
  std::vector<execute::AgreementRecord> records(static_cast<size_t>(size_));
  execute::AgreementRecord& mine = records[rank_];
  mine.status_code = static_cast<int64_t>(own.raw_code());
  mine.sequence = others_.operations();
  mine.fingerprint = problem.fingerprint;
  absl::Status status = AllGather(records.data(), sizeof(execute::AgreementRecord));
  if (!status.ok()) return status;
  if (execute::AllAgree(records)) return absl::OkStatus();

  // All ranks have seen the same records, so all come here. Lengths first, then the details.
  if (current_shared_memory_ != nullptr) current_shared_memory_->Rollback();
  const std::string all = execute::Details(own, problem);
  std::vector<int64_t> lengths(static_cast<size_t>(size_));
  lengths[rank_] = static_cast<int64_t>(all.size());
  status = AllGather(lengths.data(), sizeof(int64_t));
  if (!status.ok()) return status;
  constexpr int64_t kLongestDetails = int64_t{1} << 20;
  const int64_t longest = std::clamp<int64_t>(*std::max_element(lengths.begin(), lengths.end()), 1, kLongestDetails);
  std::vector<char> texts(static_cast<size_t>(size_ * longest), '\0');
  std::memcpy(texts.data() + rank_ * longest, all.data(), std::min(all.size(), static_cast<size_t>(longest)));
  status = AllGather(texts.data(), longest);
  if (!status.ok()) return status;
  std::vector<std::string> everybody;
  for (int64_t r = 0; r < size_; ++r) {
    const int64_t length = std::clamp<int64_t>(lengths[r], 0, longest);
    everybody.emplace_back(texts.data() + r * longest, static_cast<size_t>(length));
  }
  if (!own.ok()) return own;
  std::vector<int64_t> ranks(static_cast<size_t>(size_));
  std::iota(ranks.begin(), ranks.end(), int64_t{0});
  return execute::Verdict(ranks, records, everybody);
}

void PeerCommunicator::Close() {
  closed_ = true;
  others_.board().Close();
  std::shared_ptr<shared::SharedMemoryTransport> shared_memory;  // goes last, or with the operation under way
  {
    const status::MutexLock lock(mutex_);
    shared_memory = std::move(shared_memory_);
  }
  if (shared_memory != nullptr) shared_memory->Leave();
}

absl::Status PeerCommunicator::Agree(const absl::Status& own, const Signature& problem) {
  if (size_ == 1) return own;
  return Operate<absl::Status>("agreement", sizeof(execute::AgreementRecord), 0,
                               [&] { return AgreeNow(own, problem); });
}

absl::Status PeerCommunicator::AgreeBefore(const StepProgram& next, absl::Span<const ConstTensorView> inputs,
                                           const Signature& problem) {
  if (size_ == 1) return absl::OkStatus();
  return Operate<absl::Status>("agreement", sizeof(execute::AgreementRecord), 0, [&] {
    // For the operation that follows this one.
    if (current_shared_memory_ != nullptr && std::all_of(inputs.begin(), inputs.end(), OnHost)) {
      packed::Prepack(next, inputs, SharedMemoryTag(others_.operations() + 1, next.salt), *current_shared_memory_);
    }
    return AgreeNow(absl::OkStatus(), problem);
  });
}

absl::Status PeerCommunicator::Barrier() {
  if (size_ == 1) return absl::OkStatus();
  return Operate<absl::Status>("barrier", 1, 0, [&] {
    std::vector<char> tokens(static_cast<size_t>(size_));
    return AllGather(tokens.data(), 1);
  });
}

absl::StatusOr<MoveStats> PeerCommunicator::ExecuteStep(const StepProgram& step,
                                                        absl::Span<const ConstTensorView> inputs,
                                                        absl::Span<const TensorView> outputs,
                                                        std::unique_ptr<StepMemo>* /*memo*/) {
  if (!std::all_of(inputs.begin(), inputs.end(), OnHost) || !std::all_of(outputs.begin(), outputs.end(), OnHost)) {
    return absl::UnimplementedError("a communicator of host tensors; those of GPUs have one of their own");
  }
  return Operate<absl::StatusOr<MoveStats>>(status::View(Name(step.op)), step.recv_bytes, step.salt, [&] {
    absl::StatusOr<MoveStats> moved =
        packed::ExecutePackedStep(step, rank_, inputs, outputs, *transport_, current_shared_memory_.get());
    if (!moved.ok()) others_.Fail(moved.status());
    return moved;
  });
}

}  // namespace reshard::peers
