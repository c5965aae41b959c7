// The records of a zip archive: their lengths in bytes without names and extra fields.
#ifndef RESHARD_CHECKPOINT_FORMATS_ZIP_RECORDS_H_
#define RESHARD_CHECKPOINT_FORMATS_ZIP_RECORDS_H_

#include <cstdint>

namespace reshard::zip {

inline constexpr int64_t kLocalHeader = 30;
inline constexpr int64_t kDirectoryEntry = 46;
inline constexpr int64_t kEndRecord = 22;

}  // namespace reshard::zip

#endif  // RESHARD_CHECKPOINT_FORMATS_ZIP_RECORDS_H_
