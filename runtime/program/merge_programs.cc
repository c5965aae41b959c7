#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reshard/runtime/program.h"
#include "runtime/host/host_pool.h"
#include "runtime/program/append_step.h"
#include "status/no_throw.h"

namespace reshard {
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
    merged.buffers.resize(2 * merged.tensors);

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
        if (buffer.part.of >= 0) {
          buffer.part.of += static_cast<int>(2 * first_tensor[p]);
        } else {
          buffer.scratch_offset += merged.scratch_bytes[buffer.scratch];
        }
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
      const size_t first_step = merged.steps.size();
      for (size_t p = 0; p < programs.size(); ++p) {
        if (i >= programs[p]->steps.size()) continue;
        const StepProgram& step = programs[p]->steps[i];
        auto into = std::find_if(merged.steps.begin() + static_cast<std::ptrdiff_t>(first_step), merged.steps.end(),
                                 [&step](const StepProgram& other) { return program::GoTogether(step, other); });
        if (into == merged.steps.end()) into = merged.steps.insert(merged.steps.end(), StepProgram{});
        const auto ends = static_cast<int>(2 * programs[p]->tensors);
        const auto rename = [&](int buffer) {
          return buffer < ends ? static_cast<int>(2 * first_tensor[p]) + buffer : first_intermediate[p] + buffer - ends;
        };
        program::AppendStep(step, rename, &*into);
      }
    }
    for (StepProgram& step : merged.steps) {
      step.salt = merged.signature.fingerprint.low;
      program::FinishStep(&step);
    }
    return merged;
  });
}

}  // namespace reshard
