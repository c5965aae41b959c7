// all_to_all_v: what travels is known only at run time, so the step is built by hand instead of planned.
#include <ATen/Functions.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reshard/torch/redistribute.h"
#include "reshard/torch/sequence_parallel.h"
#include "runtime/pytorch/tensors.h"
#include "status/macros.h"
#include "status/no_throw.h"

namespace reshard {
namespace {

// A range of elements of a flat buffer.
struct Range {
  int64_t begin = 0;
  int64_t count = 0;
};

struct Call {
  DType dtype = DType::kU8;
  std::vector<Range> sends;     // by receiver
  std::vector<int64_t> places;  // where in dst the elements from each rank go
  int64_t dst_elements = 0;
  int64_t slot = -1;  // elements of one slot; -1: places were given
};

// Row `row` of the metadata, which is int64 or uint32.
std::vector<int64_t> Row(const at::Tensor& metadata, int64_t row) {
  const at::Tensor line = metadata.select(0, row).contiguous();
  std::vector<int64_t> values(static_cast<size_t>(line.numel()));
  for (size_t j = 0; j < values.size(); ++j) {
    values[j] = line.scalar_type() == at::kLong ? line.const_data_ptr<int64_t>()[j]
                                                : static_cast<int64_t>(line.const_data_ptr<uint32_t>()[j]);
  }
  return values;
}

bool Inside(int64_t begin, int64_t count, int64_t size) {
  return begin >= 0 && count >= 0 && begin <= size && count <= size - begin;
}

// Checks the arguments of a call. `metadata` is in host memory.
absl::StatusOr<Call> CheckCall(const at::Tensor& src, const at::Tensor& dst, const at::Tensor& metadata,
                               bool has_rdispls, int64_t ranks, at::Device device) {
  for (const at::Tensor* tensor : {&src, &dst}) {
    RETURN_IF_ERROR(pytorch::CheckTensor(*tensor, device));
  }
  if (src.scalar_type() != dst.scalar_type()) {
    return absl::InvalidArgumentError(
        absl::StrCat("src is ", c10::toString(src.scalar_type()), ", dst is ", c10::toString(dst.scalar_type())));
  }
  if (!dst.is_contiguous()) return absl::InvalidArgumentError("dst must be contiguous");
  if (metadata.scalar_type() != at::kLong && metadata.scalar_type() != at::kUInt32) {
    return absl::InvalidArgumentError(
        absl::StrCat("metadata must be int64 or uint32, not ", c10::toString(metadata.scalar_type())));
  }
  const int64_t least = has_rdispls ? 4 : 3;
  if (metadata.dim() != 2 || metadata.size(0) < least || metadata.size(0) > 4 || metadata.size(1) != ranks) {
    std::string shape;
    for (const int64_t size : metadata.sizes()) absl::StrAppend(&shape, shape.empty() ? "" : ", ", size);
    return absl::InvalidArgumentError(absl::StrCat("metadata must have shape [", has_rdispls ? "4" : "3 or 4", ", ",
                                                   ranks, "], one column per rank of the group; got [", shape, "]"));
  }
  Call call;
  call.dtype = groups::DTypeOf(src.scalar_type()).value();
  call.dst_elements = dst.numel();
  const std::vector<int64_t> counts = Row(metadata, 0);
  const std::vector<int64_t> displacements = Row(metadata, 1);
  for (int64_t j = 0; j < ranks; ++j) {
    const Range range{displacements[j], counts[j]};
    if (!Inside(range.begin, range.count, src.numel())) {
      return absl::InvalidArgumentError(absl::StrCat("send_displs[", j, "] + send_counts[", j, "] = ", range.begin,
                                                     " + ", range.count, " is outside src of ", src.numel(),
                                                     " elements"));
    }
    call.sends.push_back(range);
  }
  if (has_rdispls) {
    call.places = Row(metadata, 3);
  } else {
    if (call.dst_elements % ranks != 0) {
      return absl::InvalidArgumentError(absl::StrCat("dst has ", call.dst_elements, " elements, which ", ranks,
                                                     " equal slots do not divide; give receive displacements"));
    }
    call.slot = call.dst_elements / ranks;
    for (int64_t j = 0; j < ranks; ++j) call.places.push_back(j * call.slot);
  }
  return call;
}

// Checks that what the senders announced fits into dst.
absl::Status CheckReceives(const Call& call, const std::vector<Range>& announced) {
  std::vector<std::pair<int64_t, int64_t>> taken;
  for (size_t i = 0; i < announced.size(); ++i) {
    const int64_t count = announced[i].count;
    const int64_t place = call.places[i];
    if (count == 0) continue;
    if (call.slot >= 0 && count > call.slot) {
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", i, " sends ", count, " elements, a slot of dst holds ", call.slot));
    }
    if (!Inside(place, count, call.dst_elements)) {
      return absl::InvalidArgumentError(absl::StrCat("recv_displs[", i, "] + the ", count, " elements of rank ", i,
                                                     " = ", place, " + ", count, " is outside dst of ",
                                                     call.dst_elements, " elements"));
    }
    taken.emplace_back(place, place + count);
  }
  std::sort(taken.begin(), taken.end());
  for (size_t i = 1; i < taken.size(); ++i) {
    if (taken[i].first < taken[i - 1].second) {
      return absl::InvalidArgumentError(absl::StrCat("receive ranges overlap at element ", taken[i].first, " of dst"));
    }
  }
  return absl::OkStatus();
}

// A step that moves ranges of one flat buffer to ranges of another. sends[j]: elements of this rank's input for rank j.
// receives[j]: elements of rank j's input for this rank, written at places[j]. What a rank keeps is a receive from
// itself.
StepProgram FlatStep(DType dtype, int64_t rank, const std::vector<Range>& sends, const std::vector<Range>& receives,
                     const std::vector<int64_t>& places) {
  StepProgram step;
  step.op = Op::kExchange;
  step.tensors.push_back({0, 1, dtype, step.op, ReduceOp::kSum});
  const auto run = [](int64_t from, int64_t to, int64_t length) {
    return std::make_shared<const Region>(Region{{{from, to, length}}});
  };
  for (size_t j = 0; j < sends.size(); ++j) {
    const auto peer = static_cast<int64_t>(j);
    if (sends[j].count > 0 && peer != rank) {
      step.sends.push_back({peer, 0, run(sends[j].begin, 0, sends[j].count), sends[j].count * SizeOf(dtype), {}});
    }
    if (receives[j].count > 0) {
      const int64_t bytes = receives[j].count * SizeOf(dtype);
      step.receives.push_back({peer, 0, run(receives[j].begin, places[j], receives[j].count), bytes, {}});
      if (peer != rank) step.recv_bytes += bytes;
    }
  }
  return step;
}

// Every rank tells every other what it will send: {displacement, count}. Waits for the device: what follows depends on
// the numbers.
absl::StatusOr<std::vector<Range>> Announce(const std::vector<Range>& sends, Communicator& communicator,
                                            at::Device device) {
  const auto ranks = static_cast<int64_t>(sends.size());
  std::vector<Range> announced(sends.size());
  std::vector<Range> sent_pairs;
  std::vector<Range> received_pairs;
  std::vector<int64_t> places;
  for (int64_t j = 0; j < ranks; ++j) {
    sent_pairs.push_back({2 * j, 2});
    received_pairs.push_back({2 * communicator.rank(), 2});
    places.push_back(2 * j);
  }
  StepProgram step = FlatStep(DType::kI64, communicator.rank(), sent_pairs, received_pairs, places);
  step.recv_bytes_max = step.recv_bytes;
  step.peers_max = ranks - 1;
  static_assert(sizeof(Range) == 2 * sizeof(int64_t));
  at::Tensor numbers = at::empty({2 * ranks}, at::TensorOptions(at::kLong));
  std::memcpy(numbers.mutable_data_ptr(), sends.data(), sends.size() * sizeof(Range));
  numbers = numbers.to(device);
  at::Tensor received = at::empty({2 * ranks}, numbers.options());
  const ConstTensorView input = pytorch::ViewOf(numbers);
  const TensorView output = pytorch::MutableViewOf(received);
  RETURN_IF_ERROR(communicator.ExecuteStep(step, {&input, 1}, {&output, 1}).status());
  received = received.cpu();
  std::memcpy(announced.data(), received.const_data_ptr(), announced.size() * sizeof(Range));
  return announced;
}

absl::Status RunAllToAllV(const at::Tensor& src, const at::Tensor& dst, const at::Tensor& metadata,
                          bool recv_counts_known, bool has_rdispls, TensorCommunicator& tensors) {
  const auto start = std::chrono::steady_clock::now();
  Communicator& communicator = tensors.communicator();
  const bool agree = tensors.redistributor().options().agreement == Agreement::kEveryCall;
  const absl::StatusOr<Call> call =
      CheckCall(src, dst, metadata.cpu(), has_rdispls, communicator.world_size(), tensors.device());
  std::vector<Signature::Field> fields = {{"all_to_all_v", ""}};
  if (call.ok()) fields.push_back({"dtype", std::string(Name(call->dtype))});
  absl::Status status = agree ? communicator.Agree(call.status(), Signature(fields)) : call.status();
  if (!status.ok()) return status;

  ASSIGN_OR_RETURN(const std::vector<Range> announced, Announce(call->sends, communicator, tensors.device()));
  status = CheckReceives(*call, announced);
  if (agree) status = communicator.Agree(status, Signature(fields));
  if (!status.ok()) return status;

  const StepProgram step = FlatStep(call->dtype, communicator.rank(), call->sends, announced, call->places);
  const at::Tensor flat = pytorch::Resolved(src).contiguous();
  const ConstTensorView input = pytorch::ViewOf(flat.view({-1}));
  const TensorView output = pytorch::MutableViewOf(dst.view({-1}));
  ASSIGN_OR_RETURN(const MoveStats moved, communicator.ExecuteStep(step, {&input, 1}, {&output, 1}));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const ExecuteResult result{moved, seconds.count()};
  tensors.SetLastResult(result);
  if (!recv_counts_known) {
    at::Tensor counts = at::empty({metadata.size(1)}, at::TensorOptions(at::kLong));
    for (size_t i = 0; i < announced.size(); ++i) counts.mutable_data_ptr<int64_t>()[i] = announced[i].count;
    metadata.select(0, 2).copy_(counts);
  }
  return absl::OkStatus();
}

}  // namespace

void AllToAllV(const at::Tensor& src, const at::Tensor& dst, const at::Tensor& metadata, bool recv_counts_known,
               bool has_rdispls, c10::string_view group) {
  const std::shared_ptr<TensorCommunicator> tensors = TensorCommunicator::OfGroup(std::string(group), src.device());
  absl::Status status;
  tensors->RunInOrder([&] {
    status = status::NoThrow(
        "all_to_all_v", [&] { return RunAllToAllV(src, dst, metadata, recv_counts_known, has_rdispls, *tensors); });
  });
  if (!status.ok()) pytorch::Throw(status, tensors->communicator().rank());
}

}  // namespace reshard
