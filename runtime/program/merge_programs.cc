#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reshard/runtime/program.h"
#include "runtime/host/host_pool.h"
#include "runtime/host/reduce.h"
#include "status/no_throw.h"

namespace reshard {
namespace {

bool ByPeerThenTensor(const Transfer& a, const Transfer& b) {
  return a.peer != b.peer ? a.peer < b.peer : a.tensor < b.tensor;
}

// Adds `step` of another tensor, whose buffers have been renumbered by `rename`.
template <typename Rename>
void Append(const StepProgram& step, const Rename& rename, StepProgram* into) {
  const auto first = static_cast<int>(into->tensors.size());
  for (StepTensor tensor : step.tensors) {
    tensor.input = rename(tensor.input);
    tensor.output = rename(tensor.output);
    into->tensors.push_back(tensor);
  }
  for (Transfer transfer : step.sends) {
    transfer.tensor += first;
    into->sends.push_back(std::move(transfer));
  }
  for (Transfer transfer : step.receives) {
    transfer.tensor += first;
    into->receives.push_back(std::move(transfer));
  }
  into->recv_bytes += step.recv_bytes;
  into->recv_bytes_max += step.recv_bytes_max;
  into->peers_max = std::max(into->peers_max, step.peers_max);
}

}  // namespace

absl::StatusOr<Program> MergePrograms(absl::Span<const Program* const> programs) {
  if (programs.empty()) return absl::InvalidArgumentError("no programs to merge");
  return status::NoThrow("merging programs", [&]() -> absl::StatusOr<Program> {
    Program merged;
    merged.rank = programs[0]->rank;
    merged.tensors = 0;
    size_t most_steps = 0;
    std::vector<int64_t> first_tensor;
    for (const Program* program : programs) {
      if (program->rank != merged.rank) return absl::InvalidArgumentError("programs of different ranks");
      first_tensor.push_back(merged.tensors);
      merged.tensors += program->tensors;
      merged.world = std::max(merged.world, program->world);
      most_steps = std::max(most_steps, program->steps.size());
    }
    merged.buffers.resize(static_cast<size_t>(2 * merged.tensors));

    // Where the intermediates of a program begin among the merged buffers.
    std::vector<int> first_intermediate;
    std::vector<Signature::Field> fields = {{"number of tensors", absl::StrCat(merged.tensors)}};
    for (size_t p = 0; p < programs.size(); ++p) {
      const Program& program = *programs[p];
      const auto ends = static_cast<size_t>(2 * program.tensors);
      for (size_t b = 0; b < ends; ++b) {
        merged.buffers[static_cast<size_t>(2 * first_tensor[p]) + b] = program.buffers[b];
      }
      first_intermediate.push_back(static_cast<int>(merged.buffers.size()));
      for (size_t b = ends; b < program.buffers.size(); ++b) {
        merged.buffers.push_back(program.buffers[b]);
        Buffer& buffer = merged.buffers.back();
        buffer.scratch_offset += merged.scratch_bytes[static_cast<size_t>(buffer.scratch)];
      }
      for (size_t i = 0; i < merged.scratch_bytes.size(); ++i) {
        merged.scratch_bytes[i] += host::AlignedHostBytes(program.scratch_bytes[i]);
      }
      for (const Signature::Field& field : program.signature.fields) {
        fields.push_back({absl::StrCat(field.name, " of tensor ", first_tensor[p]), field.value});
      }
    }
    merged.signature = Signature(std::move(fields));

    for (size_t i = 0; i < most_steps; ++i) {
      // Moves share one exchange; reductions go together where op and groups are the same.
      const size_t first_step = merged.steps.size();
      for (size_t p = 0; p < programs.size(); ++p) {
        if (i >= programs[p]->steps.size()) continue;
        const StepProgram& step = programs[p]->steps[i];
        const auto same = [&step](const StepProgram& other) {
          if (!host::Reduces(step.op)) return !host::Reduces(other.op);
          return other.op == step.op && other.scope == step.scope;
        };
        auto into =
            std::find_if(merged.steps.begin() + static_cast<std::ptrdiff_t>(first_step), merged.steps.end(), same);
        if (into == merged.steps.end()) {
          StepProgram fresh;
          fresh.op = step.op;
          fresh.group = step.group;
          fresh.group_index = step.group_index;
          fresh.group_size = step.group_size;
          fresh.scope = step.scope;
          into = merged.steps.insert(merged.steps.end(), std::move(fresh));
        } else if (into->op != step.op || into->scope != step.scope) {
          into->op = Op::kExchange;
          into->group.clear();
          into->group_index = 0;
          into->group_size = 0;
          into->scope.clear();
        }
        const auto ends = static_cast<int>(2 * programs[p]->tensors);
        const auto rename = [&](int buffer) {
          return buffer < ends ? static_cast<int>(2 * first_tensor[p]) + buffer : first_intermediate[p] + buffer - ends;
        };
        Append(step, rename, &*into);
      }
    }
    for (StepProgram& step : merged.steps) {
      step.salt = merged.signature.fingerprint.low;
      std::stable_sort(step.sends.begin(), step.sends.end(), ByPeerThenTensor);
      std::stable_sort(step.receives.begin(), step.receives.end(), ByPeerThenTensor);
    }
    return merged;
  });
}

}  // namespace reshard
