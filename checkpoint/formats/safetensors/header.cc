#include "checkpoint/formats/safetensors/header.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint/formats/safetensors/dtypes.h"
#include "checkpoint/io/show.h"
#include "json/walk.h"
#include "status/macros.h"

namespace reshard::safetensors {
namespace {

using Entry = SafetensorsHeader::Entry;
using Kind = json::WalkedValue::Kind;

absl::Status Wrong(const Entry& entry, absl::string_view what) {
  return absl::DataLossError(absl::StrCat("tensor ", io::Shown(entry.name), ": ", what));
}

// Takes the values of the JSON one by one.
class Collector {
 public:
  explicit Collector(const CatalogLimits& limits) : limits_(limits) {}

  absl::Status Visit(absl::Span<const json::PathStep> path, const json::WalkedValue& value) {
    if (path.empty()) {
      return value.kind == Kind::kObject ? absl::OkStatus() : absl::DataLossError("the header is not a JSON object");
    }
    if (path[0].key == "__metadata__") return Metadata(path, value);
    if (path.size() == 1) return Begin(path[0].key, value);
    Entry& entry = header_.entries.back();
    const std::string& member = path[1].key;
    if (member == "dtype") {
      if (value.kind != Kind::kString) return Wrong(entry, "dtype is not text");
      entry.dtype = std::move(*value.text);
      has_dtype_ = true;
    } else if (member == "shape" && path.size() == 2) {
      if (value.kind != Kind::kArray) return Wrong(entry, "shape is not a list");
      has_shape_ = true;
    } else if (member == "shape") {
      if (value.kind != Kind::kInteger) return Wrong(entry, "a size in shape is not a whole number from 0 to 2^63 - 1");
      entry.shape.push_back(value.integer);
    } else if (member == "data_offsets" && path.size() == 2) {
      if (value.kind != Kind::kArray) return Wrong(entry, "data_offsets is not a list");
    } else if (member == "data_offsets") {
      if (value.kind != Kind::kInteger) return Wrong(entry, "a data offset is not a whole number from 0 to 2^63 - 1");
      if (++offsets_ > 2) return Wrong(entry, "there are more than two data_offsets");
      (offsets_ == 1 ? entry.begin : entry.end) = value.integer;
    }
    return absl::OkStatus();
  }

  // The entry that began last is complete.
  absl::Status Finish() const {
    if (header_.entries.empty()) return absl::OkStatus();
    const Entry& entry = header_.entries.back();
    if (!has_dtype_) return Wrong(entry, "there is no dtype");
    if (!has_shape_) return Wrong(entry, "there is no shape");
    if (offsets_ != 2) return Wrong(entry, "data_offsets must be two numbers");
    return absl::OkStatus();
  }

  SafetensorsHeader Take() && { return std::move(header_); }

 private:
  absl::Status Metadata(absl::Span<const json::PathStep> path, const json::WalkedValue& value) {
    if (path.size() == 1) {
      if (value.kind == Kind::kObject || value.kind == Kind::kNull) return absl::OkStatus();
      return absl::DataLossError("__metadata__ is not a JSON object");
    }
    if (value.kind != Kind::kString) {
      return absl::DataLossError(absl::StrCat("__metadata__: the value of ", io::Shown(path[1].key), " is not text"));
    }
    header_.metadata.emplace_back(path[1].key, std::move(*value.text));
    return absl::OkStatus();
  }

  absl::Status Begin(const std::string& name, const json::WalkedValue& value) {
    RETURN_IF_ERROR(Finish());
    if (static_cast<int64_t>(name.size()) > limits_.string_bytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a name of ", name.size(), " bytes; at most ", limits_.string_bytes, " are allowed"));
    }
    header_.entries.emplace_back().name = name;
    has_dtype_ = has_shape_ = false;
    offsets_ = 0;
    return value.kind == Kind::kObject ? absl::OkStatus()
                                       : Wrong(header_.entries.back(), "its entry is not a JSON object");
  }

  const CatalogLimits& limits_;
  SafetensorsHeader header_;
  bool has_dtype_ = false, has_shape_ = false;  // of the last entry
  int offsets_ = 0;
};

absl::Status CheckEntry(const Entry& entry, int64_t data_bytes) {
  if (entry.begin > entry.end || entry.end > data_bytes) {
    return Wrong(entry, absl::StrCat("data_offsets [", entry.begin, ", ", entry.end, "] are not a range of the ",
                                     data_bytes, " bytes of data"));
  }
  const SafetensorsDType* dtype = FindSafetensorsDType(entry.dtype);
  if (dtype == nullptr) {
    // A newer one, perhaps, of which the length is all that is known.
    if (LooksLikeDType(entry.dtype)) return absl::OkStatus();
    return Wrong(entry, absl::StrCat("its dtype ", io::Shown(entry.dtype), " is unknown"));
  }
  const std::optional<int64_t> bits = BitsOf(entry.shape, *dtype);
  if (bits && *bits % 8 == 0 && *bits / 8 == entry.end - entry.begin) return absl::OkStatus();
  const std::string shape = absl::StrCat("shape [", absl::StrJoin(entry.shape, ", "), "] of ", entry.dtype);
  if (!bits) return Wrong(entry, absl::StrCat(shape, " is too large to count"));
  if (*bits % 8 != 0) return Wrong(entry, absl::StrCat(shape, " is not a whole number of bytes"));
  return Wrong(entry, absl::StrCat(shape, " takes ", *bits / 8, " bytes, data_offsets [", entry.begin, ", ", entry.end,
                                   "] have ", entry.end - entry.begin));
}

// The entries in the order of their places have to follow each other. Where one without elements shares its begin with
// another it comes first.
absl::Status CheckCover(const std::vector<Entry>& entries, int64_t data_bytes) {
  std::vector<size_t> order(entries.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(entries[a].begin, entries[a].end) < std::pair(entries[b].begin, entries[b].end);
  });
  int64_t covered = 0;
  for (const size_t i : order) {
    const Entry& entry = entries[i];
    if (entry.begin < covered) {
      return Wrong(entry,
                   absl::StrCat("it begins at ", entry.begin, ", inside the tensor before, which ends at ", covered));
    }
    if (entry.begin > covered) {
      return Wrong(entry, absl::StrCat("it begins at ", entry.begin, "; bytes ", covered, " to ", entry.begin,
                                       " belong to no tensor"));
    }
    covered = entry.end;
  }
  if (covered == data_bytes) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("the tensors end at byte ", covered, " of the data, which has ", data_bytes, " bytes"));
}

absl::Status In(const io::ReadFile& file, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(file.path(), ": ", status.message()));
}

}  // namespace

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json, int64_t data_bytes,
                                                         const CatalogLimits& limits) {
  if (json.empty() || json[0] != '{') return absl::DataLossError("the header does not begin with '{'");
  Collector collector(limits);
  absl::Status walked =
      json::Walk(json, limits.depth, [&](absl::Span<const json::PathStep> path, const json::WalkedValue& value) {
        return collector.Visit(path, value);
      });
  if (absl::IsInvalidArgument(walked))
    return absl::DataLossError(absl::StrCat("the header is bad: ", walked.message()));
  if (!walked.ok()) return walked;
  RETURN_IF_ERROR(collector.Finish());
  SafetensorsHeader header = std::move(collector).Take();
  for (const Entry& entry : header.entries) {
    RETURN_IF_ERROR(CheckEntry(entry, data_bytes));
  }
  RETURN_IF_ERROR(CheckCover(header.entries, data_bytes));
  return header;
}

absl::StatusOr<SafetensorsFile> ReadSafetensorsHeader(const io::ReadFile& file, const CatalogLimits& limits) {
  if (file.bytes() < kLengthBytes) {
    return In(file,
              absl::DataLossError(absl::StrCat("it has ", file.bytes(), " bytes, too few for a safetensors file")));
  }
  std::array<char, kLengthBytes> prefix;
  RETURN_IF_ERROR(file.ReadAt(0, absl::MakeSpan(prefix)));
  uint64_t length = 0;
  for (size_t i = 0; i < prefix.size(); ++i) length |= uint64_t{static_cast<uint8_t>(prefix[i])} << (8 * i);
  const int64_t rest = file.bytes() - kLengthBytes;
  // A file that is something else is noticed before its first bytes are taken for a size.
  char first = 0;
  if (rest > 0) {
    RETURN_IF_ERROR(file.ReadAt(kLengthBytes, absl::MakeSpan(&first, 1)));
  }
  if (length == 0 || first != '{') {
    return In(file, absl::DataLossError("it begins neither like a safetensors file nor like one of torch.save"));
  }
  if (length > static_cast<uint64_t>(rest)) {
    return In(file, absl::DataLossError(absl::StrCat("the file is cut short: its first 8 bytes declare a header of ",
                                                     length, " bytes, and only ", rest, " follow")));
  }
  if (length > static_cast<uint64_t>(limits.metadata_bytes)) {
    return In(file, absl::ResourceExhaustedError(absl::StrCat("its header has ", length, " bytes; at most ",
                                                              limits.metadata_bytes, " are allowed")));
  }
  std::string json(static_cast<size_t>(length), '\0');
  RETURN_IF_ERROR(file.ReadAt(kLengthBytes, absl::MakeSpan(json)));
  const auto header_bytes = static_cast<int64_t>(length);
  auto header = ParseSafetensorsHeader(json, rest - header_bytes, limits);
  if (!header.ok()) return In(file, header.status());
  return SafetensorsFile{*std::move(header), kLengthBytes + header_bytes};
}

}  // namespace reshard::safetensors
