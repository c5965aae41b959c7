// The layouts that a checkpoint's sidecar, reshard.json, records: what neither format can say of itself.
#ifndef RESHARD_CHECKPOINT_RECORDED_LAYOUTS_H_
#define RESHARD_CHECKPOINT_RECORDED_LAYOUTS_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "reshard/checkpoint/catalog.h"

namespace reshard {

struct RecordedLayout {
  std::string mesh;    // "{dp:2,tp:4}"
  std::string layout;  // "[<tp,dp>512, 128]"
};

// By the name of the tensor; tensors that were stored whole, without a layout, are left out. Empty when there is no
// sidecar.
// DataLoss: a sidecar that is damaged, or that does not belong to the checkpoint: something else has written over it.
absl::StatusOr<std::map<std::string, RecordedLayout>> ReadRecordedLayouts(const Catalog& catalog,
                                                                          const CatalogLimits& limits = {});

}  // namespace reshard

#endif  // RESHARD_CHECKPOINT_RECORDED_LAYOUTS_H_
