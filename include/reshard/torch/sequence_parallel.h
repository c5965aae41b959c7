// The operations of sequence, context and expert parallelism, expressed as redistributions between layouts. Each is
// collective over one process group of P ranks, given by name; r is the rank of the caller. Every rank passes a tensor
// of the same shape, unless stated otherwise. Results are new and contiguous. If one rank fails, all throw (see
// redistribute.h).
#ifndef RESHARD_TORCH_SEQUENCE_PARALLEL_H_
#define RESHARD_TORCH_SEQUENCE_PARALLEL_H_

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <tuple>

namespace reshard {

// Converts between a sharded sequence with all channels and a full sequence with a part of the channels. x is
// [B, channels, sequence, ...] with 0 to 2 further dimensions; the sequence may be in zigzag order, where rank r holds
// the chunks r and 2P-1-r of 2P.
//   "split_to_full"  [B, D, L/P, ...] -> [B, D/P, L, ...]    "full_to_split" back
// The gradient is the other direction. ValueError: other types or numbers of dimensions, "Sequence length L is not
// divisible by num_chunks 2P" (zigzag; P without), channels that P does not divide.
at::Tensor AllToAllSingle(const at::Tensor& x, c10::string_view group, c10::string_view type,
                          bool with_zigzag_splitting);

// Scatters one dimension over the ranks and gathers another. x is [batch, sequence, heads, size].
//   scatter_dim 2, gather_dim 1   [b, s, h, e] -> [b, s*P, h/P, e];   (1, 2): back
// Where P does not divide the n elements of scatter_dim, rank r gets the r-th chunk of ceil(n / P): 7 heads over 4
// ranks are 2, 2, 2 and 1. On the way back each rank passes its chunk, and gather_size is the size of all of them
// together; without it all chunks have the same size. The gradient is the other direction. Any other pair of
// dimensions: RuntimeError "Invalid scatter_dim=..., gather_dim=...". ValueError: not this rank's chunk of gather_size.
at::Tensor AllToAll4d(const at::Tensor& x, int64_t scatter_dim, int64_t gather_dim, c10::string_view group,
                      std::optional<int64_t> gather_size = std::nullopt);

// The concatenation of all ranks' x along dim (negative: from the end), on every rank. Gradient: a reduce-scatter that
// sums.
at::Tensor AllGather(const at::Tensor& x, int64_t dim, c10::string_view group);
// The same, truncated to original_seq_len along dim if it is longer.
at::Tensor AllGatherWithUnpad(const at::Tensor& x, int64_t original_seq_len, int64_t dim, c10::string_view group);

// The r-th of P equal parts along dim of a replicated x, and the length of x along dim. If P does not divide that
// length, x is first padded with zeros at the end. No communication. Gradient: an all-gather, divided by P, without the
// padding.
std::tuple<at::Tensor, int64_t> Shard(const at::Tensor& x, int64_t dim, c10::string_view group);

// The concatenation of all ranks' x along dim on rank dst of the group; nullopt on the others. Gradient: that of dst,
// scattered.
std::optional<at::Tensor> Gather(const at::Tensor& x, int64_t dst, int64_t dim, c10::string_view group);

// The elementwise reduction of all ranks' x, on every rank. op: sum, avg, min, max, prod. Gradient of sum and avg: the
// same reduction; of the others: none.
at::Tensor AllReduce(const at::Tensor& x, c10::string_view op, c10::string_view group);

// The halo exchange of causal convolutions over the zigzag order. The last dimension of `data` holds this rank's two
// chunks; let a and b be the last `width` elements of the first and of the second. Returns a of rank r-1 (zeros on rank
// 0) and b of rank r+1 (on the last rank its own a).
std::tuple<at::Tensor, at::Tensor> ExchangeOverlappingRegions(const at::Tensor& data, int64_t width,
                                                              c10::string_view group);

// The exchange of expert parallelism: each rank sends any number of elements to each other one. src and dst are flat
// buffers of one dtype; metadata is int64 or uint32 of shape [3 or 4, P], in elements, with the rows
//   0 send_counts   how many elements go to rank j
//   1 send_displs   where they start in src
//   2 recv_counts   not read; set to how many came from rank j unless recv_counts_known
//   3 recv_displs   where they go in dst (with has_rdispls; without, to the j-th of P equal slots)
// Parts of dst that nothing is sent to are not modified. Send ranges may overlap. Not differentiable. ValueError, on
// all ranks: other dtypes or shapes, counts or displacements beyond src, the slot or dst, receive ranges that overlap,
// a size of dst that P does not divide.
void AllToAllV(const at::Tensor& src, const at::Tensor& dst, const at::Tensor& metadata, bool recv_counts_known,
               bool has_rdispls, c10::string_view group);

}  // namespace reshard

#endif  // RESHARD_TORCH_SEQUENCE_PARALLEL_H_
