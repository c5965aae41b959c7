// The layouts recorded in a checkpoint's sidecar, reshard.json, since the formats cannot express them.
#ifndef RESHARD_CHECKPOINT_RECORDED_LAYOUTS_H_
#define RESHARD_CHECKPOINT_RECORDED_LAYOUTS_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard {

// How one tensor was sharded when it was saved, as text.
struct RecordedLayout {
  std::string mesh;    // "{dp:2,tp:4}"
  std::string layout;  // "[<tp,dp>512, 128]"
};

// By tensor name. Leaves out tensors that were stored whole, without a layout. Empty if there is no sidecar.
// DataLoss: the sidecar is damaged or does not belong to the checkpoint, which something else has overwritten.
absl::StatusOr<std::map<std::string, RecordedLayout>> ReadRecordedLayouts(const Catalog& catalog,
                                                                          const CatalogLimits& limits = {});

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_RECORDED_LAYOUTS_H_
