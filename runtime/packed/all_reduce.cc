#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include "absl/functional/function_ref.h"
#include "runtime/host/host_pool.h"
#include "runtime/host/reduce.h"
#include "runtime/packed/packed_moves.h"
#include "runtime/packed/step_copies.h"
#include "status/macros.h"

namespace reshard::packed {
namespace {

// The members of a step's group by rank, as indices into it: pieces are ordered by peer, and contributions are combined
// in the order of the ranks.
std::vector<int64_t> MembersByRank(const StepProgram& step) {
  std::vector<int64_t> members(step.group.size());
  std::iota(members.begin(), members.end(), int64_t{0});
  std::sort(members.begin(), members.end(), [&](int64_t a, int64_t b) { return step.group[a] < step.group[b]; });
  return members;
}

// Whether every member of an AllReduce between ranks that share memory combines everything, instead of its chunk for
// all: ranks meet once instead of twice, but with more than two each reads more. The same on all members.
bool EachCombinesAll(const StepProgram& step, absl::Span<const ConstTensorView> inputs) {
  // Measured with 2, 4 and 8 ranks: above, reading takes longer than meeting once more.
  constexpr int64_t kMost = int64_t{128} << 10;
  int64_t bytes = 0;
  for (const ConstTensorView& input : inputs) bytes += NumElements(input.shape) * SizeOf(input.dtype);
  return bytes * (static_cast<int64_t>(step.group.size()) - 1) <= kMost;
}

// The elements of a fragment that a member combines: its chunk, or all of them.
Interval CombinedBy(const StepProgram& step, int64_t member, int64_t elements, bool all) {
  return all ? Interval{0, elements} : AllReduceChunk(elements, static_cast<int64_t>(step.group.size()), member);
}

// What this rank contributes to what the others combine; in[t] is the t-th input, dense.
std::vector<MessagePart> ContributionsOf(const StepProgram& step, absl::Span<const int64_t> by_rank,
                                         absl::Span<const ConstTensorView> inputs, absl::Span<const char* const> in,
                                         bool all, StepCopies& copies) {
  std::vector<MessagePart> sends;
  for (const int64_t m : by_rank) {
    if (m == step.group_index) continue;
    for (size_t t = 0; t < inputs.size(); ++t) {
      const int64_t size = SizeOf(inputs[t].dtype);
      const Interval chunk = CombinedBy(step, m, NumElements(inputs[t].shape), all);
      const int64_t bytes = chunk.length() * size;
      if (bytes == 0) continue;
      sends.push_back({step.group[m], const_cast<char*>(in[t]) + chunk.begin * size, copies.Bytes(0, 0, bytes), bytes,
                       static_cast<int>(t)});
    }
  }
  return sends;
}

class AllReduce {
 public:
  explicit AllReduce(PackedStep& packed)
      : packed_(packed),
        step_(packed.step),
        by_rank_(MembersByRank(packed.step)),
        tensors_(packed.step.tensors.size()),
        dense_inputs_(packed.step.tensors.size()) {
    IntraHostExchange* const intra_host = packed.intra_host;
    if (intra_host != nullptr && intra_host->everybody() && by_rank_.size() > 1) intra_host_ = intra_host;
    all_ = intra_host_ != nullptr && EachCombinesAll(step_, packed.inputs);
  }

  absl::Status Run() {
    RETURN_IF_ERROR(MakeDense());
    packed_.stopwatch(&packed_.stats.pack_seconds);
    const std::vector<MessagePart> sends =
        ContributionsOf(step_, by_rank_, packed_.inputs, dense_inputs_, all_, copies_);
    if (intra_host_ != nullptr) {
      RETURN_IF_ERROR(all_ ? CombineAll(sends) : CombineChunks(sends));
    } else {
      RETURN_IF_ERROR(CombineStaged(sends));
      packed_.stopwatch(&packed_.stats.unpack_seconds);
      RETURN_IF_ERROR(ShareResults());
    }
    WriteBack();
    packed_.stopwatch(&packed_.stats.unpack_seconds);
    return absl::OkStatus();
  }

 private:
  struct Tensor {
    host::HostBlock packed;  // the input, when it is not dense
    host::HostBlock result;  // the output, when it is not dense
    const char* in = nullptr;
    char* out = nullptr;
    int64_t element = 0;  // bytes
    int64_t elements = 0;
    Interval own;  // the elements that this rank combines
    int64_t own_bytes() const { return own.length() * element; }
    const char* own_in() const { return in + own.begin * element; }
    char* own_out() const { return out + own.begin * element; }
  };

  int64_t members() const { return static_cast<int64_t>(step_.group.size()); }
  int64_t RankOf(int64_t member) const { return step_.group[member]; }

  absl::Status MakeDense() {
    int64_t combined = 0;  // bytes, by this rank
    int64_t written = 0;   // bytes
    for (size_t t = 0; t < tensors_.size(); ++t) {
      const ConstTensorView& input = packed_.inputs[t];
      const TensorView& output = packed_.outputs[t];
      Tensor& tensor = tensors_[t];
      tensor.element = SizeOf(output.dtype);
      tensor.elements = NumElements(output.shape);
      const int64_t bytes = tensor.elements * tensor.element;
      if (bytes == 0) continue;
      written += bytes;
      tensor.own = CombinedBy(step_, step_.group_index, tensor.elements, all_);
      combined += tensor.own_bytes();
      tensor.in = Data(input);
      tensor.out = static_cast<char*>(output.data);
      if (!IsDense(input)) {
        tensor.packed = host::HostBlock(bytes);
        if (!tensor.packed) return NoStaging(bytes);
        StridedCopy(WholeRegion(input.shape), tensor.element, input.strides, DenseStrides(input.shape))
            .Run(input.data, tensor.packed.data());
        tensor.in = tensor.packed.data();
      }
      dense_inputs_[t] = tensor.in;
      if (!IsDense(output)) {
        tensor.result = host::HostBlock(bytes);
        if (!tensor.result) return NoStaging(bytes);
        tensor.out = tensor.result.data();
      }
    }
    // What others combine is written here only where they share memory: else the transport writes it.
    mode_ = ModeAmong(members(), intra_host_ != nullptr ? written : combined);
    packed_.stats.written += written;
    return absl::OkStatus();
  }

  // Elements [begin, end) of what this rank combines of a tensor. from[i] is where those of the i-th other member by
  // rank are.
  void Combine(size_t t, int64_t begin, int64_t end, absl::Span<const char* const> from, char* to,
               CopyMode mode) const {
    const Tensor& tensor = tensors_[t];
    const int64_t stride = 1;
    const int64_t length = end - begin;
    std::vector<host::Contribution> list;
    for (const int64_t m : by_rank_) {
      const bool own = m == step_.group_index;
      list.push_back({own ? tensor.own_in() + begin * tensor.element : *from.begin(), {&stride, 1}});
      if (!own) from.remove_prefix(1);
    }
    host::ReduceBox(step_.tensors[t].reduce, packed_.outputs[t].dtype, {&length, 1}, list, to, {&stride, 1}, mode);
  }

  // The same for bytes of a result.
  void CombinePiece(const MessagePart& result, int64_t begin, int64_t end, absl::Span<const char* const> from, char* to,
                    CopyMode mode) const {
    const auto t = static_cast<size_t>(result.tensor);
    Combine(t, begin / tensors_[t].element, end / tensors_[t].element, from, to, mode);
  }

  std::vector<int64_t> OtherRanks() const {
    std::vector<int64_t> ranks;
    for (const int64_t m : by_rank_) {
      if (m != step_.group_index) ranks.push_back(RankOf(m));
    }
    return ranks;
  }

  // Adds the pieces that `member` combines, with their places on this rank; `peer` is the rank they are exchanged with.
  void AddResults(int64_t member, int64_t peer, std::vector<MessagePart>* pieces) {
    for (size_t t = 0; t < tensors_.size(); ++t) {
      const Tensor& tensor = tensors_[t];
      const Interval chunk = CombinedBy(step_, member, tensor.elements, all_);
      const int64_t bytes = chunk.length() * tensor.element;
      if (bytes == 0) continue;
      pieces->push_back(
          {peer, tensor.out + chunk.begin * tensor.element, copies_.Bytes(0, 0, bytes), bytes, static_cast<int>(t)});
    }
  }

  std::vector<MessagePart> ResultsOfOthers() {
    std::vector<MessagePart> pieces;
    for (const int64_t m : by_rank_) {
      if (m != step_.group_index) AddResults(m, RankOf(m), &pieces);
    }
    return pieces;
  }

  // Each member combines all of it.
  absl::Status CombineAll(const std::vector<MessagePart>& sends) {
    std::vector<MessagePart> results;
    AddResults(step_.group_index, packed_.rank, &results);
    std::vector<int64_t> lengths;
    for (const MessagePart& piece : results) lengths.push_back(piece.bytes);
    const auto combine = [&](size_t piece, int64_t begin, int64_t end, absl::Span<const char* const> from) {
      CombinePiece(results[piece], begin, end, from, results[piece].fragment + begin, mode_);
    };
    MoveStats& stats = packed_.stats;
    const int64_t before = stats.received;
    RETURN_IF_ERROR(intra_host_->Combine(sends, OtherRanks(), lengths, combine, &stats, &packed_.stopwatch));
    stats.received_extra += stats.received - before - step_.recv_bytes;
    stats.received = before + step_.recv_bytes;
    return absl::OkStatus();
  }

  // Each member combines its chunk and publishes each block as soon as it is reduced.
  absl::Status CombineChunks(const std::vector<MessagePart>& sends) {
    std::vector<MessagePart> results;
    AddResults(step_.group_index, packed_.rank, &results);
    const auto combine = [&](size_t piece, int64_t begin, int64_t end, absl::Span<const char* const> from, char* to) {
      CombinePiece(results[piece], begin, end, from, to, CopyMode::kCached);
    };
    return intra_host_->CombineForAll(sends, OtherRanks(), results, combine, ResultsOfOthers(), mode_, &packed_.stats,
                                      &packed_.stopwatch);
  }

  absl::Status CombineStaged(const std::vector<MessagePart>& sends) {
    std::vector<host::HostBlock> staged(tensors_.size());
    for (size_t t = 0; t < tensors_.size(); ++t) {
      const int64_t bytes = tensors_[t].own_bytes() * (members() - 1);
      if (bytes == 0) continue;
      staged[t] = host::HostBlock(bytes);
      if (!staged[t]) return NoStaging(bytes);
    }
    const std::vector<int64_t> others = OtherRanks();
    const auto staged_at = [&](size_t t, size_t i) {
      return staged[t].data() + static_cast<int64_t>(i) * tensors_[t].own_bytes();
    };
    std::vector<MessagePart> receives;
    for (size_t i = 0; i < others.size(); ++i) {
      for (size_t t = 0; t < tensors_.size(); ++t) {
        const int64_t bytes = tensors_[t].own_bytes();
        if (bytes == 0) continue;
        receives.push_back({others[i], staged_at(t, i), copies_.Bytes(0, 0, bytes), bytes, static_cast<int>(t)});
      }
    }
    RETURN_IF_ERROR(ExchangePieces(packed_, sends, receives));
    std::vector<const char*> from(others.size());
    for (size_t t = 0; t < tensors_.size(); ++t) {
      const Tensor& tensor = tensors_[t];
      if (tensor.own_bytes() == 0) continue;
      for (size_t i = 0; i < others.size(); ++i) from[i] = staged_at(t, i);
      Combine(t, 0, tensor.own.length(), from, tensor.own_out(), mode_);
    }
    return absl::OkStatus();
  }

  absl::Status ShareResults() {
    std::vector<MessagePart> gives;
    for (const int64_t rank : OtherRanks()) AddResults(step_.group_index, rank, &gives);
    return ExchangePieces(packed_, gives, ResultsOfOthers());
  }

  void WriteBack() {
    for (size_t t = 0; t < tensors_.size(); ++t) {
      const Tensor& tensor = tensors_[t];
      if (!tensor.result) continue;
      const TensorView& output = packed_.outputs[t];
      StridedCopy(WholeRegion(output.shape), tensor.element, DenseStrides(output.shape), output.strides)
          .Run(tensor.result.data(), output.data);
    }
  }

  PackedStep& packed_;
  const StepProgram& step_;
  const std::vector<int64_t> by_rank_;       // see MembersByRank
  IntraHostExchange* intra_host_ = nullptr;  // where contributions are combined as they come; else they are staged
  bool all_ = false;                         // see EachCombinesAll
  CopyMode mode_ = CopyMode::kCached;        // of what this rank writes to its outputs
  StepCopies copies_;
  std::vector<Tensor> tensors_;
  std::vector<const char*> dense_inputs_;
};

}  // namespace

void PrepackContributions(const StepProgram& step, absl::Span<const ConstTensorView> inputs, uint64_t tag,
                          IntraHostExchange& intra_host) {
  if (!std::all_of(inputs.begin(), inputs.end(), IsDense)) return;
  std::vector<const char*> in;
  for (const ConstTensorView& input : inputs) in.push_back(Data(input));
  StepCopies copies;
  const bool all = EachCombinesAll(step, inputs);
  intra_host.Prepack(tag, ContributionsOf(step, MembersByRank(step), inputs, in, all, copies), /*for_all=*/!all);
}

absl::Status AllReduceStep(PackedStep& packed) { return AllReduce(packed).Run(); }

}  // namespace reshard::packed
