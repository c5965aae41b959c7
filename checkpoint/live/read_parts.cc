#include "checkpoint/live/read_parts.h"

#include <cstddef>
#include <stop_token>
#include <string>
#include <utility>

#include "checkpoint/catalog/boxes.h"
#include "checkpoint/live/fragment.h"
#include "checkpoint/source/streaming_reader.h"
#include "checkpoint/stores/url.h"
#include "checkpoint/tasks/run_tasks.h"
#include "reshard/runtime/strided_copy.h"
#include "status/macros.h"

namespace reshard::live {
namespace {

source::Box BoxOf(const PartRead& part) {
  return {{part.offset.begin(), part.offset.end()}, {part.size.begin(), part.size.end()}};
}

bool IsScalar(const source::Source& source, int64_t tensor) { return source.catalog().tensors()[tensor].shape.empty(); }

// The part of `whole` with these elements.
PartRead Within(const PartRead& whole, absl::Span<const int64_t> offset, absl::Span<const int64_t> size) {
  PartRead part{whole.tensor, {offset.begin(), offset.end()}, {size.begin(), size.end()}, whole.local, whole.into};
  for (size_t d = 0; d < part.local.size(); ++d) part.local[d] += offset[d] - whole.offset[d];
  return part;
}

// What is not contiguous in its destination goes through a buffer, this much at a time: it is read, checked and put in
// place while it is in a core's own cache.
constexpr int64_t kBuffered = int64_t{256} << 10;
// Enough to be worth a request.
constexpr int64_t kBufferedOfUrl = int64_t{8} << 20;

}  // namespace

void AddParts(source::Source& source, const PartRead& box, int64_t element_bytes, int64_t most,
              std::vector<PartRead>* parts) {
  const auto cut = [&](const PartRead& part) {
    for (const PartRead& small : catalog::CutBox(part, element_bytes, most)) {
      parts->push_back(Within(part, small.offset, small.size));
    }
  };
  if (IsScalar(source, box.tensor)) return cut(box);
  for (const source::Source::BoxOfChunk& of_chunk : source.CutAlongChunks(box.tensor, BoxOf(box))) {
    PartRead part = Within(box, of_chunk.box.offset, of_chunk.box.size);
    if (!of_chunk.at_once) {
      cut(part);
      continue;
    }
    part.in_pass = !of_chunk.is_whole;
    parts->push_back(std::move(part));
  }
}

absl::Status ReadParts(source::Source& source, absl::Span<const PartRead> parts, int threads, Progress* progress) {
  const auto read_part = [&](const PartRead& part) -> absl::Status {
    const int64_t element = SizeOf(part.into->dtype);
    const StridedCopy place = BoxToFragment(part.size, part.local, element, part.into->strides);
    auto* const to = static_cast<char*>(part.into->data);
    if (place.contiguous() && !part.in_pass) {
      const bool is_scalar = IsScalar(source, part.tensor);
      const auto of_tensor = [&](const std::vector<int64_t>& numbers) {
        return is_scalar ? absl::Span<const int64_t>() : absl::MakeConstSpan(numbers);
      };
      return source.Read(part.tensor, of_tensor(part.offset), of_tensor(part.size),
                         {to + place.to_offset(), static_cast<size_t>(NumElements(part.size) * element)});
    }
    source::StreamingReader reader(&source, part.tensor, BoxOf(part));
    return reader.ReadAll(stores::IsUrl(source.catalog().root()) ? kBufferedOfUrl : kBuffered,
                          [&](const source::Box& box, std::string& bytes) {
                            const PartRead read = Within(part, box.offset, box.size);
                            BoxToFragment(read.size, read.local, element, read.into->strides).Run(bytes.data(), to);
                            return absl::OkStatus();
                          });
  };
  const auto task = [&](int64_t p, int /*thread*/) -> absl::Status {
    const PartRead& part = parts[p];
    absl::Status read = read_part(part);
    if (read.ok() && progress != nullptr) progress->Add(NumElements(part.size) * SizeOf(part.into->dtype));
    return read;
  };
  return tasks::RunTasks(static_cast<int64_t>(parts.size()), threads, task,
                         progress == nullptr ? std::stop_token() : progress->stop());
}

}  // namespace reshard::live
