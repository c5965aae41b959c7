// The operations of sequence, context and expert parallelism, as redistributions: each names its layouts and lets the
// planner and the runtime do the rest. All take one process group of P ranks, rank r; every rank brings a tensor of the
// same shape. Results are fresh and contiguous. Errors of one rank reach all (see
// include/reshard/torch/redistribute.h).
#ifndef RESHARD_TORCH_SEQUENCE_PARALLEL_H_
#define RESHARD_TORCH_SEQUENCE_PARALLEL_H_

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <tuple>

namespace reshard {

// x is [B, channels, sequence, ...] with 0 to 2 further dimensions; the sequence may be in zigzag order, where rank r
// holds the chunks r and 2P-1-r of 2P.
//   "split_to_full"  [B, D, L/P, ...] -> [B, D/P, L, ...]    "full_to_split" back
// Its gradient is the other direction. ValueError: other types or ranks of tensors, "Sequence length L is not divisible
// by num_chunks 2P" (zigzag; P without), channels that P does not divide.
at::Tensor AllToAllSingle(const at::Tensor& x, c10::string_view group, c10::string_view type,
                          bool with_zigzag_splitting);

// x is [batch, sequence, heads, size]. (scatter 2, gather 1): [b, s, h, e] -> [b, s*P, h/P, e]; (1, 2): back. Any other
// pair of dimensions: RuntimeError "Invalid scatter_dim=..., gather_dim=...".
at::Tensor AllToAll4d(const at::Tensor& x, int64_t scatter_dim, int64_t gather_dim, c10::string_view group);

// Concatenation of all ranks' x along dim (negative counts from the end). Gradient: reduce-scatter, summed.
at::Tensor AllGather(const at::Tensor& x, int64_t dim, c10::string_view group);
// The same, cut to original_seq_len along dim where it is longer.
at::Tensor AllGatherWithUnpad(const at::Tensor& x, int64_t original_seq_len, int64_t dim, c10::string_view group);

// Rank r's of P equal parts along dim of a replicated x, which is padded with zeros at the end where P does not divide
// it; and the length before padding. Nothing travels. Gradient: all-gather, divided by P, without the padding.
std::tuple<at::Tensor, int64_t> Shard(const at::Tensor& x, int64_t dim, c10::string_view group);

// The concatenation on rank dst, None elsewhere. Gradient: dst's, scattered.
std::optional<at::Tensor> Gather(const at::Tensor& x, int64_t dst, int64_t dim, c10::string_view group);

// op: sum, avg, min, max, prod. Gradient of sum and avg: the same reduction.
at::Tensor AllReduce(const at::Tensor& x, c10::string_view op, c10::string_view group);

// Halo exchange of causal convolutions over the zigzag order. data's last dimension holds two chunks; a and b are the
// last `width` elements of the first and of the second. Returns (a of rank r-1, zeros on rank 0; b of rank r+1, on the
// last rank its own a).
std::tuple<at::Tensor, at::Tensor> ExchangeOverlappingRegions(const at::Tensor& data, int64_t width,
                                                              c10::string_view group);

// src and dst are flat buffers of one dtype; metadata is int64 or uint32 of shape [3 or 4, P] and rows
//   0 send_counts   elements for rank j
//   1 send_displs   where they start in src
//   2 recv_counts   never read; set to what came from j unless recv_counts_known
//   3 recv_displs   where they go in dst (with has_rdispls; without, to slot j of P equal slots)
// Bytes of dst that nothing is sent to are left alone. Send ranges may overlap. ValueError, on all ranks: another dtype
// or shape, counts or displacements beyond src, beyond the slot or dst, receive ranges that overlap, dst not divisible
// by P.
void AllToAllV(const at::Tensor& src, const at::Tensor& dst, const at::Tensor& metadata, bool recv_counts_known,
               bool has_rdispls, c10::string_view group);

}  // namespace reshard

#endif  // RESHARD_TORCH_SEQUENCE_PARALLEL_H_
