// torch.ops.reshard.*: schemas, kernels for host memory and GPUs, shapes for tracing, and gradients.
//
// Four operators have kernels that move data: `_move`, `_move_batch` (batch_operators.cc), `_neighbor_exchange` and
// `all_to_all_v`. Those with layouts in their signature and the sequence-parallel set are built on the first three
// (CompositeImplicitAutograd), so gradients and tracing are written once.
#include <ATen/Functions.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <utility>

#include "reshard/planner/environment.h"
#include "reshard/planner/version.h"
#include "reshard/torch/sequence_parallel.h"
#include "runtime/groups/why_not.h"
#include "runtime/pytorch/layout_texts.h"
#include "runtime/pytorch/move.h"
#include "runtime/pytorch/move_texts.h"
#include "runtime/pytorch/planning.h"
#include "runtime/pytorch/tensors.h"
#include "status/macros.h"

namespace reshard {

using ::torch::autograd::AutogradContext;
using ::torch::autograd::variable_list;
using Text = std::string;
using Texts = std::vector<std::string>;

// ---- _move

namespace {

at::Tensor DispatchTexts(const at::Tensor& tensor, const pytorch::MoveTexts& move, const Text& group) {
  static const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("reshard::_move", "")
          .typed<at::Tensor(const at::Tensor&, c10::string_view, c10::string_view, c10::string_view, c10::string_view,
                            c10::string_view, c10::string_view, c10::string_view, double)>();
  return op.call(tensor, move.mesh, move.source, move.target, move.target_mesh, group, move.grad_from, move.grad_to,
                 move.grad_scale);
}

at::Tensor MoveNow(const at::Tensor& tensor, const absl::StatusOr<pytorch::Move>& move, const Text& group) {
  const std::shared_ptr<TensorCommunicator> communicator = TensorCommunicator::OfGroup(group, tensor.device());
  const auto moves = move.ok() ? absl::StatusOr<std::vector<pytorch::Move>>({*move}) : move.status();
  return pytorch::RunMoves(at::TensorList(tensor), moves, *communicator)[0];
}

}  // namespace

at::Tensor pytorch::DispatchMove(const at::Tensor& tensor, const pytorch::Move& move, const std::string& group) {
  if (pytorch::NeedsNoDispatch(tensor)) return MoveNow(tensor, move, group);
  return DispatchTexts(tensor, pytorch::PrintMove(move), group);
}

namespace {

pytorch::MoveTexts TextsFrom(c10::string_view mesh, c10::string_view source, c10::string_view target,
                             c10::string_view target_mesh, c10::string_view grad_from, c10::string_view grad_to,
                             double grad_scale) {
  return {Text(mesh), Text(source), Text(target), Text(target_mesh), Text(grad_from), Text(grad_to), grad_scale};
}

at::Tensor MoveTextsNow(const at::Tensor& tensor, c10::string_view mesh, c10::string_view source,
                        c10::string_view target, c10::string_view target_mesh, c10::string_view group,
                        c10::string_view grad_from, c10::string_view grad_to, double grad_scale) {
  return MoveNow(tensor,
                 pytorch::ParseMove(TextsFrom(mesh, source, target, target_mesh, grad_from, grad_to, grad_scale)),
                 Text(group));
}

at::Tensor MoveMeta(const at::Tensor& tensor, c10::string_view mesh, c10::string_view, c10::string_view target,
                    c10::string_view target_mesh, c10::string_view group, c10::string_view, c10::string_view, double) {
  const int64_t rank = c10d::resolve_process_group(Text(group))->getRank();
  const absl::StatusOr<Layout> result = pytorch::LayoutOf(target_mesh.empty() ? mesh : target_mesh, target);
  if (!result.ok()) pytorch::Throw(result.status(), rank);
  return at::empty(pytorch::ResultShape(*result, rank), tensor.options());
}

// The node of the graph stores text: compiled autograd hashes it.
class MoveFunction : public ::torch::autograd::Function<MoveFunction> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tensor, const pytorch::MoveTexts& move,
                            const Text& group) {
    context->saved_data["move"] =
        Texts{move.mesh, move.source, move.target, move.target_mesh, group, move.grad_from, move.grad_to};
    context->saved_data["scale"] = move.grad_scale;
    context->saved_data["sizes"] = tensor.sym_sizes();
    const at::AutoDispatchBelowADInplaceOrView below;
    return DispatchTexts(tensor, move, group);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto texts = context->saved_data["move"].to<Texts>();
    const absl::StatusOr<pytorch::Move> move = pytorch::ParseMove(
        {texts[0], texts[1], texts[2], texts[3], texts[5], texts[6], context->saved_data["scale"].toDouble()});
    TORCH_INTERNAL_ASSERT(move.ok(), "these texts were parsed in the forward pass");
    const at::Tensor result =
        pytorch::DispatchMove(pytorch::ScaledGradient(gradients[0], *move), move->Back(), texts[4]);
    return {pytorch::LikeInput(result, context->saved_data["sizes"].toSymIntVector()), at::Tensor(), at::Tensor()};
  }
};

at::Tensor MoveAutograd(const at::Tensor& tensor, c10::string_view mesh, c10::string_view source,
                        c10::string_view target, c10::string_view target_mesh, c10::string_view group,
                        c10::string_view grad_from, c10::string_view grad_to, double grad_scale) {
  const pytorch::MoveTexts move = TextsFrom(mesh, source, target, target_mesh, grad_from, grad_to, grad_scale);
  if (!at::GradMode::is_enabled() || !tensor.requires_grad()) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return DispatchTexts(tensor, move, Text(group));
  }
  return MoveFunction::apply(tensor, move, Text(group));
}

// ---- redistribute

at::Tensor RedistributeOp(const at::Tensor& local, c10::string_view mesh, c10::string_view source,
                          c10::string_view target, c10::string_view group,
                          std::optional<c10::string_view> target_mesh) {
  const absl::StatusOr<std::vector<Problem>> problem = pytorch::ProblemsOf(1, [&](size_t) -> pytorch::ProblemTexts {
    return {mesh, target_mesh.value_or(""), source, target};
  });
  if (!problem.ok()) pytorch::Refuse(local, problem.status(), Text(group));
  return pytorch::DispatchMove(local, pytorch::MoveOf((*problem)[0].source, (*problem)[0].target), Text(group));
}

// ---- _neighbor_exchange: rank r sends `up` to rank r+1 and `down` to rank r-1, and gets (up of r-1, down of r+1),
// zeros where there is no such rank. One operator with the same inputs and outputs on every rank, so that no compiler
// drops it on some of them and its gradient is one exchange, too.

}  // namespace

std::tuple<at::Tensor, at::Tensor> pytorch::DispatchNeighborExchange(const at::Tensor& up, const at::Tensor& down,
                                                                     const std::string& group) {
  static const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("reshard::_neighbor_exchange", "")
          .typed<std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, const at::Tensor&, c10::string_view)>();
  return op.call(up, down, group);
}

namespace {

std::tuple<at::Tensor, at::Tensor> NeighborExchangeNow(const at::Tensor& up, const at::Tensor& down,
                                                       c10::string_view group) {
  const std::shared_ptr<TensorCommunicator> communicator = TensorCommunicator::OfGroup(Text(group), up.device());
  const int64_t rank = communicator->communicator().rank();
  const int64_t pairs = communicator->communicator().world_size() - 1;
  at::Tensor below = at::zeros_like(up, up.options(), at::MemoryFormat::Contiguous);
  at::Tensor above = at::zeros_like(down, down.options(), at::MemoryFormat::Contiguous);
  if (pairs == 0) return {below, above};
  // One mesh of the ranks that send and one of those that receive, so that nothing wraps around.
  const auto move = [pairs](const at::Tensor& part, int64_t from, int64_t to) -> absl::StatusOr<pytorch::Move> {
    const auto layout = [&](int64_t first) -> absl::StatusOr<Layout> {
      ASSIGN_OR_RETURN(const Mesh mesh, Mesh::Create({{"r", pairs}}, first));
      ASSIGN_OR_RETURN(const int64_t size, pytorch::GlobalSize(part.numel(), pairs));
      return EvenLayout(mesh, {size}, 0, {Factor::Along({0, 1, pairs})});
    };
    ASSIGN_OR_RETURN(const Layout source, layout(from));
    ASSIGN_OR_RETURN(const Layout target, layout(to));
    return pytorch::Move{source, target, std::nullopt};
  };
  const auto both = [&]() -> absl::StatusOr<std::vector<pytorch::Move>> {
    ASSIGN_OR_RETURN(const pytorch::Move upwards, move(up, 0, 1));
    ASSIGN_OR_RETURN(const pytorch::Move downwards, move(down, 1, 0));
    return std::vector<pytorch::Move>{upwards, downwards};
  };
  const at::Tensor nothing = at::empty({0}, up.options());
  const bool sends_up = rank < pairs;
  const bool sends_down = rank > 0;
  const std::vector<at::Tensor> outgoing = {sends_up ? up.reshape({-1}) : nothing,
                                            sends_down ? down.reshape({-1}) : nothing};
  // What comes in goes straight into the results.
  const std::vector<at::Tensor> destinations = {sends_down ? below.view({-1}) : nothing,
                                                sends_up ? above.view({-1}) : at::empty({0}, up.options())};
  pytorch::RunMoves(outgoing, both(), *communicator, destinations);
  return {below, above};
}

std::tuple<at::Tensor, at::Tensor> NeighborExchangeMeta(const at::Tensor& up, const at::Tensor& down,
                                                        c10::string_view) {
  return {at::empty_like(up, at::MemoryFormat::Contiguous), at::empty_like(down, at::MemoryFormat::Contiguous)};
}

class NeighborExchangeFunction : public ::torch::autograd::Function<NeighborExchangeFunction> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& up, const at::Tensor& down,
                               const Text& group) {
    context->saved_data["group"] = group;
    const at::AutoDispatchBelowADInplaceOrView below;
    auto [from_below, from_above] = pytorch::DispatchNeighborExchange(up, down, group);
    return {from_below, from_above};
  }
  // What came from below goes back down, what came from above back up.
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    auto [down, up] =
        pytorch::DispatchNeighborExchange(gradients[1], gradients[0], context->saved_data["group"].toStringRef());
    return {up, down, at::Tensor()};
  }
};

std::tuple<at::Tensor, at::Tensor> NeighborExchangeAutograd(const at::Tensor& up, const at::Tensor& down,
                                                            c10::string_view group) {
  const variable_list results = NeighborExchangeFunction::apply(up, down, Text(group));
  return {results[0], results[1]};
}

// ---- all_to_all_v

void AllToAllVMeta(const at::Tensor&, const at::Tensor&, const at::Tensor&, bool, bool, c10::string_view) {}

void DispatchAllToAllV(const at::Tensor& src, const at::Tensor& dst, const at::Tensor& metadata, bool recv_counts_known,
                       bool has_rdispls, c10::string_view group) {
  static const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("reshard::all_to_all_v", "")
          .typed<void(const at::Tensor&, const at::Tensor&, const at::Tensor&, bool, bool, c10::string_view)>();
  op.call(src, dst, metadata, recv_counts_known, has_rdispls, group);
}

void AllToAllVAutograd(const at::Tensor& src, const at::Tensor& dst, const at::Tensor& metadata, bool recv_counts_known,
                       bool has_rdispls, c10::string_view group) {
  if (at::GradMode::is_enabled() && (src.requires_grad() || dst.requires_grad())) {
    pytorch::Refuse(src,
                    absl::UnimplementedError("all_to_all_v has no gradient: detach its tensors, or use redistribute"),
                    Text(group));
  }
  const at::AutoDispatchBelowADInplaceOrView below;
  DispatchAllToAllV(src, dst, metadata, recv_counts_known, has_rdispls, group);
}

void ForgetGroups(std::optional<c10::string_view> name) {
  TensorCommunicator::Forget(name ? std::optional<std::string>(Text(*name)) : std::nullopt);
}

}  // namespace

at::Device pytorch::DeviceOf(const at::Tensor& tensor, const std::string& group) {
  if (tensor.defined()) return tensor.device();
  const auto process_group = c10d::resolve_process_group(group);
  const bool host = groups::WhyNot([&] { process_group->getBackend(c10::DeviceType::CPU); }).empty();
  return host ? at::Device(at::kCPU) : c10::impl::getDeviceGuardImpl(c10::DeviceType::CUDA)->getDevice();
}

void pytorch::Refuse(const at::Tensor& tensor, const absl::Status& status, const std::string& group) {
  const bool traced = tensor.defined() && (tensor.is_meta() || tensor.key_set().has(c10::DispatchKey::Python));
  if (traced) pytorch::Throw(status, c10d::resolve_process_group(group)->getRank());
  const std::shared_ptr<TensorCommunicator> communicator =
      TensorCommunicator::OfGroup(group, pytorch::DeviceOf(tensor, group));
  const absl::StatusOr<std::vector<pytorch::Move>> none = status;
  pytorch::RunMoves({}, none, *communicator);
  pytorch::Throw(status, communicator->communicator().rank());
}

TORCH_LIBRARY(reshard, library) {
  library.def("version() -> str", [] { return std::string(::reshard::Version()); });
  library.def("_check_environment() -> ()", [] {
    const absl::Status usable = CheckEnvironment();
    TORCH_CHECK_VALUE(usable.ok(), std::string(usable.message()));
  });
  library.def(
      "_move(Tensor local, str mesh, str source, str target, str target_mesh, str group, str grad_from, str grad_to, "
      "float grad_scale) -> Tensor");
  library.def("_neighbor_exchange(Tensor up, Tensor down, str group) -> (Tensor, Tensor)");
  library.def(
      "redistribute(Tensor local, str mesh, str source, str target, str group, str? target_mesh=None) -> Tensor",
      RedistributeOp);
  library.def("all_to_all_single(Tensor x, str group, str type, bool with_zigzag_splitting) -> Tensor", AllToAllSingle);
  library.def("all_to_all_4d(Tensor x, int scatter_dim, int gather_dim, str group, int? gather_size=None) -> Tensor",
              AllToAll4d);
  library.def("all_gather(Tensor x, int dim, str group) -> Tensor", AllGather);
  library.def("all_gather_with_unpad(Tensor x, int original_seq_len, int dim, str group) -> Tensor",
              AllGatherWithUnpad);
  library.def("shard(Tensor x, int dim, str group) -> (Tensor, int)", Shard);
  library.def("gather(Tensor x, int dst, int dim, str group) -> Tensor?", Gather);
  library.def("all_reduce(Tensor x, str op, str group) -> Tensor", AllReduce);
  library.def("exchange_overlapping_regions(Tensor data, int width, str group) -> (Tensor, Tensor)",
              ExchangeOverlappingRegions);
  library.def(
      "all_to_all_v(Tensor src, Tensor(a!) dst, Tensor(b!) metadata, bool recv_counts_known, bool has_rdispls, "
      "str group) -> ()");
  library.def("_layout_from_dtensor(str placements, str mesh, int[] shape) -> str", pytorch::LayoutFromDTensor);
  library.def("_layout_to_dtensor(str layout, str mesh, int[] shape) -> str", pytorch::LayoutToDTensor);
  library.def("_layout_of_rule(str rule, str mesh, int[] shape) -> str", pytorch::LayoutOfRule);
  library.def("_layout_shape(str layout, str mesh) -> int[]", pytorch::LayoutShape);
  library.def("_plan_figures(str mesh, str source, str target, str dtype) -> int[]", pytorch::PlanFigures);
  library.def("_set_topology(str? name, str? json) -> ()", pytorch::ConfigureTopology);
  library.def("_topology() -> (str, str)", pytorch::TopologyConfigured);
  library.def("_gone_ranks(str group, int[] ranks) -> int[]", pytorch::GoneRanksOf);
  library.def("_recent_operations(str group) -> str", pytorch::RecentOperationsOf);
  library.def("_last_timings(str group) -> str", pytorch::LastTimingsOf);
  library.def("_forget_groups(str? name) -> ()", ForgetGroups);
}

TORCH_LIBRARY_IMPL(reshard, CPU, library) {
  library.impl("_move", MoveTextsNow);
  library.impl("_neighbor_exchange", NeighborExchangeNow);
  library.impl("all_to_all_v", AllToAllV);
}

TORCH_LIBRARY_IMPL(reshard, CUDA, library) {
  library.impl("_move", MoveTextsNow);
  library.impl("_neighbor_exchange", NeighborExchangeNow);
  library.impl("all_to_all_v", AllToAllV);
}

TORCH_LIBRARY_IMPL(reshard, Meta, library) {
  library.impl("_move", MoveMeta);
  library.impl("_neighbor_exchange", NeighborExchangeMeta);
  library.impl("all_to_all_v", AllToAllVMeta);
}

TORCH_LIBRARY_IMPL(reshard, Autograd, library) {
  library.impl("_move", MoveAutograd);
  library.impl("_neighbor_exchange", NeighborExchangeAutograd);
  library.impl("all_to_all_v", AllToAllVAutograd);
}

}  // namespace reshard
