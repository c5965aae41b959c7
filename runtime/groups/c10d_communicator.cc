#include "reshard/torch/c10d_communicator.h"

#include <utility>

#include "runtime/groups/c10d_messages.h"
#include "runtime/peers/peer_communicator.h"
#include "status/no_throw.h"

namespace reshard {

struct C10dCommunicator::Impl {
  Impl(const c10::intrusive_ptr<c10d::ProcessGroup>& group, const C10dOptions& options)
      : ranks(group->getRank(), group->getSize(), options,
              [&](peers::PeerBoard& board, peers::FindCulprit find_culprit) {
                auto made =
                    std::make_unique<groups::C10dMessages>(group, options.timeout, &board, std::move(find_culprit));
                messages = made.get();
                return made;
              }) {}

  groups::C10dMessages* messages = nullptr;  // of `ranks`
  peers::PeerCommunicator ranks;
};

C10dCommunicator::C10dCommunicator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
C10dCommunicator::~C10dCommunicator() = default;

absl::StatusOr<std::unique_ptr<C10dCommunicator>> C10dCommunicator::Create(
    const c10::intrusive_ptr<c10d::ProcessGroup>& group, C10dOptions options) {
  if (group == nullptr) return absl::InvalidArgumentError("no process group");
  return status::NoThrow("making a communicator", [&]() -> absl::StatusOr<std::unique_ptr<C10dCommunicator>> {
    return std::unique_ptr<C10dCommunicator>(new C10dCommunicator(std::make_unique<Impl>(group, options)));
  });
}

int64_t C10dCommunicator::rank() const { return impl_->ranks.rank(); }
int64_t C10dCommunicator::world_size() const { return impl_->ranks.world_size(); }
bool C10dCommunicator::alive() const { return !impl_->ranks.closed() && !impl_->messages->expired(); }
void C10dCommunicator::Close() { impl_->ranks.Close(); }
std::vector<int64_t> C10dCommunicator::FindGone(absl::Span<const int64_t> ranks) {
  return impl_->ranks.FindGone(ranks);
}
const RecentOperations* C10dCommunicator::recent_operations() const { return impl_->ranks.recent_operations(); }

absl::Status C10dCommunicator::Agree(const absl::Status& own, const Signature& problem) {
  return impl_->ranks.Agree(own, problem);
}

absl::Status C10dCommunicator::AgreeBefore(const StepProgram& next, absl::Span<const ConstTensorView> inputs,
                                           const Signature& problem) {
  return impl_->ranks.AgreeBefore(next, inputs, problem);
}

absl::Status C10dCommunicator::Barrier() { return impl_->ranks.Barrier(); }

absl::StatusOr<MoveStats> C10dCommunicator::ExecuteStep(const StepProgram& step,
                                                        absl::Span<const ConstTensorView> inputs,
                                                        absl::Span<const TensorView> outputs,
                                                        std::unique_ptr<StepMemo>* memo) {
  return impl_->ranks.ExecuteStep(step, inputs, outputs, memo);
}

}  // namespace reshard
