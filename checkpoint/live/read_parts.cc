#include "checkpoint/live/read_parts.h"

#include <cstddef>
#include <stop_token>
#include <utility>

#include "checkpoint/catalog/boxes.h"
#include "checkpoint/live/fragment.h"
#include "checkpoint/tasks/run_tasks.h"
#include "reshard/runtime/strided_copy.h"

namespace reshard::live {

void AddParts(const PartRead& box, int64_t element_bytes, int64_t most, std::vector<PartRead>* parts) {
  for (catalog::StoredBox& part : catalog::CutBox(catalog::StoredBox{box.offset, box.size, 0}, element_bytes, most)) {
    std::vector<int64_t> local = box.local;
    for (size_t d = 0; d < local.size(); ++d) local[d] += part.offset[d] - box.offset[d];
    parts->push_back({box.tensor, std::move(part.offset), std::move(part.size), std::move(local), box.into});
  }
}

absl::Status ReadParts(source::Source& source, absl::Span<const PartRead> parts, int threads, Progress* progress) {
  std::vector<std::vector<char>> buffers(static_cast<size_t>(threads));
  const auto read_part = [&](const PartRead& part, int thread) -> absl::Status {
    const int64_t element = SizeOf(part.into->dtype);
    const StridedCopy place = BoxToFragment(part.size, part.local, element, part.into->strides);
    const auto bytes = static_cast<size_t>(NumElements(part.size) * element);
    const bool is_scalar = source.catalog().tensors()[static_cast<size_t>(part.tensor)].shape.empty();
    const auto of_tensor = [&](const std::vector<int64_t>& numbers) {
      return is_scalar ? absl::Span<const int64_t>() : absl::MakeConstSpan(numbers);
    };
    auto* const to = static_cast<char*>(part.into->data);
    if (place.contiguous()) {
      return source.Read(part.tensor, of_tensor(part.offset), of_tensor(part.size), {to + place.to_offset(), bytes});
    }
    std::vector<char>& buffer = buffers[static_cast<size_t>(thread)];
    buffer.resize(bytes);
    absl::Status read = source.Read(part.tensor, of_tensor(part.offset), of_tensor(part.size), absl::MakeSpan(buffer));
    if (read.ok()) place.Run(buffer.data(), to);
    return read;
  };
  const auto task = [&](int64_t p, int thread) -> absl::Status {
    const PartRead& part = parts[static_cast<size_t>(p)];
    absl::Status read = read_part(part, thread);
    if (read.ok() && progress != nullptr) progress->Add(NumElements(part.size) * SizeOf(part.into->dtype));
    return read;
  };
  return tasks::RunTasks(static_cast<int64_t>(parts.size()), threads, task,
                         progress == nullptr ? std::stop_token() : progress->stop());
}

}  // namespace reshard::live
