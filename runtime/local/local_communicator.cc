#include "runtime/local/local_communicator.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/execute/agreement.h"
#include "runtime/host/reduce.h"
#include "status/macros.h"
#include "status/no_throw.h"
#include "status/view.h"

namespace reshard::local {
namespace {

// A task should take longer than handing it over costs, but end soon after another rank has failed.
constexpr int64_t kTaskBytes = int64_t{1} << 20;

// The outcome of an agreement: OK, the first error brought, or who disagrees with whom.
absl::Status Judge(const LocalShared& shared) {
  std::vector<execute::AgreementRecord> records(shared.slots.size());
  for (size_t i = 0; i < records.size(); ++i) {
    records[i].status_code = static_cast<int64_t>(shared.slots[i].own_status.raw_code());
    records[i].fingerprint = shared.slots[i].problem->fingerprint;
  }
  if (execute::AllAgree(records)) return absl::OkStatus();
  std::vector<std::string> details;
  for (const LocalSlot& slot : shared.slots) details.push_back(execute::Details(slot.own_status, *slot.problem));
  return execute::Verdict(shared.device_ids, records, details);
}

absl::Status NoSuchRank(int64_t device_id) {
  return absl::InvalidArgumentError(
      absl::StrCat("the program receives from rank ", device_id, ", which this world does not have"));
}

bool Reduces(const StepProgram& step, const Transfer& transfer) { return Reduces(step.tensors[transfer.tensor].op); }

// Appends tasks for the elements [begin, end) so that each reads or writes about kTaskBytes.
void CutRange(LocalTask task, int64_t begin, int64_t end, int64_t bytes_per_element, std::vector<LocalTask>* tasks) {
  const int64_t step = std::max<int64_t>(1, kTaskBytes / bytes_per_element);
  for (; begin < end; begin += step) {
    task.begin = begin;
    task.end = std::min(end, begin + step);
    tasks->push_back(task);
  }
}

}  // namespace

LocalShared::LocalShared(const std::vector<int64_t>& ids, absl::Duration timeout)
    : device_ids(ids), rendezvous(ids, timeout), slots(ids.size()) {}

int64_t LocalShared::IndexOf(int64_t device_id) const {
  const int64_t count = static_cast<int64_t>(device_ids.size());
  if (device_ids.back() == count - 1) return device_id >= 0 && device_id < count ? device_id : -1;  // ids are 0..n-1
  const auto at = std::lower_bound(device_ids.begin(), device_ids.end(), device_id);
  return at != device_ids.end() && *at == device_id ? at - device_ids.begin() : -1;
}

absl::Status LocalCommunicator::Barrier() { return shared_->rendezvous.Arrive(index_, "a barrier"); }

absl::Status LocalCommunicator::Agree(const absl::Status& own, const Signature& problem) {
  LocalSlot& slot = shared_->slots[index_];
  slot.own_status = own;
  slot.problem = &problem;
  RETURN_IF_ERROR(shared_->rendezvous.Arrive(index_, "the agreement", [this] { shared_->verdict = Judge(*shared_); }));
  return own.ok() ? shared_->verdict : own;
}

absl::StatusOr<MoveStats> LocalCommunicator::ExecuteStep(const StepProgram& step,
                                                         absl::Span<const ConstTensorView> inputs,
                                                         absl::Span<const TensorView> outputs,
                                                         std::unique_ptr<StepMemo>* /*memo*/) {
  if (shared_->rendezvous.failed()) return shared_->rendezvous.failure();
  MoveStats moved;
  const absl::Status status = status::NoThrow("executing a step", [&]() -> absl::Status {
    const absl::Status prepared = Prepare(step, inputs, outputs, &moved);
    return prepared.ok() ? RendezvousAndWork(step, moved.written) : prepared;
  });
  if (status.ok()) return moved;
  // The caller may free its fragments as soon as it knows, so no rank may be reading them by then.
  shared_->rendezvous.Fail(index_, status);
  shared_->gate.CloseAndWait();
  return status;
}

// Writes down what this rank has to do, before the ranks meet.
absl::Status LocalCommunicator::Prepare(const StepProgram& step, absl::Span<const ConstTensorView> inputs,
                                        absl::Span<const TensorView> outputs, MoveStats* moved) {
  if (inputs.size() != step.tensors.size() || outputs.size() != step.tensors.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the step has ", step.tensors.size(), " tensors, got ",
                                                   inputs.size(), " inputs and ", outputs.size(), " outputs"));
  }
  LocalSlot& slot = shared_->slots[index_];
  slot.step = &step;
  slot.inputs = inputs;
  slot.outputs = outputs;
  slot.dense = std::all_of(inputs.begin(), inputs.end(), [](const ConstTensorView& view) { return IsDense(view); }) &&
               std::all_of(outputs.begin(), outputs.end(), [](const TensorView& view) { return IsDense(view); });
  for (int phase = 0; phase < 2; ++phase) {
    slot.tasks[phase].clear();
    slot.next_task[phase].store(0, std::memory_order_relaxed);
  }
  RETURN_IF_ERROR(PreparePulls(step, moved));
  return PrepareReductions(step, moved);
}

absl::Status LocalCommunicator::PreparePulls(const StepProgram& step, MoveStats* moved) {
  std::vector<LocalTask>& tasks = shared_->slots[index_].tasks[0];
  for (size_t i = 0; i < step.receives.size(); ++i) {
    const Transfer& transfer = step.receives[i];
    if (Reduces(step, transfer)) continue;
    const int64_t parts =
        std::clamp(transfer.bytes / kTaskBytes, int64_t{1}, std::max(int64_t{1}, transfer.copy.max_parts()));
    const auto peer = static_cast<int32_t>(shared_->IndexOf(transfer.peer));
    if (peer < 0) return NoSuchRank(transfer.peer);
    for (int64_t part = 0; part < parts; ++part) {
      tasks.push_back({LocalTask::Kind::kPull, static_cast<int32_t>(i), peer, part, parts});
    }
    (transfer.peer == rank() ? moved->copied_local : moved->received) += transfer.bytes;
    moved->written += transfer.bytes;
  }
  return absl::OkStatus();
}

absl::Status LocalCommunicator::PrepareReductions(const StepProgram& step, MoveStats* moved) {
  const auto reduced = [](const StepTensor& tensor) { return Reduces(tensor.op); };
  if (std::none_of(step.tensors.begin(), step.tensors.end(), reduced)) return absl::OkStatus();
  LocalSlot& slot = shared_->slots[index_];
  std::vector<int64_t> contributions(step.tensors.size(), 0);
  for (const Transfer& transfer : step.receives) {
    if (!Reduces(step, transfer)) continue;
    if (shared_->IndexOf(transfer.peer) < 0) return NoSuchRank(transfer.peer);
    ++contributions[transfer.tensor];
  }
  for (size_t t = 0; t < step.tensors.size(); ++t) {
    if (contributions[t] == 0) continue;
    const int64_t size = SizeOf(slot.outputs[t].dtype);
    const int64_t elements = NumElements(slot.outputs[t].shape);
    const LocalTask reduce{LocalTask::Kind::kReduce, static_cast<int32_t>(t), 0, 0, 0};
    Interval own{0, elements};
    if (step.op == Op::kAllReduce) {
      const auto members = static_cast<int64_t>(step.group.size());
      for (int64_t m = 0; m < members; ++m) {
        const Interval chunk = AllReduceChunk(elements, members, m);
        if (m == step.group_index) {
          own = chunk;
          continue;
        }
        const int64_t peer = shared_->IndexOf(step.group[m]);
        if (peer < 0) return NoSuchRank(step.group[m]);
        const LocalTask gather{LocalTask::Kind::kGather, static_cast<int32_t>(t), static_cast<int32_t>(peer), 0, 0};
        CutRange(gather, chunk.begin, chunk.end, size, &slot.tasks[1]);
        moved->received += chunk.length() * size;
        moved->written += chunk.length() * size;
      }
    }
    CutRange(reduce, own.begin, own.end, size * contributions[t], &slot.tasks[0]);
    moved->received += own.length() * size * (contributions[t] - 1);
    moved->written += own.length() * size;
  }
  return absl::OkStatus();
}

absl::Status LocalCommunicator::RendezvousAndWork(const StepProgram& step, int64_t bytes) {
  LocalSlot& slot = shared_->slots[index_];
  const int64_t ranks = world_size();
  if (step.op == Op::kSlice) {                    // nothing travels: no rank waits, and none helps
    const CopyMode mode = CopyModeFor(bytes, 1);  // the other ranks slice as much
    for (const LocalTask& task : slot.tasks[0]) {
      if (!RunLocalTask(*shared_, slot, task, mode)) return absl::InternalError("the step does not fit its own input");
    }
    return absl::OkStatus();
  }
  const std::string place = absl::StrCat("a step (", status::View(Name(step.op)), ")");
  shared_->step_bytes.fetch_add(bytes, std::memory_order_relaxed);
  const auto open = [this] { shared_->first_open_slot.store(0, std::memory_order_relaxed); };
  const auto begin = [&] {
    open();
    shared_->mode = CopyModeFor(shared_->step_bytes.exchange(0, std::memory_order_relaxed), ranks);
  };
  const int phases = step.op == Op::kAllReduce ? 2 : 1;
  for (int phase = 0; phase < phases; ++phase) {
    RETURN_IF_ERROR(phase == 0 ? shared_->rendezvous.Arrive(index_, place, begin)
                               : shared_->rendezvous.Arrive(index_, place, open));
    Work(phase);
  }
  RETURN_IF_ERROR(shared_->rendezvous.Arrive(index_, place));
  const int64_t misfit = slot.misfit.load(std::memory_order_relaxed);
  if (misfit < 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("rank ", misfit, " has another fragment than rank ", rank(), " expects: they run different plans"));
}

// This rank's tasks first, then those of any rank that has some left.
void LocalCommunicator::Work(int phase) {
  if (!shared_->gate.Enter()) return;
  const auto drain = [this, phase](LocalSlot& slot) {
    const std::vector<LocalTask>& tasks = slot.tasks[phase];
    while (!shared_->gate.closed()) {
      const size_t next = slot.next_task[phase].fetch_add(1, std::memory_order_relaxed);
      if (next >= tasks.size()) return;
      RunLocalTask(*shared_, slot, tasks[next], shared_->mode);
    }
  };
  drain(shared_->slots[index_]);
  std::atomic<size_t>& open = shared_->first_open_slot;
  size_t at = open.load(std::memory_order_relaxed);
  while (at < shared_->slots.size() && !shared_->gate.closed()) {
    LocalSlot& slot = shared_->slots[at];
    if (slot.next_task[phase].load(std::memory_order_relaxed) < slot.tasks[phase].size()) drain(slot);
    // The first rank to get here advances the mark; the others read its new value.
    if (open.compare_exchange_strong(at, at + 1, std::memory_order_relaxed)) ++at;
  }
  shared_->gate.Exit();
}

}  // namespace reshard::local
