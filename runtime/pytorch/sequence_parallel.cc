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
#include "layout/cut.h"
#include "runtime/pytorch/move.h"
#include "status/macros.h"

namespace reshard {
namespace {

struct Place {
  int64_t rank = 0;
  int64_t ranks = 1;  // P
};

Place PlaceIn(const std::string& group) {
  const auto process_group = c10d::resolve_process_group(group);
  return {process_group->getRank(), process_group->getSize()};
}

std::string MeshOf(const Place& place) { return absl::StrCat("{r:", place.ranks, "}"); }

// Sizes as numbers, also of a tensor that is being traced.
std::vector<int64_t> SizesOf(const at::Tensor& x) {
  std::vector<int64_t> sizes;
  for (const c10::SymInt& size : x.sym_sizes()) sizes.push_back(size.guard_int(__FILE__, __LINE__));
  return sizes;
}

// "[8, <r>16]": the global sizes, with `factors` at one dimension.
std::string LayoutText(const std::vector<int64_t>& sizes, int64_t dim, absl::string_view factors) {
  std::string text = "[";
  for (size_t d = 0; d < sizes.size(); ++d) {
    absl::StrAppend(&text, d > 0 ? ", " : "", static_cast<int64_t>(d) == dim ? factors : "", sizes[d]);
  }
  return absl::StrCat(text, "]");
}

std::string LayoutText(const std::vector<int64_t>& sizes) { return LayoutText(sizes, -1, ""); }

// dim counted from the front; an error names the range.
absl::StatusOr<int64_t> Wrapped(int64_t dim, size_t rank_of_tensor) {
  const auto n = static_cast<int64_t>(rank_of_tensor);
  if (dim >= -n && dim < n) return dim < 0 ? dim + n : dim;
  return absl::InvalidArgumentError(absl::StrCat("dim ", dim, " is out of range for a tensor of ", n, " dimensions"));
}

std::string ShapeText(const std::vector<int64_t>& sizes) { return LayoutText(sizes); }

// A shard of dimension `dim` on each rank -> a shard of dimension `to_dim`, of a tensor of these sizes: what sequence
// parallelism does around attention and convolutions. Both directions have one text each, so that one is the other's
// gradient.
pytorch::Move SwapShards(const std::vector<int64_t>& sizes, int64_t dim, absl::string_view factors, int64_t to_dim,
                         absl::string_view to_factors, const Place& place) {
  return pytorch::MoveOf(MeshOf(place), LayoutText(sizes, dim, factors), LayoutText(sizes, to_dim, to_factors), "");
}

absl::StatusOr<pytorch::Move> AllToAllSingleMove(std::vector<int64_t> sizes, c10::string_view type, bool zigzag,
                                                 const Place& place) {
  const bool to_full = type == "split_to_full";
  if (!to_full && type != "full_to_split") {
    return absl::InvalidArgumentError(absl::StrCat("Unknown type ", absl::string_view(type.data(), type.size())));
  }
  if (sizes.size() < 3 || sizes.size() > 5) {
    return absl::InvalidArgumentError(absl::StrCat(
        "input must be a 3D, 4D or 5D tensor [batch, channels, sequence, ...], got shape ", ShapeText(sizes)));
  }
  const int64_t length = to_full ? sizes[2] * place.ranks : sizes[2];
  const int64_t chunks = zigzag ? 2 * place.ranks : place.ranks;
  if (length % chunks != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("Sequence length ", length, " is not divisible by num_chunks ", chunks));
  }
  if (to_full && sizes[1] % place.ranks != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the ", sizes[1], " channels are not divisible by the ", place.ranks, " ranks"));
  }
  sizes[to_full ? 2 : 1] *= place.ranks;
  const absl::string_view sequence = zigzag ? "<2,~r>" : "<r>";
  return to_full ? SwapShards(sizes, 2, sequence, 1, "<r>", place) : SwapShards(sizes, 1, "<r>", 2, sequence, place);
}

absl::StatusOr<pytorch::Move> AllToAll4dMove(std::vector<int64_t> sizes, int64_t scatter_dim, int64_t gather_dim,
                                             std::optional<int64_t> gather_size, const Place& place) {
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
        *gather_size < 0 ? -1 : layout::CeilChunk({0, *gather_size}, place.ranks, place.rank).length();
    if (chunk != gathered) {
      return absl::InvalidArgumentError(
          absl::StrCat("gather_size ", *gather_size, " over ", place.ranks, " ranks: rank ", place.rank, " has ",
                       gathered, " elements of dimension ", gather_dim, ", and not ", std::max<int64_t>(chunk, 0)));
    }
    gathered = *gather_size;
  } else {
    gathered *= place.ranks;
  }
  return SwapShards(sizes, gather_dim, "<r>", scatter_dim, "<r>", place);
}

absl::StatusOr<pytorch::Move> AllGatherMove(std::vector<int64_t> sizes, int64_t dim, const Place& place) {
  ASSIGN_OR_RETURN(const int64_t wrapped, Wrapped(dim, sizes.size()));
  sizes[wrapped] *= place.ranks;
  pytorch::Move move = pytorch::MoveOf(MeshOf(place), LayoutText(sizes, wrapped, "<r>"), LayoutText(sizes), "");
  // Every rank goes on with the result in its own way, so gradients add up.
  move.grad_from = absl::StrCat(move.target, " sum<r>");
  return move;
}

absl::StatusOr<pytorch::Move> AllReduceMove(const std::vector<int64_t>& sizes, c10::string_view op,
                                            const Place& place) {
  const bool known = op == "sum" || op == "avg" || op == "min" || op == "max" || op == "prod";
  const absl::string_view name(op.data(), op.size());
  if (!known) {
    return absl::InvalidArgumentError(absl::StrCat("unknown reduction \"", name, "\" (sum, avg, min, max, prod)"));
  }
  const std::string whole = LayoutText(sizes);
  const std::string partial = absl::StrCat(whole, " ", name, "<r>");
  const bool has_gradient = op == "sum" || op == "avg";
  return pytorch::Move{MeshOf(place), partial, whole, "", has_gradient ? partial : "", has_gradient ? whole : "", 1.0};
}

at::Tensor RunOrRefuse(const at::Tensor& x, const absl::StatusOr<pytorch::Move>& move, const std::string& group) {
  if (!move.ok()) pytorch::Refuse(x, move.status(), group);
  return pytorch::DispatchMove(x, *move, group);
}

}  // namespace

at::Tensor AllToAllSingle(const at::Tensor& x, c10::string_view group, c10::string_view type,
                          bool with_zigzag_splitting) {
  const std::string name(group);
  return RunOrRefuse(x, AllToAllSingleMove(SizesOf(x), type, with_zigzag_splitting, PlaceIn(name)), name);
}

at::Tensor AllToAll4d(const at::Tensor& x, int64_t scatter_dim, int64_t gather_dim, c10::string_view group,
                      std::optional<int64_t> gather_size) {
  const std::string name(group);
  return RunOrRefuse(x, AllToAll4dMove(SizesOf(x), scatter_dim, gather_dim, gather_size, PlaceIn(name)), name);
}

at::Tensor AllGather(const at::Tensor& x, int64_t dim, c10::string_view group) {
  const std::string name(group);
  return RunOrRefuse(x, AllGatherMove(SizesOf(x), dim, PlaceIn(name)), name);
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
  const Place place = PlaceIn(name);
  std::vector<int64_t> sizes = SizesOf(x);
  const absl::StatusOr<int64_t> wrapped = Wrapped(dim, sizes.size());
  if (!wrapped.ok()) pytorch::Refuse(x, wrapped.status(), name);
  int64_t& length = sizes[*wrapped];
  const int64_t original = length;
  const int64_t pad = (place.ranks - length % place.ranks) % place.ranks;
  at::Tensor padded = x;
  if (pad > 0) {
    // Pairs (before, after) from the last dimension to the first.
    std::vector<int64_t> amounts(2 * sizes.size(), 0);
    amounts[2 * (sizes.size() - 1 - static_cast<size_t>(*wrapped)) + 1] = pad;
    padded = at::constant_pad_nd(x, amounts, 0);
    length += pad;
  }
  pytorch::Move move = pytorch::MoveOf(MeshOf(place), LayoutText(sizes), LayoutText(sizes, *wrapped, "<r>"), "");
  move.grad_scale = 1.0 / static_cast<double>(place.ranks);
  return {pytorch::DispatchMove(padded, move, name), original};
}

std::optional<at::Tensor> Gather(const at::Tensor& x, int64_t dst, int64_t dim, c10::string_view group) {
  const std::string name(group);
  const Place place = PlaceIn(name);
  std::vector<int64_t> sizes = SizesOf(x);
  const absl::StatusOr<int64_t> wrapped = Wrapped(dim, sizes.size());
  if (!wrapped.ok()) pytorch::Refuse(x, wrapped.status(), name);
  if (dst < 0 || dst >= place.ranks) {
    pytorch::Refuse(
        x, absl::InvalidArgumentError(absl::StrCat("dst ", dst, " is not one of the ", place.ranks, " ranks")), name);
  }
  sizes[*wrapped] *= place.ranks;
  const pytorch::Move move =
      pytorch::MoveOf(MeshOf(place), LayoutText(sizes, *wrapped, "<r>"), LayoutText(sizes), absl::StrCat("{}@", dst));
  if (place.rank == dst) return pytorch::DispatchMove(x, move, name);
  const bool differentiated = at::GradMode::is_enabled() && x.requires_grad();
  const at::Tensor nothing = pytorch::DispatchMove(x.detach(), move, name);
  if (differentiated) {
    // No result, so nothing leads the backward pass here. Whatever else leads it to x takes part in the scatter.
    const auto partial = std::make_shared<bool>(true);
    x.register_hook([partial, move, name, nothing](const at::Tensor& gradient) {
      if (!std::exchange(*partial, false)) return gradient;
      return gradient + pytorch::DispatchMove(nothing, move.Gradient(), name);
    });
  }
  return std::nullopt;
}

at::Tensor AllReduce(const at::Tensor& x, c10::string_view op, c10::string_view group) {
  const std::string name(group);
  return RunOrRefuse(x, AllReduceMove(SizesOf(x), op, PlaceIn(name)), name);
}

std::tuple<at::Tensor, at::Tensor> ExchangeOverlappingRegions(const at::Tensor& data, int64_t width,
                                                              c10::string_view group) {
  const std::string name(group);
  const Place place = PlaceIn(name);
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
  const auto [previous, next] = pytorch::DispatchPassOn(a, b, name);
  // Nothing comes to the last rank from above: it goes on with its own.
  return {previous, place.rank == place.ranks - 1 ? next + a : next};
}

}  // namespace reshard
