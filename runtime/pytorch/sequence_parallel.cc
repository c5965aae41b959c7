#include "reshard/torch/sequence_parallel.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "layout/cut.h"
#include "runtime/pytorch/move.h"
#include "status/macros.h"

namespace reshard {
namespace {

// This process in its group. Ranks of the group are devices of the mesh {r:P}.
struct Member {
  int64_t rank = 0;
  int64_t ranks = 1;  // P

  AxisRef axis() const { return {0, 1, ranks}; }
  // A tensor of these sizes: replicated, or with one dimension cut by `factors`.
  absl::StatusOr<Layout> Whole(const std::vector<int64_t>& sizes) const { return Cut(sizes, -1, {}); }
  absl::StatusOr<Layout> Cut(const std::vector<int64_t>& sizes, int64_t dim, std::vector<Factor> factors) const {
    ASSIGN_OR_RETURN(const Mesh mesh, Mesh::Create({{"r", ranks}}));
    return EvenLayout(mesh, sizes, static_cast<int>(dim), std::move(factors));
  }
  absl::StatusOr<Layout> Shards(const std::vector<int64_t>& sizes, int64_t dim) const {
    return Cut(sizes, dim, {Factor::Along(axis())});
  }
};

Member MemberOf(const std::string& group) {
  const auto process_group = c10d::resolve_process_group(group);
  return {process_group->getRank(), process_group->getSize()};
}

// Sizes as numbers, also of a tensor that is being traced.
std::vector<int64_t> SizesOf(const at::Tensor& x) {
  std::vector<int64_t> sizes;
  for (const c10::SymInt& size : x.sym_sizes()) sizes.push_back(size.guard_int(__FILE__, __LINE__));
  return sizes;
}

// dim counted from the front; an error names the range.
absl::StatusOr<int64_t> Wrapped(int64_t dim, size_t rank_of_tensor) {
  const auto n = static_cast<int64_t>(rank_of_tensor);
  if (dim >= -n && dim < n) return dim < 0 ? dim + n : dim;
  return absl::InvalidArgumentError(absl::StrCat("dim ", dim, " is out of range for a tensor of ", n, " dimensions"));
}

std::string ShapeText(const std::vector<int64_t>& sizes) { return absl::StrCat("[", absl::StrJoin(sizes, ", "), "]"); }

// Multiplies the size of a dimension by the number of ranks.
absl::Status MultiplyByRanks(std::vector<int64_t>& sizes, int64_t dim, const Member& member) {
  ASSIGN_OR_RETURN(sizes[dim], pytorch::GlobalSize(sizes[dim], member.ranks));
  return absl::OkStatus();
}

absl::StatusOr<pytorch::Move> AllToAllSingleMove(std::vector<int64_t> sizes, c10::string_view type, bool zigzag,
                                                 const Member& member) {
  const bool to_full = type == "split_to_full";
  if (!to_full && type != "full_to_split") {
    return absl::InvalidArgumentError(absl::StrCat("Unknown type ", absl::string_view(type.data(), type.size())));
  }
  if (sizes.size() < 3 || sizes.size() > 5) {
    return absl::InvalidArgumentError(absl::StrCat(
        "input must be a 3D, 4D or 5D tensor [batch, channels, sequence, ...], got shape ", ShapeText(sizes)));
  }
  const int64_t chunks = zigzag ? 2 * member.ranks : member.ranks;
  RETURN_IF_ERROR(MultiplyByRanks(sizes, to_full ? 2 : 1, member));
  if (sizes[2] % chunks != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("Sequence length ", sizes[2], " is not divisible by num_chunks ", chunks));
  }
  if (sizes[1] % member.ranks != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the ", sizes[1], " channels are not divisible by the ", member.ranks, " ranks"));
  }
  std::vector<Factor> order = {Factor::Along(member.axis())};
  if (zigzag) order = {Factor::Blocks(2), Factor::Reflected(member.axis())};
  ASSIGN_OR_RETURN(const Layout split, member.Cut(sizes, 2, std::move(order)));
  ASSIGN_OR_RETURN(const Layout full, member.Shards(sizes, 1));
  return to_full ? pytorch::MoveOf(split, full) : pytorch::MoveOf(full, split);
}

absl::StatusOr<pytorch::Move> AllToAll4dMove(std::vector<int64_t> sizes, int64_t scatter_dim, int64_t gather_dim,
                                             std::optional<int64_t> gather_size, const Member& member) {
  if (sizes.size() != 4) {
    return absl::InvalidArgumentError(
        absl::StrCat("input must be 4D tensor, got ", sizes.size(), " and shape ", ShapeText(sizes)));
  }
  if (!(scatter_dim == 2 && gather_dim == 1) && !(scatter_dim == 1 && gather_dim == 2)) {
    return absl::FailedPreconditionError(absl::StrCat("Invalid scatter_dim=", scatter_dim, ", gather_dim=", gather_dim,
                                                      ". Only (2,1) and (1,2) are supported."));
  }
  int64_t& gathered = sizes[gather_dim];
  if (gather_size) {
    const int64_t chunk =
        *gather_size < 0 ? -1 : layout::CeilChunk({0, *gather_size}, member.ranks, member.rank).length();
    if (chunk != gathered) {
      return absl::InvalidArgumentError(
          absl::StrCat("gather_size ", *gather_size, " over ", member.ranks, " ranks: rank ", member.rank, " has ",
                       gathered, " elements of dimension ", gather_dim, ", and not ", std::max<int64_t>(chunk, 0)));
    }
    gathered = *gather_size;
  } else {
    RETURN_IF_ERROR(MultiplyByRanks(sizes, gather_dim, member));
  }
  ASSIGN_OR_RETURN(const Layout source, member.Shards(sizes, gather_dim));
  ASSIGN_OR_RETURN(const Layout target, member.Shards(sizes, scatter_dim));
  return pytorch::MoveOf(source, target);
}

absl::StatusOr<pytorch::Move> AllGatherMove(std::vector<int64_t> sizes, int64_t dim, const Member& member) {
  ASSIGN_OR_RETURN(const int64_t wrapped, Wrapped(dim, sizes.size()));
  RETURN_IF_ERROR(MultiplyByRanks(sizes, wrapped, member));
  ASSIGN_OR_RETURN(const Layout source, member.Shards(sizes, wrapped));
  ASSIGN_OR_RETURN(const Layout target, member.Whole(sizes));
  pytorch::Move move = pytorch::MoveOf(source, target);
  // Every rank uses the result in its own way, so gradients add up.
  ASSIGN_OR_RETURN(move.gradient->from, target.WithPartial(Partial{ReduceOp::kSum, {member.axis()}}));
  return move;
}

absl::StatusOr<pytorch::Move> AllReduceMove(const std::vector<int64_t>& sizes, c10::string_view op,
                                            const Member& member) {
  const std::optional<ReduceOp> known = FindReduceOp({op.data(), op.size()});
  if (!known) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown reduction \"", absl::string_view(op.data(), op.size()), "\" (sum, avg, min, max, prod)"));
  }
  ASSIGN_OR_RETURN(const Layout whole, member.Whole(sizes));
  ASSIGN_OR_RETURN(const Layout partial, whole.WithPartial(Partial{*known, {member.axis()}}));
  pytorch::Move move{partial, whole, std::nullopt};
  if (*known == ReduceOp::kSum || *known == ReduceOp::kAvg)
    move.gradient = pytorch::Move::Gradient{partial, whole, 1.0};
  return move;
}

at::Tensor RunOrRefuse(const at::Tensor& x, const absl::StatusOr<pytorch::Move>& move, const std::string& group) {
  if (!move.ok()) pytorch::Refuse(x, move.status(), group);
  return pytorch::DispatchMove(x, *move, group);
}

}  // namespace

at::Tensor AllToAllSingle(const at::Tensor& x, c10::string_view group, c10::string_view type,
                          bool with_zigzag_splitting) {
  const std::string name(group);
  return RunOrRefuse(x, AllToAllSingleMove(SizesOf(x), type, with_zigzag_splitting, MemberOf(name)), name);
}

at::Tensor AllToAll4d(const at::Tensor& x, int64_t scatter_dim, int64_t gather_dim, c10::string_view group,
                      std::optional<int64_t> gather_size) {
  const std::string name(group);
  return RunOrRefuse(x, AllToAll4dMove(SizesOf(x), scatter_dim, gather_dim, gather_size, MemberOf(name)), name);
}

at::Tensor AllGather(const at::Tensor& x, int64_t dim, c10::string_view group) {
  const std::string name(group);
  return RunOrRefuse(x, AllGatherMove(SizesOf(x), dim, MemberOf(name)), name);
}

at::Tensor AllGatherWithUnpad(const at::Tensor& x, int64_t original_seq_len, int64_t dim, c10::string_view group) {
  if (original_seq_len < 0) {
    pytorch::Refuse(x, absl::InvalidArgumentError(absl::StrCat("original_seq_len ", original_seq_len, " is negative")),
                    std::string(group));
  }
  const at::Tensor gathered = AllGather(x, dim, group);
  const int64_t wrapped = dim < 0 ? dim + gathered.dim() : dim;
  if (SizesOf(gathered)[wrapped] <= original_seq_len) return gathered;
  return gathered.narrow(wrapped, 0, original_seq_len);
}

std::tuple<at::Tensor, int64_t> Shard(const at::Tensor& x, int64_t dim, c10::string_view group) {
  const std::string name(group);
  const Member member = MemberOf(name);
  std::vector<int64_t> sizes = SizesOf(x);
  const absl::StatusOr<int64_t> wrapped = Wrapped(dim, sizes.size());
  if (!wrapped.ok()) pytorch::Refuse(x, wrapped.status(), name);
  int64_t& length = sizes[*wrapped];
  const int64_t original = length;
  const int64_t pad = (member.ranks - length % member.ranks) % member.ranks;
  at::Tensor padded = x;
  if (pad > 0) {
    // Pairs (before, after) from the last dimension to the first.
    std::vector<int64_t> amounts(2 * sizes.size(), 0);
    amounts[2 * (sizes.size() - 1 - static_cast<size_t>(*wrapped)) + 1] = pad;
    padded = at::constant_pad_nd(x, amounts, 0);
    length += pad;
  }
  const auto shards = [&]() -> absl::StatusOr<pytorch::Move> {
    ASSIGN_OR_RETURN(const Layout whole, member.Whole(sizes));
    ASSIGN_OR_RETURN(const Layout target, member.Shards(sizes, *wrapped));
    pytorch::Move move = pytorch::MoveOf(whole, target);
    move.gradient->scale = 1.0 / static_cast<double>(member.ranks);
    return move;
  };
  return {RunOrRefuse(padded, shards(), name), original};
}

std::optional<at::Tensor> Gather(const at::Tensor& x, int64_t dst, int64_t dim, c10::string_view group) {
  const std::string name(group);
  const Member member = MemberOf(name);
  std::vector<int64_t> sizes = SizesOf(x);
  const absl::StatusOr<int64_t> wrapped = Wrapped(dim, sizes.size());
  if (!wrapped.ok()) pytorch::Refuse(x, wrapped.status(), name);
  if (dst < 0 || dst >= member.ranks) {
    pytorch::Refuse(
        x, absl::InvalidArgumentError(absl::StrCat("dst ", dst, " is not one of the ", member.ranks, " ranks")), name);
  }
  const auto onto_one = [&]() -> absl::StatusOr<pytorch::Move> {
    RETURN_IF_ERROR(MultiplyByRanks(sizes, *wrapped, member));
    ASSIGN_OR_RETURN(const Layout source, member.Shards(sizes, *wrapped));
    ASSIGN_OR_RETURN(const Mesh one, Mesh::Create({}, dst));
    ASSIGN_OR_RETURN(const Layout target, EvenLayout(one, sizes));
    return pytorch::MoveOf(source, target);
  };
  const absl::StatusOr<pytorch::Move> gathering = onto_one();
  if (!gathering.ok()) pytorch::Refuse(x, gathering.status(), name);
  const pytorch::Move& move = *gathering;
  if (member.rank == dst) return pytorch::DispatchMove(x, move, name);
  const bool differentiated = at::GradMode::is_enabled() && x.requires_grad();
  const at::Tensor nothing = pytorch::DispatchMove(x.detach(), move, name);
  if (differentiated) {
    // There is no result here that would lead the backward pass to x. When anything else does, this rank takes part in
    // the scatter.
    const auto awaited = std::make_shared<bool>(true);
    x.register_hook([awaited, move, name, nothing](const at::Tensor& gradient) {
      if (!std::exchange(*awaited, false)) return gradient;
      return gradient + pytorch::DispatchMove(nothing, move.Back(), name);
    });
  }
  return std::nullopt;
}

at::Tensor AllReduce(const at::Tensor& x, c10::string_view op, c10::string_view group) {
  const std::string name(group);
  return RunOrRefuse(x, AllReduceMove(SizesOf(x), op, MemberOf(name)), name);
}

std::tuple<at::Tensor, at::Tensor> ExchangeOverlappingRegions(const at::Tensor& data, int64_t width,
                                                              c10::string_view group) {
  const std::string name(group);
  const Member member = MemberOf(name);
  const std::vector<int64_t> sizes = SizesOf(data);
  if (sizes.empty() || sizes.back() % 2 != 0 || width < 0 || width > sizes.back() / 2) {
    pytorch::Refuse(data,
                    absl::InvalidArgumentError(absl::StrCat("the last dimension of ", ShapeText(sizes),
                                                            " must hold two chunks of at least width ", width)),
                    name);
  }
  const int64_t chunk = sizes.back() / 2;
  const at::Tensor a = data.narrow(-1, chunk - width, width);
  const at::Tensor b = data.narrow(-1, 2 * chunk - width, width);
  const auto [previous, next] = pytorch::DispatchNeighborExchange(a, b, name);
  // Nothing comes to the last rank from above: it keeps its own.
  return {previous, member.rank == member.ranks - 1 ? next + a : next};
}

}  // namespace reshard
