#include "checkpoint/source/pass.h"

#include <utility>

#include "checkpoint/source/read_box.h"
#include "checkpoint/source/state.h"
#include "status/macros.h"

namespace reshard::source {
Pass::Pass(Source* source, int64_t tensor, Box box)
    : source_(*source), tensor_(tensor), box_(std::move(box)), stored_(tensor) {
  if (source_.views() == nullptr) return;
  const views::View& view = (*source_.views())[static_cast<size_t>(tensor)];
  is_stored_ = !view.node;
  if (is_stored_) stored_ = view.stored;
}

absl::Status Pass::Read(const Box& part, Taker take) {
  if (is_stored_) return ReadStored(part, take);
  const int64_t element = SizeOf(*source_.catalog().tensors()[static_cast<size_t>(tensor_)].dtype);
  bytes_.resize(static_cast<size_t>(part.Elements() * element));
  RETURN_IF_ERROR(source_.Read(tensor_, part.offset, part.size, absl::MakeSpan(bytes_)));
  return take(part, bytes_);
}

absl::Status Pass::ReadStored(const Box& part, Taker take) {
  Source::State& state = *source_.state_;
  for (const int64_t number : state.Index(stored_)->Overlapping(part.offset, part.size)) {
    ASSIGN_OR_RETURN(const Overlap overlap, state.OverlapOf(stored_, number, part));
    auto followed = followed_.find(number);
    if (followed == followed_.end() && state.Wants(stored_, overlap)) {
      const Box chunk = state.ChunkBox(stored_, number);
      if (Common(chunk, box_) == chunk && Source::State::IsItsRecord(overlap)) {
        followed = followed_.emplace(number, state.CheckFor(stored_, overlap)).first;
      } else {
        RETURN_IF_ERROR(state.Check(stored_, overlap));
      }
    }
    bytes_.resize(static_cast<size_t>(overlap.bytes));
    RETURN_IF_ERROR(ReadBox(*overlap.file, *overlap.stream, overlap.within, overlap.box.size, absl::MakeSpan(bytes_)));
    if (followed != followed_.end()) {
      followed->second.Add(bytes_);
      if (followed->second.is_complete()) {
        const RecordCheck::Finding finding = followed->second.Finish();
        followed_.erase(followed);
        RETURN_IF_ERROR(state.Found(stored_, overlap, finding));
      }
    }
    RETURN_IF_ERROR(take(overlap.box, bytes_));
  }
  return absl::OkStatus();
}

}  // namespace reshard::source
