#include "runtime/core/packed_step.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <deque>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/core/host_pool.h"
#include "runtime/core/reduce.h"

namespace reshard {
namespace {

using Clock = std::chrono::steady_clock;

// Adds the time since the last lap to one of three accounts.
class Laps {
 public:
  void operator()(double* account) {
    const Clock::time_point now = Clock::now();
    *account += std::chrono::duration<double>(now - last_).count();
    last_ = now;
  }

 private:
  Clock::time_point last_ = Clock::now();
};

// Bytes of one fragment that go to, or come from, one peer.
struct Piece {
  int64_t peer = 0;
  char* fragment = nullptr;           // where the copy's fragment side starts; only read when sending
  const StridedCopy* copy = nullptr;  // fragment -> message when sending, message -> fragment when receiving
  int64_t bytes = 0;
};

// Pieces of one peer that travel together.
struct WireMessage {
  int64_t peer = 0;
  int64_t bytes = 0;
  std::vector<const Piece*> pieces;
  char* direct = nullptr;  // the bytes lie here, or go here; else they are staged
  int64_t staged_at = 0;
};

// The messages of pieces that are ordered by peer: per peer the large pieces in order, then the small ones in one.
// Starts with the first peer after `rank`.
std::vector<WireMessage> MessagesOf(const std::vector<Piece>& pieces, int64_t rank, bool sending) {
  std::vector<WireMessage> messages;
  messages.reserve(pieces.size());
  const auto first = std::find_if(pieces.begin(), pieces.end(), [&](const Piece& p) { return p.peer > rank; });
  const auto begin = static_cast<size_t>(first - pieces.begin());
  WireMessage shared;
  const auto close = [&] {
    if (!shared.pieces.empty()) messages.push_back(std::move(shared));
    shared = {};
  };
  for (size_t k = 0; k < pieces.size(); ++k) {
    const Piece& piece = pieces[(begin + k) % pieces.size()];
    if (shared.peer != piece.peer) close();
    shared.peer = piece.peer;
    if (piece.bytes >= kOwnMessageBytes) {
      messages.push_back({piece.peer, piece.bytes, {&piece}, nullptr, 0});
    } else {
      shared.bytes += piece.bytes;
      shared.pieces.push_back(&piece);
    }
  }
  close();
  for (WireMessage& message : messages) {
    if (message.pieces.size() != 1 || !message.pieces[0]->copy->contiguous()) continue;
    const Piece& piece = *message.pieces[0];
    message.direct = piece.fragment + (sending ? piece.copy->from_offset() : piece.copy->to_offset());
  }
  return messages;
}

int64_t PlaceStaging(std::vector<WireMessage>& messages) {
  int64_t bytes = 0;
  for (WireMessage& message : messages) {
    if (message.direct != nullptr) continue;
    message.staged_at = bytes;
    bytes += AlignedHostBytes(message.bytes);
  }
  return bytes;
}

absl::Status NoStaging(int64_t bytes) {
  return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes of staging"));
}

// Moves all pieces. `meanwhile` runs between handing over the last send and waiting for the first receive.
template <typename Meanwhile>
absl::Status MovePieces(const std::vector<Piece>& sends, const std::vector<Piece>& receives, int64_t rank,
                        MessageTransport& transport, MoveStats* stats, Laps& lap, const Meanwhile& meanwhile) {
  std::vector<WireMessage> outgoing = MessagesOf(sends, rank, true);
  std::vector<WireMessage> incoming = MessagesOf(receives, rank, false);
  const int64_t send_bytes = PlaceStaging(outgoing);
  const int64_t receive_bytes = PlaceStaging(incoming);
  HostBlock send_staging;
  HostBlock receive_staging;
  if (send_bytes > 0 && !(send_staging = HostBlock(send_bytes))) return NoStaging(send_bytes);
  if (receive_bytes > 0 && !(receive_staging = HostBlock(receive_bytes))) return NoStaging(receive_bytes);

  // Destroyed before the staging, whatever happens.
  const std::unique_ptr<MessageRound> round = transport.NewRound();
  absl::Status status;
  for (const WireMessage& message : incoming) {
    char* const data = message.direct != nullptr ? message.direct : receive_staging.data() + message.staged_at;
    status = round->PostReceive(message.peer, data, message.bytes);
    if (!status.ok()) return status;
  }
  lap(&stats->communicate_seconds);
  for (const WireMessage& message : outgoing) {
    const char* data = message.direct;
    if (data == nullptr) {
      char* at = send_staging.data() + message.staged_at;
      data = at;
      for (const Piece* piece : message.pieces) {
        piece->copy->Run(piece->fragment, at);
        at += piece->bytes;
      }
      lap(&stats->pack_seconds);
    }
    status = round->PostSend(message.peer, data, message.bytes);
    if (!status.ok()) return status;
    lap(&stats->communicate_seconds);
  }
  status = round->Posted();
  if (!status.ok()) return status;
  lap(&stats->communicate_seconds);
  meanwhile();
  lap(&stats->unpack_seconds);
  for (size_t i = 0; i < incoming.size(); ++i) {
    const WireMessage& message = incoming[i];
    status = round->WaitReceive(i);
    if (!status.ok()) return status;
    stats->received += message.bytes;
    lap(&stats->communicate_seconds);
    if (message.direct != nullptr) continue;
    const char* at = receive_staging.data() + message.staged_at;
    for (const Piece* piece : message.pieces) {
      piece->copy->Run(at, piece->fragment);
      at += piece->bytes;
    }
    lap(&stats->unpack_seconds);
  }
  status = round->WaitSends();
  lap(&stats->communicate_seconds);
  return status;
}

// A dense run of bytes as a copy.
StridedCopy Bytes(int64_t bytes) { return StridedCopy({{{0, 0, bytes}}}, 1, {1}, {1}); }

// What this rank keeps: from its input straight to its output.
struct OwnPart {
  const StridedCopy* copy = nullptr;
  const char* from = nullptr;
  char* to = nullptr;
};

// Where pieces, one after the other, lie in memory without gaps: the start of the first. Null when they do not.
template <typename Offset>
char* Contiguous(const std::vector<const Piece*>& pieces, Offset offset) {
  char* start = nullptr;
  const char* end = nullptr;
  for (const Piece* piece : pieces) {
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

// The same by one all-to-all. Pieces come ordered by peer. What a rank keeps takes part when that makes one side's
// buffer the fragment itself.
absl::Status MoveTogether(const std::vector<Piece>& sends, const std::vector<Piece>& receives,
                          const std::vector<OwnPart>& own, int64_t rank, MessageTransport& transport, MoveStats* stats,
                          Laps& lap) {
  StridedCopy own_bytes;  // how the own part looks as a piece
  std::vector<Piece> own_out;
  std::vector<Piece> own_in;
  if (own.size() == 1 && own[0].copy->contiguous()) {
    const int64_t bytes = own[0].copy->bytes();
    own_bytes = Bytes(bytes);
    char* const from = const_cast<char*>(own[0].from) + own[0].copy->from_offset();
    own_out.push_back({rank, from, &own_bytes, bytes});
    own_in.push_back({rank, own[0].to + own[0].copy->to_offset(), &own_bytes, bytes});
  }
  const auto in_order = [rank](const std::vector<Piece>& pieces, const std::vector<Piece>& kept) {
    std::vector<const Piece*> list;
    size_t k = 0;
    for (; k < pieces.size() && pieces[k].peer < rank; ++k) list.push_back(&pieces[k]);
    for (const Piece& piece : kept) list.push_back(&piece);
    for (; k < pieces.size(); ++k) list.push_back(&pieces[k]);
    return list;
  };
  const auto from_side = [](const StridedCopy& copy) { return copy.from_offset(); };
  const auto to_side = [](const StridedCopy& copy) { return copy.to_offset(); };
  std::vector<const Piece*> out = in_order(sends, own_out);
  std::vector<const Piece*> in = in_order(receives, own_in);
  char* send_direct = Contiguous(out, from_side);
  char* receive_direct = Contiguous(in, to_side);
  const bool own_travels = !own_out.empty() && (send_direct != nullptr || receive_direct != nullptr);
  if (!own_travels) {
    out = in_order(sends, {});
    in = in_order(receives, {});
    send_direct = Contiguous(out, from_side);
    receive_direct = Contiguous(in, to_side);
  }

  std::vector<int64_t> send_bytes(static_cast<size_t>(transport.world_size()), 0);
  std::vector<int64_t> receive_bytes(send_bytes);
  int64_t send_total = 0;
  int64_t receive_total = 0;
  for (const Piece* piece : out) {
    send_bytes[static_cast<size_t>(piece->peer)] += piece->bytes;
    send_total += piece->bytes;
  }
  for (const Piece* piece : in) {
    receive_bytes[static_cast<size_t>(piece->peer)] += piece->bytes;
    receive_total += piece->bytes;
  }
  HostBlock send_staging;
  HostBlock receive_staging;
  if (send_direct == nullptr && !(send_staging = HostBlock(send_total))) return NoStaging(send_total);
  if (receive_direct == nullptr && !(receive_staging = HostBlock(receive_total))) return NoStaging(receive_total);
  if (send_direct == nullptr) {
    char* at = send_staging.data();
    for (const Piece* piece : out) {
      piece->copy->Run(piece->fragment, at);
      at += piece->bytes;
    }
    lap(&stats->pack_seconds);
  }
  const absl::Status moved =
      transport.AllToAll(send_direct != nullptr ? send_direct : send_staging.data(), send_bytes,
                         receive_direct != nullptr ? receive_direct : receive_staging.data(), receive_bytes);
  if (!moved.ok()) return moved;
  lap(&stats->communicate_seconds);
  for (const Piece& piece : receives) stats->received += piece.bytes;
  if (receive_direct == nullptr) {
    const char* at = receive_staging.data();
    for (const Piece* piece : in) {
      piece->copy->Run(at, piece->fragment);
      at += piece->bytes;
    }
  }
  if (!own_travels) {
    for (const OwnPart& part : own) part.copy->Run(part.from, part.to);
  }
  lap(&stats->unpack_seconds);
  return absl::OkStatus();
}

char* Data(const ConstTensorView& view) { return static_cast<char*>(const_cast<void*>(view.data)); }

// The copies of a step: those of the program where the fragment is dense, else made for its strides and kept in `made`.
struct CopyChooser {
  std::deque<StridedCopy> made;

  const StridedCopy* Pack(const Transfer& transfer, const ConstTensorView& in, bool dense) {
    if (dense && transfer.copy.bytes() > 0) return &transfer.copy;
    return &made.emplace_back(ToMessage(transfer.region), SizeOf(in.dtype), in.strides,
                              MessageStrides(transfer.region));
  }
  const StridedCopy* Unpack(const Transfer& transfer, const TensorView& out, bool dense) {
    if (dense && transfer.copy.bytes() > 0) return &transfer.copy;
    return &made.emplace_back(FromMessage(transfer.region), SizeOf(out.dtype), MessageStrides(transfer.region),
                              out.strides);
  }
  const StridedCopy* Own(const Transfer& transfer, const ConstTensorView& in, const TensorView& out, bool dense) {
    if (dense && transfer.copy.bytes() > 0) return &transfer.copy;
    return &made.emplace_back(transfer.region, SizeOf(out.dtype), in.strides, out.strides);
  }
};

template <typename View>
std::vector<char> DenseOnes(absl::Span<const View> views) {
  std::vector<char> dense;
  for (const View& view : views) dense.push_back(IsDense(view) ? 1 : 0);
  return dense;
}

absl::Status Move(const StepProgram& step, int64_t rank, absl::Span<const ConstTensorView> inputs,
                  absl::Span<const TensorView> outputs, MessageTransport& transport, MoveStats* stats, Laps& lap) {
  const std::vector<char> dense_in = DenseOnes(inputs);
  const std::vector<char> dense_out = DenseOnes(outputs);
  CopyChooser copies;
  std::vector<Piece> sends;
  std::vector<Piece> receives;
  std::vector<OwnPart> own;
  sends.reserve(step.sends.size());
  receives.reserve(step.receives.size());
  for (const Transfer& transfer : step.sends) {
    const auto t = static_cast<size_t>(transfer.tensor);
    sends.push_back(
        {transfer.peer, Data(inputs[t]), copies.Pack(transfer, inputs[t], dense_in[t] != 0), transfer.bytes});
  }
  int64_t own_bytes = 0;
  for (const Transfer& transfer : step.receives) {
    const auto t = static_cast<size_t>(transfer.tensor);
    stats->written += transfer.bytes;
    if (transfer.peer == rank) {
      const bool dense = dense_in[t] != 0 && dense_out[t] != 0;
      own.push_back({copies.Own(transfer, inputs[t], outputs[t], dense), Data(inputs[t]), Data(outputs[t])});
      own_bytes += transfer.bytes;
    } else {
      receives.push_back(
          {transfer.peer, Data(outputs[t]), copies.Unpack(transfer, outputs[t], dense_out[t] != 0), transfer.bytes});
    }
  }
  stats->copied_local += own_bytes;
  const CopyMode mode = CopyModeFor(own_bytes, 1);
  const auto copy_own = [&] {
    for (const OwnPart& part : own) part.copy->Run(part.from, part.to, mode);
  };
  if (step.op != Op::kSlice && transport.PrefersAllToAll(step.recv_bytes_max, step.peers_max)) {
    return MoveTogether(sends, receives, own, rank, transport, stats, lap);
  }
  if (sends.empty() && receives.empty()) {
    copy_own();
    lap(&stats->unpack_seconds);
    return absl::OkStatus();
  }
  return MovePieces(sends, receives, rank, transport, stats, lap, copy_own);
}

// Moves pieces that no rank keeps a part of, in the way that suits the step.
absl::Status Exchange(const StepProgram& step, const std::vector<Piece>& sends, const std::vector<Piece>& receives,
                      int64_t rank, MessageTransport& transport, MoveStats* stats, Laps& lap) {
  if (transport.PrefersAllToAll(step.recv_bytes_max, step.peers_max)) {
    return MoveTogether(sends, receives, {}, rank, transport, stats, lap);
  }
  return MovePieces(sends, receives, rank, transport, stats, lap, [] {});
}

// Every member's contribution to the whole output comes in, and is combined.
absl::Status ReduceScatter(const StepProgram& step, int64_t rank, absl::Span<const ConstTensorView> inputs,
                           absl::Span<const TensorView> outputs, MessageTransport& transport, MoveStats* stats,
                           Laps& lap) {
  CopyChooser copies;
  std::deque<HostBlock> blocks;
  std::deque<StridedCopy> whole;
  std::vector<Piece> sends;
  std::vector<Piece> receives;
  struct Reduction {
    char* contributions = nullptr;
    int64_t pitch = 0;
    size_t members = 0;
  };
  std::vector<Reduction> reductions(step.tensors.size());
  for (const Transfer& transfer : step.sends) {
    const auto t = static_cast<size_t>(transfer.tensor);
    sends.push_back({transfer.peer, Data(inputs[t]), copies.Pack(transfer, inputs[t], false), transfer.bytes});
  }
  for (const Transfer& transfer : step.receives) ++reductions[static_cast<size_t>(transfer.tensor)].members;
  for (size_t t = 0; t < reductions.size(); ++t) {
    Reduction& reduction = reductions[t];
    const int64_t bytes = NumElements(outputs[t].shape) * SizeOf(outputs[t].dtype);
    if (reduction.members == 0 || bytes == 0) continue;
    reduction.pitch = AlignedHostBytes(bytes);
    blocks.emplace_back(reduction.pitch * static_cast<int64_t>(reduction.members));
    if (!blocks.back()) return NoStaging(reduction.pitch * static_cast<int64_t>(reduction.members));
    reduction.contributions = blocks.back().data();
    reduction.members = 0;
  }
  for (const Transfer& transfer : step.receives) {
    const auto t = static_cast<size_t>(transfer.tensor);
    Reduction& reduction = reductions[t];
    char* const at = reduction.contributions + static_cast<int64_t>(reduction.members++) * reduction.pitch;
    if (transfer.peer == rank) {
      copies.Pack(transfer, inputs[t], false)->Run(inputs[t].data, at);
    } else {
      receives.push_back({transfer.peer, at, &whole.emplace_back(Bytes(transfer.bytes)), transfer.bytes});
    }
  }
  lap(&stats->pack_seconds);
  const absl::Status moved = Exchange(step, sends, receives, rank, transport, stats, lap);
  if (!moved.ok()) return moved;
  for (size_t t = 0; t < reductions.size(); ++t) {
    const Reduction& reduction = reductions[t];
    if (reduction.contributions == nullptr) continue;
    const TensorView& out = outputs[t];
    // Contributions are dense in the shape of the output.
    const Dims dense = DenseStrides(out.shape);
    std::vector<Contribution> list;
    for (size_t m = 0; m < reduction.members; ++m) {
      list.push_back({reduction.contributions + static_cast<int64_t>(m) * reduction.pitch, dense});
    }
    ReduceBox(step.tensors[t].reduce, out.dtype, out.shape, list, out.data, out.strides);
    stats->written += NumElements(out.shape) * SizeOf(out.dtype);
  }
  lap(&stats->unpack_seconds);
  return absl::OkStatus();
}

// Member i combines the i-th chunk of everybody's fragment and gives it to all.
absl::Status AllReduce(const StepProgram& step, int64_t rank, absl::Span<const ConstTensorView> inputs,
                       absl::Span<const TensorView> outputs, MessageTransport& transport, MoveStats* stats, Laps& lap) {
  const auto members = static_cast<int64_t>(step.group.size());
  struct Reduction {
    HostBlock packed;         // the input, when it is not dense
    HostBlock contributions;  // everybody's part of this rank's chunk
    HostBlock result;         // the output, when it is not dense
    const char* in = nullptr;
    char* out = nullptr;
    int64_t element = 0;
    int64_t elements = 0;
    Interval own;
  };
  std::deque<StridedCopy> copies;
  std::vector<Reduction> reductions(step.tensors.size());
  std::vector<Piece> sends;
  std::vector<Piece> receives;
  std::vector<Piece> gives;
  std::vector<Piece> takes;
  for (size_t t = 0; t < reductions.size(); ++t) {
    Reduction& r = reductions[t];
    r.element = SizeOf(outputs[t].dtype);
    r.elements = NumElements(outputs[t].shape);
    const int64_t bytes = r.elements * r.element;
    if (bytes == 0) continue;
    stats->written += bytes;
    r.own = AllReduceChunk(r.elements, members, step.group_index);
    r.in = Data(inputs[t]);
    r.out = static_cast<char*>(outputs[t].data);
    if (!IsDense(inputs[t])) {
      r.packed = HostBlock(bytes);
      if (!r.packed) return NoStaging(bytes);
      StridedCopy(WholeRegion(inputs[t].shape), r.element, inputs[t].strides, DenseStrides(inputs[t].shape))
          .Run(inputs[t].data, r.packed.data());
      r.in = r.packed.data();
    }
    if (!IsDense(outputs[t])) {
      r.result = HostBlock(bytes);
      if (!r.result) return NoStaging(bytes);
      r.out = r.result.data();
    }
    const int64_t pitch = r.own.length() * r.element;
    r.contributions = HostBlock(pitch * members);
    if (!r.contributions) return NoStaging(pitch * members);
  }
  lap(&stats->pack_seconds);
  // Pieces go by peer, and contributions are combined in the order of the ranks.
  std::vector<int64_t> in_rank_order(static_cast<size_t>(members));
  std::iota(in_rank_order.begin(), in_rank_order.end(), int64_t{0});
  std::sort(in_rank_order.begin(), in_rank_order.end(), [&](int64_t a, int64_t b) {
    return step.group[static_cast<size_t>(a)] < step.group[static_cast<size_t>(b)];
  });
  for (const int64_t m : in_rank_order) {
    const int64_t peer = step.group[static_cast<size_t>(m)];
    if (peer == rank) continue;
    for (Reduction& r : reductions) {
      const Interval theirs = AllReduceChunk(r.elements, members, m);
      const int64_t their_bytes = theirs.length() * r.element;
      const int64_t own_bytes = r.own.length() * r.element;
      if (their_bytes > 0) {
        const StridedCopy* copy = &copies.emplace_back(Bytes(their_bytes));
        sends.push_back({peer, const_cast<char*>(r.in) + theirs.begin * r.element, copy, their_bytes});
        takes.push_back({peer, r.out + theirs.begin * r.element, copy, their_bytes});
      }
      if (own_bytes > 0) {
        const StridedCopy* copy = &copies.emplace_back(Bytes(own_bytes));
        receives.push_back({peer, r.contributions.data() + m * own_bytes, copy, own_bytes});
        gives.push_back({peer, r.out + r.own.begin * r.element, copy, own_bytes});
      }
    }
  }
  absl::Status moved = Exchange(step, sends, receives, rank, transport, stats, lap);
  if (!moved.ok()) return moved;
  for (size_t t = 0; t < reductions.size(); ++t) {
    const Reduction& r = reductions[t];
    if (r.own.length() == 0) continue;
    const int64_t stride = 1;
    const int64_t length = r.own.length();
    std::vector<Contribution> list;
    for (const int64_t m : in_rank_order) {
      const char* theirs = r.contributions.data() + m * length * r.element;
      list.push_back({m == step.group_index ? r.in + r.own.begin * r.element : theirs, {&stride, 1}});
    }
    ReduceBox(step.tensors[t].reduce, outputs[t].dtype, {&length, 1}, list, r.out + r.own.begin * r.element,
              {&stride, 1});
  }
  lap(&stats->unpack_seconds);
  moved = Exchange(step, gives, takes, rank, transport, stats, lap);
  if (!moved.ok()) return moved;
  for (size_t t = 0; t < reductions.size(); ++t) {
    if (!reductions[t].result) continue;
    StridedCopy(WholeRegion(outputs[t].shape), reductions[t].element, DenseStrides(outputs[t].shape),
                outputs[t].strides)
        .Run(reductions[t].result.data(), outputs[t].data);
  }
  lap(&stats->unpack_seconds);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<MoveStats> ExecutePackedStep(const StepProgram& step, int64_t rank,
                                            absl::Span<const ConstTensorView> inputs,
                                            absl::Span<const TensorView> outputs, MessageTransport& transport) {
  if (inputs.size() != step.tensors.size() || outputs.size() != step.tensors.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the step has ", step.tensors.size(), " tensors, got ",
                                                   inputs.size(), " inputs and ", outputs.size(), " outputs"));
  }
  MoveStats stats;
  Laps lap;
  absl::Status status;
  switch (step.op) {
    case Op::kReduceScatter:
      status = ReduceScatter(step, rank, inputs, outputs, transport, &stats, lap);
      break;
    case Op::kAllReduce:
      status = AllReduce(step, rank, inputs, outputs, transport, &stats, lap);
      break;
    default:
      status = Move(step, rank, inputs, outputs, transport, &stats, lap);
      break;
  }
  if (!status.ok()) return status;
  return stats;
}

}  // namespace reshard
