// torch.ops.reshard.redistribute_batch, and `_move_batch`, which it is built on as `redistribute` is on `_move`: many
// tensors in shared exchanges, each between any two meshes.
#include <ATen/Functions.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "runtime/pytorch/layout_texts.h"
#include "runtime/pytorch/move.h"
#include "runtime/pytorch/move_texts.h"
#include "runtime/pytorch/tensors.h"
#include "status/macros.h"

namespace reshard {

using ::torch::autograd::AutogradContext;
using ::torch::autograd::variable_list;
using Text = std::string;
using Texts = std::vector<std::string>;

namespace {

// What `_move_batch` takes besides tensors.
struct MoveBatch {
  Texts meshes;                // mesh and target mesh (empty: the same one) of all tensors, or of each
  Texts texts;                 // source, target, grad_from and grad_to of each tensor
  std::vector<double> scales;  // one per tensor
  Text group;
  std::optional<int64_t> memory_limit;  // bytes
};

c10::List<Text> ListOf(const Texts& texts) {
  c10::List<Text> list;
  list.reserve(texts.size());
  for (const Text& text : texts) list.push_back(text);
  return list;
}

Texts TextsOf(const c10::List<Text>& list) { return {list.begin(), list.end()}; }

std::vector<at::Tensor> DispatchBatch(at::TensorList tensors, const MoveBatch& batch) {
  static const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("reshard::_move_batch", "")
          .typed<std::vector<at::Tensor>(at::TensorList, const c10::List<Text>&, const c10::List<Text>&,
                                         at::ArrayRef<double>, c10::string_view, std::optional<int64_t>)>();
  return op.call(tensors, ListOf(batch.meshes), ListOf(batch.texts), batch.scales, batch.group, batch.memory_limit);
}

absl::StatusOr<std::vector<pytorch::Move>> MovesOfBatch(const MoveBatch& batch) {
  const size_t count = batch.scales.size();
  const bool one_pair = batch.meshes.size() == 2;
  if (batch.texts.size() != 4 * count || (!one_pair && batch.meshes.size() != 2 * count)) {
    return absl::InvalidArgumentError("sources, targets and meshes differ in number");
  }
  std::vector<pytorch::Move> moves;
  moves.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const Text* const mesh = &batch.meshes[one_pair ? 0 : 2 * i];
    const Text* const text = &batch.texts[4 * i];
    ASSIGN_OR_RETURN(pytorch::Move move,
                     pytorch::ParseMove({mesh[0], text[0], text[1], mesh[1], text[2], text[3], batch.scales[i]}));
    moves.push_back(std::move(move));
  }
  return moves;
}

MoveBatch BatchOf(const std::vector<pytorch::Move>& moves, const Text& group, std::optional<int64_t> memory_limit) {
  MoveBatch batch;
  batch.group = group;
  batch.memory_limit = memory_limit;
  const bool one_pair = std::all_of(moves.begin(), moves.end(), [&](const pytorch::Move& move) {
    return move.source.mesh() == moves[0].source.mesh() && move.target.mesh() == moves[0].target.mesh();
  });
  for (const pytorch::Move& move : moves) {
    pytorch::MoveTexts texts = pytorch::PrintMove(move);
    if (!one_pair || batch.meshes.empty()) {
      batch.meshes.push_back(std::move(texts.mesh));
      batch.meshes.push_back(std::move(texts.target_mesh));
    }
    for (Text* text : {&texts.source, &texts.target, &texts.grad_from, &texts.grad_to}) {
      batch.texts.push_back(std::move(*text));
    }
    batch.scales.push_back(texts.grad_scale);
  }
  return batch;
}

MoveBatch Received(const c10::List<Text>& meshes, const c10::List<Text>& texts, at::ArrayRef<double> scales,
                   c10::string_view group, std::optional<int64_t> memory_limit) {
  return {TextsOf(meshes), TextsOf(texts), scales.vec(), Text(group), memory_limit};
}

std::vector<at::Tensor> MoveBatchNow(at::TensorList tensors, const c10::List<Text>& meshes,
                                     const c10::List<Text>& texts, at::ArrayRef<double> scales, c10::string_view group,
                                     std::optional<int64_t> memory_limit) {
  const at::Device device = pytorch::DeviceOf(tensors.empty() ? at::Tensor() : tensors[0], Text(group));
  const std::shared_ptr<TensorCommunicator> communicator = TensorCommunicator::OfGroup(Text(group), device);
  return pytorch::RunMoves(tensors, MovesOfBatch(Received(meshes, texts, scales, group, memory_limit)), *communicator,
                           {}, memory_limit);
}

std::vector<at::Tensor> MoveBatchMeta(at::TensorList tensors, const c10::List<Text>& meshes,
                                      const c10::List<Text>& texts, at::ArrayRef<double> scales, c10::string_view group,
                                      std::optional<int64_t> memory_limit) {
  const int64_t rank = c10d::resolve_process_group(Text(group))->getRank();
  const absl::StatusOr<std::vector<pytorch::Move>> moves =
      MovesOfBatch(Received(meshes, texts, scales, group, memory_limit));
  if (!moves.ok()) pytorch::Throw(moves.status(), rank);
  std::vector<at::Tensor> results;
  for (size_t i = 0; i < tensors.size(); ++i) {
    results.push_back(at::empty(pytorch::ResultShape((*moves)[i].target, rank), tensors[i].options()));
  }
  return results;
}

// DispatchMove for several tensors.
std::vector<at::Tensor> DispatchMoves(at::TensorList tensors, const std::vector<pytorch::Move>& moves,
                                      const Text& group, std::optional<int64_t> memory_limit) {
  if (!pytorch::NeedsNoDispatch(tensors)) return DispatchBatch(tensors, BatchOf(moves, group, memory_limit));
  return pytorch::RunMoves(tensors, moves, *TensorCommunicator::OfGroup(group, tensors[0].device()), {}, memory_limit);
}

class BatchFunction : public ::torch::autograd::Function<BatchFunction> {
 public:
  static variable_list forward(AutogradContext* context, at::TensorList tensors, const MoveBatch& batch) {
    context->saved_data["meshes"] = batch.meshes;
    context->saved_data["texts"] = batch.texts;
    context->saved_data["scales"] = batch.scales;
    context->saved_data["group"] = batch.group;
    context->saved_data["memory_limit"] = batch.memory_limit;
    for (size_t i = 0; i < tensors.size(); ++i) {
      context->saved_data["sizes" + std::to_string(i)] = tensors[i].sym_sizes();
    }
    const at::AutoDispatchBelowADInplaceOrView below;
    return DispatchBatch(tensors, batch);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto limit = context->saved_data["memory_limit"].toOptional<int64_t>();
    const Text group = context->saved_data["group"].toStringRef();
    const absl::StatusOr<std::vector<pytorch::Move>> moves =
        MovesOfBatch({context->saved_data["meshes"].to<Texts>(), context->saved_data["texts"].to<Texts>(),
                      context->saved_data["scales"].toDoubleVector(), group, limit});
    std::vector<pytorch::Move> back;
    std::vector<at::Tensor> scaled;
    for (size_t i = 0; i < gradients.size(); ++i) {
      const pytorch::Move& move = (*moves)[i];
      scaled.push_back(pytorch::ScaledGradient(gradients[i], move));
      back.push_back(move.Back());
    }
    variable_list results = DispatchMoves(scaled, back, group, limit);
    for (size_t i = 0; i < results.size(); ++i) {
      results[i] = pytorch::LikeInput(results[i], context->saved_data["sizes" + std::to_string(i)].toSymIntVector());
    }
    results.emplace_back();
    return results;
  }
};

std::vector<at::Tensor> MoveBatchAutograd(at::TensorList tensors, const c10::List<Text>& meshes,
                                          const c10::List<Text>& texts, at::ArrayRef<double> scales,
                                          c10::string_view group, std::optional<int64_t> memory_limit) {
  bool differentiated = false;
  for (const at::Tensor& tensor : tensors) differentiated |= tensor.requires_grad();
  const MoveBatch batch = Received(meshes, texts, scales, group, memory_limit);
  if (!at::GradMode::is_enabled() || !differentiated) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return DispatchBatch(tensors, batch);
  }
  return BatchFunction::apply(tensors, batch);
}

[[noreturn]] void RefuseCounts(at::TensorList locals, const std::string& counts, c10::string_view group) {
  const absl::Status status = absl::InvalidArgumentError(
      absl::StrCat("a batch needs at least one tensor, and a source and a target for each; got ", locals.size(),
                   " tensors, ", counts));
  pytorch::Refuse(locals.empty() ? at::Tensor() : locals[0], status, Text(group));
}

// texts(i) is the problem of tensor i.
std::vector<at::Tensor> MoveAll(at::TensorList locals, absl::FunctionRef<pytorch::ProblemTexts(size_t)> texts,
                                c10::string_view group, std::optional<int64_t> memory_limit) {
  const absl::StatusOr<std::vector<Problem>> problems = pytorch::ProblemsOf(locals.size(), texts);
  if (pytorch::NeedsNoDispatch(locals)) {
    const std::shared_ptr<TensorCommunicator> communicator =
        TensorCommunicator::OfGroup(Text(group), locals[0].device());
    return pytorch::RunProblems(locals, problems, *communicator, memory_limit);
  }
  if (!problems.ok()) pytorch::Refuse(locals[0], problems.status(), Text(group));
  std::vector<pytorch::Move> moves;
  moves.reserve(problems->size());
  for (const Problem& problem : *problems) moves.push_back(pytorch::MoveOf(problem.source, problem.target));
  return DispatchBatch(locals, BatchOf(moves, Text(group), memory_limit));
}

std::vector<at::Tensor> RedistributeBatchOp(at::TensorList locals, c10::string_view mesh,
                                            const c10::List<Text>& sources, const c10::List<Text>& targets,
                                            c10::string_view group, std::optional<c10::string_view> target_mesh,
                                            std::optional<int64_t> memory_limit) {
  if (locals.empty() || sources.size() != locals.size() || targets.size() != locals.size()) {
    RefuseCounts(locals, absl::StrCat(sources.size(), " sources, ", targets.size(), " targets"), group);
  }
  const c10::string_view over = target_mesh.value_or("");
  const auto texts = [&](size_t i) -> pytorch::ProblemTexts {
    const Text& source = sources[i];
    const Text& target = targets[i];
    return {mesh, over, source, target};
  };
  return MoveAll(locals, texts, group, memory_limit);
}

std::vector<at::Tensor> RedistributeBatchOverMeshesOp(at::TensorList locals, const c10::List<Text>& meshes,
                                                      const c10::List<Text>& sources, const c10::List<Text>& targets,
                                                      c10::string_view group,
                                                      const std::optional<c10::List<Text>>& target_meshes,
                                                      std::optional<int64_t> memory_limit) {
  const c10::List<Text>& over = target_meshes ? *target_meshes : meshes;
  const size_t count = locals.size();
  if (count == 0 || meshes.size() != count || sources.size() != count || targets.size() != count ||
      over.size() != count) {
    RefuseCounts(locals,
                 absl::StrCat(meshes.size(), " meshes, ", sources.size(), " sources, ", over.size(), " target meshes, ",
                              targets.size(), " targets"),
                 group);
  }
  const auto texts = [&](size_t i) -> pytorch::ProblemTexts {
    const Text& mesh = meshes[i];
    const Text& target_mesh = over[i];
    const Text& source = sources[i];
    const Text& target = targets[i];
    return {mesh, target_mesh == mesh ? std::string_view() : std::string_view(target_mesh), source, target};
  };
  return MoveAll(locals, texts, group, memory_limit);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(reshard, library) {
  library.def(
      "_move_batch(Tensor[] locals, str[] meshes, str[] texts, float[] grad_scales, str group, int? memory_limit) -> "
      "Tensor[]");
  library.def(
      "redistribute_batch(Tensor[] locals, str mesh, str[] sources, str[] targets, str group, str? target_mesh=None, "
      "int? memory_limit=None) -> Tensor[]",
      RedistributeBatchOp);
  library.def(
      "redistribute_batch.meshes(Tensor[] locals, str[] meshes, str[] sources, str[] targets, str group, "
      "str[]? target_meshes=None, int? memory_limit=None) -> Tensor[]",
      RedistributeBatchOverMeshesOp);
}

TORCH_LIBRARY_IMPL(reshard, CPU, library) { library.impl("_move_batch", MoveBatchNow); }
TORCH_LIBRARY_IMPL(reshard, CUDA, library) { library.impl("_move_batch", MoveBatchNow); }
TORCH_LIBRARY_IMPL(reshard, Meta, library) { library.impl("_move_batch", MoveBatchMeta); }
TORCH_LIBRARY_IMPL(reshard, Autograd, library) { library.impl("_move_batch", MoveBatchAutograd); }

}  // namespace reshard
