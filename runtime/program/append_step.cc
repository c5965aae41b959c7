#include "runtime/program/append_step.h"

#include <algorithm>
#include <utility>

#include "runtime/host/reduce.h"

namespace reshard::program {

bool GoTogether(const StepProgram& a, const StepProgram& b) {
  if (!Reduces(a.op)) return !Reduces(b.op);
  return a.op == b.op && a.scope == b.scope;
}

void AppendStep(const StepProgram& step, absl::FunctionRef<int(int buffer)> rename, StepProgram* into) {
  if (into->tensors.empty()) {
    into->op = step.op;
    into->group = step.group;
    into->group_index = step.group_index;
    into->group_size = step.group_size;
    into->scope = step.scope;
  } else if (into->op != step.op || into->scope != step.scope) {
    into->op = Op::kExchange;
    into->group.clear();
    into->group_index = 0;
    into->group_size = 0;
    into->scope.reset();
  }
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

void FinishStep(StepProgram* step) {
  const auto by_peer_then_tensor = [](const Transfer& a, const Transfer& b) {
    return a.peer != b.peer ? a.peer < b.peer : a.tensor < b.tensor;
  };
  std::stable_sort(step->sends.begin(), step->sends.end(), by_peer_then_tensor);
  std::stable_sort(step->receives.begin(), step->receives.end(), by_peer_then_tensor);
}

}  // namespace reshard::program
