#include "checkpoint/source/streaming_reader.h"

#include <utility>
#include <vector>

#include "checkpoint/catalog/boxes.h"
#include "checkpoint/catalog/format_traits.h"
#include "checkpoint/source/read_box.h"
#include "checkpoint/source/state.h"
#include "checkpoint/stores/at_once.h"
#include "checkpoint/stores/url.h"
#include "status/macros.h"

namespace reshard::source {

StreamingReader::StreamingReader(Source* source, int64_t tensor, Box box)
    : source_(*source), tensor_(tensor), box_(std::move(box)), stored_(tensor) {
  if (source_.views() == nullptr) return;
  const views::View& view = (*source_.views())[tensor];
  is_stored_ = !view.node;
  if (is_stored_) stored_ = view.stored;
}

absl::Status StreamingReader::Read(const Box& part, Taker take) {
  if (is_stored_) return ReadStored(part, take);
  bytes_.resize(part.Elements() * element());
  RETURN_IF_ERROR(source_.Read(tensor_, part.offset, part.size, absl::MakeSpan(bytes_)));
  return take(part, bytes_);
}

absl::Status StreamingReader::ReadStored(const Box& part, Taker take) {
  Source::State& state = *source_.state_;
  const std::vector<int64_t> numbers = state.Index(stored_)->Overlapping(part.offset, part.size);
  if (numbers.size() > 1 && state.catalog.traits().chunks_are_archives && stores::IsUrl(state.catalog.root())) {
    // OverlapOf reads each archive ahead.
    constexpr int64_t kLookedInto = 8;
    RETURN_IF_ERROR(stores::AtOnce(
        static_cast<int64_t>(numbers.size()),
        [&](int64_t i) { return state.OverlapOf(stored_, numbers[static_cast<size_t>(i)], part).status(); },
        kLookedInto));
  }
  for (const int64_t number : numbers) {
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
    bytes_.resize(overlap.bytes);
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

absl::Status StreamingReader::ReadAll(int64_t most, Taker take) {
  if (!is_stored_) return ReadParts(box_, most, take);
  Source::State& state = *source_.state_;
  for (const int64_t number : state.Index(stored_)->Overlapping(box_.offset, box_.size)) {
    ASSIGN_OR_RETURN(const Overlap overlap, state.OverlapOf(stored_, number, box_));
    const bool through = state.Wants(stored_, overlap) && !overlap.is_whole && Source::State::IsItsRecord(overlap);
    RETURN_IF_ERROR(through ? ReadThrough(overlap, state.ChunkBox(stored_, number), most, take)
                            : ReadParts(overlap.box, most, take));
  }
  return absl::OkStatus();
}

absl::Status StreamingReader::ReadParts(const Box& box, int64_t most, Taker take) {
  for (const Box& part : catalog::CutBox(box, element(), most)) {
    RETURN_IF_ERROR(Read(part, take));
  }
  return absl::OkStatus();
}

absl::Status StreamingReader::ReadThrough(const Overlap& overlap, const Box& chunk, int64_t most, Taker take) {
  Source::State& state = *source_.state_;
  RecordCheck check = state.CheckFor(stored_, overlap);
  if (!check.knows_anything()) return ReadParts(overlap.box, most, take);
  for (const Box& part : catalog::CutBox(chunk, element(), most)) {
    Indices within = part.offset;
    for (size_t d = 0; d < within.size(); ++d) within[d] -= chunk.offset[d];
    bytes_.resize(part.Elements() * element());
    RETURN_IF_ERROR(ReadBox(*overlap.file, *overlap.stream, within, part.size, absl::MakeSpan(bytes_)));
    check.Add(bytes_);
    const Box common = Common(part, box_);
    if (common.Elements() == 0) continue;
    wanted_.resize(common.Elements() * element());
    CopyBox(common, {part, bytes_.data()}, {common, wanted_.data()}, element());
    RETURN_IF_ERROR(take(common, wanted_));
  }
  return state.Found(stored_, overlap, check.Finish());
}

}  // namespace reshard::source
