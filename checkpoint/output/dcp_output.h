// Writes PyTorch's distributed checkpoints: `__DEVICE_0.distcp` with a stream for every box, and `.metadata`.
#ifndef RESHARD_CHECKPOINT_OUTPUT_DCP_OUTPUT_H_
#define RESHARD_CHECKPOINT_OUTPUT_DCP_OUTPUT_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "checkpoint/output/output_format.h"
#include "reshard/checkpoint/catalog.h"
#include "reshard/checkpoint/rules.h"
#include "reshard/layout/layout.h"

namespace reshard::output {

// Who stores what: the layout of a tensor, and the device that stores a byte item.
struct DcpPlacing {
  std::function<absl::StatusOr<Layout>(const Catalog::Tensor&)> layout_of;
  std::function<int64_t(int64_t item)> device_of;
};

// As the rules say; byte items on the first device.
DcpPlacing PlacingOf(LayoutRules rules);

// Into a store (`objects`): `__0_K.distcp`, or `__0_K-TAG.distcp`, with the boxes of a tensor side by side, whichever
// device stores them, cut where together they would exceed ObjectTerms::batch_bytes.
// Fails where a tensor has more boxes than fit, and with what `layout_of` reports.
std::unique_ptr<OutputFormat> MakeDcpOutput(DcpPlacing placing, ObjectTerms objects = {});

}  // namespace reshard::output

#endif  // RESHARD_CHECKPOINT_OUTPUT_DCP_OUTPUT_H_
