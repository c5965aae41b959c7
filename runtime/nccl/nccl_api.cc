#include "reshard/nccl/nccl_api.h"

#include "absl/strings/str_cat.h"

namespace reshard {

std::string NcclVersionText(int version) {
  // The scheme changed after 2.8.
  const int unit = version < 10000 ? 1000 : 10000;
  return absl::StrCat(version / unit, ".", version % unit / 100, ".", version % 100);
}

}  // namespace reshard
