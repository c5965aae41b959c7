#include "runtime/packed/packed_moves.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "runtime/host/host_pool.h"
#include "runtime/host/reduce.h"
#include "runtime/packed/contributions.h"
#include "runtime/packed/fetch_ahead.h"
#include "runtime/packed/step_copies.h"
#include "status/macros.h"

namespace reshard::packed {

absl::Status NoStaging(int64_t bytes) {
  return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes of staging"));
}

namespace {

// Where a message is: in its fragment, or in the staging memory.
char* PlaceOf(const WireMessage& message, bool sending, char* staging) {
  if (!message.direct()) return staging + message.staged_at;
  const MessagePart& piece = *message.pieces[0];
  return piece.fragment + (sending ? piece.copy->from_offset() : piece.copy->to_offset());
}

// Moves all pieces as single messages. `meanwhile` runs between posting the last send and waiting for the first
// receive, when this rank would otherwise be idle.
absl::Status MovePieces(PackedStep& packed, const std::vector<MessagePart>& sends,
                        const std::vector<MessagePart>& receives, absl::FunctionRef<absl::Status()> meanwhile) {
  MoveStats* const stats = &packed.stats;
  Stopwatch& stopwatch = packed.stopwatch;
  if (sends.empty() && receives.empty()) {  // no round for nothing
    const absl::Status done = meanwhile();
    stopwatch(&stats->unpack_seconds);
    return done;
  }
  std::vector<WireMessage> outgoing = MessagesOf(sends, packed.rank);
  std::vector<WireMessage> incoming = MessagesOf(receives, packed.rank);
  const int64_t send_bytes = PlaceStaging(outgoing);
  const int64_t receive_bytes = PlaceStaging(incoming);
  host::HostBlock send_staging;
  host::HostBlock receive_staging;
  if (send_bytes > 0 && !(send_staging = host::HostBlock(send_bytes))) return NoStaging(send_bytes);
  if (receive_bytes > 0 && !(receive_staging = host::HostBlock(receive_bytes))) return NoStaging(receive_bytes);

  // Declared after the staging, so that it is destroyed first: the backend must not touch memory that has been
  // returned.
  const std::unique_ptr<MessageRound> round = packed.transport.NewRound();
  // Receives first, so that messages of faster ranks go straight to their places while this rank is still packing.
  absl::Status status;
  for (const WireMessage& message : incoming) {
    status = round->PostReceive(message.peer, PlaceOf(message, false, receive_staging.data()), message.bytes);
    if (!status.ok()) return status;
  }
  stopwatch(&stats->communicate_seconds);
  for (const WireMessage& message : outgoing) {
    char* const data = PlaceOf(message, true, send_staging.data());
    if (!message.direct()) {
      char* at = data;
      for (const MessagePart* piece : message.pieces) {
        piece->copy->Run(piece->fragment, at);
        at += piece->bytes;
      }
      stopwatch(&stats->pack_seconds);
    }
    status = round->PostSend(message.peer, data, message.bytes);
    if (!status.ok()) return status;
    stopwatch(&stats->communicate_seconds);
  }
  status = round->Posted();
  if (!status.ok()) return status;
  stopwatch(&stats->communicate_seconds);
  status = meanwhile();
  if (!status.ok()) return status;
  stopwatch(&stats->unpack_seconds);
  for (size_t i = 0; i < incoming.size(); ++i) {
    const WireMessage& message = incoming[i];
    status = round->WaitReceive(i);
    if (!status.ok()) return status;
    stats->received += message.bytes;
    stopwatch(&stats->communicate_seconds);
    if (message.direct()) continue;
    const char* at = receive_staging.data() + message.staged_at;
    for (const MessagePart* piece : message.pieces) {
      piece->copy->Run(at, piece->fragment);
      at += piece->bytes;
    }
    stopwatch(&stats->unpack_seconds);
  }
  status = round->WaitSends();
  stopwatch(&stats->communicate_seconds);
  return status;
}

// Which side of a copy is scattered over memory. The other one is a message, which is read or written from front to
// back, as the processor predicts.
enum class Side { kRead, kWritten };

// One copy of many: into a message, out of one, or from this rank's input, parts of which were just packed, to its
// output.
struct Job {
  const StridedCopy* copy = nullptr;
  const char* from = nullptr;
  char* to = nullptr;
  int tensor = 0;
  Side scattered = Side::kWritten;
};

// Orders jobs tensor by tensor, so that the cache lines of a tensor are fetched once for all its pieces. A counting
// sort, since it is stable and linear.
void OrderByTensor(size_t tensors, std::vector<Job>* jobs) {
  if (tensors < 2) return;
  std::vector<size_t> place(tensors + 1, 0);
  for (const Job& job : *jobs) ++place[static_cast<size_t>(job.tensor) + 1];
  std::partial_sum(place.begin(), place.end(), place.begin());
  std::vector<Job> ordered(jobs->size());
  for (const Job& job : *jobs) ordered[place[job.tensor]++] = job;
  *jobs = std::move(ordered);
}

void RunJobs(absl::Span<const Job> jobs, CopyMode mode) {
  CopyFetchingAhead(
      jobs.size(),
      [&](size_t k) {
        const bool written = jobs[k].scattered == Side::kWritten;
        FetchSmall(*jobs[k].copy, written ? jobs[k].to : jobs[k].from, written);
      },
      [&](size_t k) { jobs[k].copy->Run(jobs[k].from, jobs[k].to, mode); });
}

// The start of the first piece if all pieces follow each other in memory without gaps, else null. The fragment can then
// be the buffer of the all-to-all itself.
template <typename Offset>
char* Contiguous(const std::vector<const MessagePart*>& pieces, Offset offset) {
  char* start = nullptr;
  const char* end = nullptr;
  for (const MessagePart* piece : pieces) {
    if (!piece->copy->contiguous()) return nullptr;
    char* const at = piece->fragment + offset(*piece->copy);
    if (start == nullptr) {
      start = at;
    } else if (at != end) {
      return nullptr;
    }
    end = at + piece->bytes;
  }
  return start;
}

// Moves all pieces in one all-to-all. Pieces are ordered by peer. What a rank keeps takes part if that lets one side
// use the fragment itself as its buffer: sending a part to oneself costs less than staging everything.
absl::Status MoveTogether(PackedStep& packed, const std::vector<MessagePart>& sends,
                          const std::vector<MessagePart>& receives, const std::vector<Job>& own) {
  const int64_t rank = packed.rank;
  StridedCopy own_bytes;  // the rank's own part as a piece
  std::vector<MessagePart> own_out;
  std::vector<MessagePart> own_in;
  if (own.size() == 1 && own[0].copy->contiguous()) {
    const int64_t bytes = own[0].copy->bytes();
    own_bytes = Bytes(bytes);
    char* const from = const_cast<char*>(own[0].from) + own[0].copy->from_offset();
    own_out.push_back({rank, from, &own_bytes, bytes, 0});
    own_in.push_back({rank, own[0].to + own[0].copy->to_offset(), &own_bytes, bytes, 0});
  }
  const auto in_order = [rank](const std::vector<MessagePart>& pieces, const std::vector<MessagePart>& kept) {
    std::vector<const MessagePart*> list;
    list.reserve(pieces.size() + kept.size());
    size_t k = 0;
    for (; k < pieces.size() && pieces[k].peer < rank; ++k) list.push_back(&pieces[k]);
    for (const MessagePart& piece : kept) list.push_back(&piece);
    for (; k < pieces.size(); ++k) list.push_back(&pieces[k]);
    return list;
  };
  const auto from_side = [](const StridedCopy& copy) { return copy.from_offset(); };
  const auto to_side = [](const StridedCopy& copy) { return copy.to_offset(); };
  std::vector<const MessagePart*> out = in_order(sends, own_out);
  std::vector<const MessagePart*> in = in_order(receives, own_in);
  char* send_direct = Contiguous(out, from_side);
  char* receive_direct = Contiguous(in, to_side);
  const bool own_travels = !own_out.empty() && (send_direct != nullptr || receive_direct != nullptr);
  if (!own_out.empty() && !own_travels) {
    out = in_order(sends, {});
    in = in_order(receives, {});
    send_direct = Contiguous(out, from_side);
    receive_direct = Contiguous(in, to_side);
  }

  std::vector<int64_t> send_bytes(static_cast<size_t>(packed.transport.world_size()), 0);
  std::vector<int64_t> receive_bytes(send_bytes);
  int64_t send_total = 0;
  int64_t receive_total = 0;
  for (const MessagePart* piece : out) {
    send_bytes[piece->peer] += piece->bytes;
    send_total += piece->bytes;
  }
  for (const MessagePart* piece : in) {
    receive_bytes[piece->peer] += piece->bytes;
    receive_total += piece->bytes;
  }
  host::HostBlock send_staging;
  host::HostBlock receive_staging;
  if (send_direct == nullptr && !(send_staging = host::HostBlock(send_total))) return NoStaging(send_total);
  if (receive_direct == nullptr && !(receive_staging = host::HostBlock(receive_total))) return NoStaging(receive_total);

  const size_t tensors = packed.step.tensors.size();
  std::vector<Job> jobs;
  jobs.reserve(out.size() + own.size());
  if (send_direct == nullptr) {
    char* at = send_staging.data();
    for (const MessagePart* piece : out) {
      jobs.push_back({piece->copy, piece->fragment, at, piece->tensor, Side::kRead});
      at += piece->bytes;
    }
  }
  if (!own_travels) jobs.insert(jobs.end(), own.begin(), own.end());
  OrderByTensor(tensors, &jobs);
  // Through the caches: only small steps come here, and the backend reads the messages next.
  RunJobs(jobs, CopyMode::kCached);
  packed.stopwatch(&packed.stats.pack_seconds);
  RETURN_IF_ERROR(packed.transport.AllToAll(send_direct != nullptr ? send_direct : send_staging.data(), send_bytes,
                                            receive_direct != nullptr ? receive_direct : receive_staging.data(),
                                            receive_bytes));
  packed.stopwatch(&packed.stats.communicate_seconds);
  for (const MessagePart& piece : receives) packed.stats.received += piece.bytes;
  if (receive_direct == nullptr) {
    jobs.clear();
    const char* at = receive_staging.data();
    for (const MessagePart* piece : in) {
      jobs.push_back({piece->copy, at, piece->fragment, piece->tensor, Side::kWritten});
      at += piece->bytes;
    }
    OrderByTensor(tensors, &jobs);
    RunJobs(jobs, CopyMode::kCached);
  }
  packed.stopwatch(&packed.stats.unpack_seconds);
  return absl::OkStatus();
}

// The pieces whose peers share memory with this rank, and the others.
std::pair<std::vector<MessagePart>, std::vector<MessagePart>> Apart(const std::vector<MessagePart>& pieces,
                                                                    const IntraHostExchange& intra_host) {
  std::pair<std::vector<MessagePart>, std::vector<MessagePart>> apart;
  for (const MessagePart& piece : pieces)
    (intra_host.Reaches(piece.peer) ? apart.first : apart.second).push_back(piece);
  return apart;
}

// How a step is written in which this rank, like the others, writes `bytes` bytes.
CopyMode ModeFor(const StepProgram& step, int64_t bytes) {
  return ModeAmong(std::max<int64_t>(1, step.peers_max + 1), bytes);
}

// What this rank keeps of the tensors of a step. Small tensors are copied as soon as what is sent of them has been
// packed, while their cache lines are warm; everything else when there is nothing else to do.
class OwnCopies {
 public:
  // `jobs` ascend by tensor.
  OwnCopies(std::vector<Job> jobs, CopyMode mode) : jobs_(std::move(jobs)), mode_(mode) {}

  const std::vector<Job>& jobs() const { return jobs_; }
  // See IntraHostExchange::Move.
  void Copy(int packed_before) {
    size_t end = done_;
    while (end < jobs_.size() && (packed_before == IntraHostExchange::kNothingElse ||
                                  (jobs_[end].tensor < packed_before && IsSmall(*jobs_[end].copy)))) {
      ++end;
    }
    RunJobs(absl::MakeConstSpan(jobs_).subspan(done_, end - done_), mode_);
    done_ = end;
  }

 private:
  std::vector<Job> jobs_;
  CopyMode mode_;
  size_t done_ = 0;
};

// Moves pieces to wherever their peers are, and copies what this rank keeps.
absl::Status Exchange(PackedStep& packed, const std::vector<MessagePart>& sends,
                      const std::vector<MessagePart>& receives, OwnCopies& own, CopyMode mode) {
  IntraHostExchange* const intra_host = packed.intra_host;
  const auto copy_own = [&own](int packed_before) { own.Copy(packed_before); };
  const auto move_intra_host = [&](const std::vector<MessagePart>& from, const std::vector<MessagePart>& to,
                                   absl::FunctionRef<void(int)> meanwhile) {
    return intra_host->Move(from, to, mode, meanwhile, &packed.stats, &packed.stopwatch);
  };
  if (intra_host != nullptr && intra_host->everybody()) return move_intra_host(sends, receives, copy_own);
  const bool together = packed.transport.PrefersAllToAll(packed.step.recv_bytes_max, packed.step.peers_max);
  if (intra_host == nullptr) {
    if (together) return MoveTogether(packed, sends, receives, own.jobs());
    return MovePieces(packed, sends, receives, [&] {
      own.Copy(IntraHostExchange::kNothingElse);
      return absl::OkStatus();
    });
  }
  const auto [local_sends, remote_sends] = Apart(sends, *intra_host);
  const auto [local_receives, remote_receives] = Apart(receives, *intra_host);
  if (together) {
    RETURN_IF_ERROR(move_intra_host(local_sends, local_receives, [](int) {}));
    return MoveTogether(packed, remote_sends, remote_receives, own.jobs());
  }
  return MovePieces(packed, remote_sends, remote_receives,
                    [&, &from = local_sends, &to = local_receives] { return move_intra_host(from, to, copy_own); });
}

template <typename View>
std::vector<char> DenseOnes(absl::Span<const View> views) {
  std::vector<char> dense;
  for (const View& view : views) dense.push_back(IsDense(view) ? 1 : 0);
  return dense;
}

}  // namespace

std::vector<MessagePart> SendsOf(const StepProgram& step, absl::Span<const ConstTensorView> inputs,
                                 StepCopies& copies) {
  const std::vector<char> dense = DenseOnes(inputs);
  std::vector<MessagePart> sends;
  sends.reserve(step.sends.size());
  for (const Transfer& transfer : step.sends) {
    const auto t = static_cast<size_t>(transfer.tensor);
    sends.push_back({transfer.peer, Data(inputs[t]), copies.Pack(transfer, inputs[t], dense[t] != 0), transfer.bytes,
                     transfer.tensor});
  }
  return sends;
}

absl::Status ExchangeStep(PackedStep& packed) {
  const StepProgram& step = packed.step;
  const absl::Span<const ConstTensorView> inputs = packed.inputs;
  const absl::Span<const TensorView> outputs = packed.outputs;
  const std::vector<char> dense_in = DenseOnes(inputs);
  const std::vector<char> dense_out = DenseOnes(outputs);
  StepCopies copies;
  Contributions contributions(step, packed.rank, inputs, outputs);
  RETURN_IF_ERROR(contributions.Allocate());
  const std::vector<MessagePart> sends = SendsOf(step, inputs, copies);
  std::vector<MessagePart> receives;
  std::vector<Job> kept;
  receives.reserve(step.receives.size());
  int64_t own_bytes = 0;
  int64_t placed_bytes = 0;  // in outputs, or among what is contributed to them
  for (const Transfer& transfer : step.receives) {
    const auto t = static_cast<size_t>(transfer.tensor);
    const bool own_part = transfer.peer == packed.rank;
    if (Reduces(step.tensors[t].op)) {
      if (own_part) continue;
      receives.push_back({transfer.peer, contributions.Next(transfer.tensor), copies.Bytes(0, 0, transfer.bytes),
                          transfer.bytes, transfer.tensor});
      placed_bytes += transfer.bytes;
      continue;
    }
    packed.stats.written += transfer.bytes;
    placed_bytes += transfer.bytes;
    if (own_part) {
      const bool dense = dense_in[t] != 0 && dense_out[t] != 0;
      kept.push_back(
          {copies.Own(transfer, inputs[t], outputs[t], dense), Data(inputs[t]), Data(outputs[t]), transfer.tensor});
      own_bytes += transfer.bytes;
    } else {
      receives.push_back({transfer.peer, Data(outputs[t]), copies.Unpack(transfer, outputs[t], dense_out[t] != 0),
                          transfer.bytes, transfer.tensor});
    }
  }
  packed.stats.copied_local += own_bytes;
  const CopyMode mode = packed.intra_host != nullptr ? ModeFor(packed.step, placed_bytes) : CopyModeFor(own_bytes, 1);
  OwnCopies own(std::move(kept), mode);
  if (step.op == Op::kSlice) {  // nothing travels
    own.Copy(IntraHostExchange::kNothingElse);
    packed.stopwatch(&packed.stats.unpack_seconds);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(Exchange(packed, sends, receives, own, mode));
  packed.stats.written += contributions.Combine();
  packed.stopwatch(&packed.stats.unpack_seconds);
  return absl::OkStatus();
}

absl::Status ExchangePieces(PackedStep& packed, const std::vector<MessagePart>& sends,
                            const std::vector<MessagePart>& receives) {
  int64_t bytes = 0;
  for (const MessagePart& piece : receives) bytes += piece.bytes;
  const CopyMode mode = ModeFor(packed.step, bytes);
  OwnCopies nothing({}, mode);
  return Exchange(packed, sends, receives, nothing, mode);
}

}  // namespace reshard::packed
