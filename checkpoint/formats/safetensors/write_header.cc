#include "checkpoint/formats/safetensors/write_header.h"

#include <algorithm>
#include <new>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <tuple>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "checkpoint/formats/safetensors/dtypes.h"
#include "checkpoint/formats/safetensors/header.h"
#include "checkpoint/io/show.h"
#include "reshard/layout/checked.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard::safetensors {
namespace {

constexpr size_t kAlignment = 8;
constexpr size_t kLongestHeader = 100'000'000;

// What f() returns. The JSON library throws for text that is not UTF-8.
template <typename F>
auto NoThrow(F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory while laying out a safetensors file");
  } catch (const nlohmann::json::exception&) {
    return absl::InvalidArgumentError("a name is not UTF-8, which is all that safetensors can hold");
  }
}

std::string Quoted(const std::string& text) { return nlohmann::json(text).dump(); }

absl::StatusOr<int64_t> BytesOf(const SafetensorsTensor& tensor, const SafetensorsDType& dtype) {
  auto wrong = [&](absl::string_view what) { return absl::StrCat("tensor ", io::Shown(tensor.name), ": ", what); };
  if (std::any_of(tensor.shape.begin(), tensor.shape.end(), [](int64_t size) { return size < 0; })) {
    return absl::InvalidArgumentError(wrong("a size is negative"));
  }
  const std::optional<int64_t> bits = BitsOf(tensor.shape, dtype);
  if (!bits) return absl::ResourceExhaustedError(wrong("its size does not fit 64 bits"));
  if (*bits % 8 != 0) return absl::InvalidArgumentError(wrong("its elements are not a whole number of bytes"));
  return *bits / 8;
}

absl::StatusOr<SafetensorsLayout> LayOut(absl::Span<const SafetensorsTensor> tensors,
                                         absl::Span<const std::pair<std::string, std::string>> metadata) {
  std::vector<const SafetensorsDType*> dtypes;
  for (const SafetensorsTensor& tensor : tensors) {
    dtypes.push_back(FindSafetensorsDType(tensor.dtype));
    if (dtypes.back() == nullptr) {
      return absl::UnimplementedError(
          absl::StrCat("tensor ", io::Shown(tensor.name), ": safetensors has no dtype ", io::Shown(tensor.dtype)));
    }
    if (tensor.name == "__metadata__") {
      return absl::InvalidArgumentError("no tensor can be called \"__metadata__\" in a safetensors file");
    }
  }
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::tie(dtypes[a], tensors[a].name) < std::tie(dtypes[b], tensors[b].name);  // one table: rank = address
  });

  SafetensorsLayout layout;
  layout.places.resize(tensors.size());
  std::vector<std::string> members;
  if (!metadata.empty()) {
    members.push_back(absl::StrCat("\"__metadata__\":{",
                                   absl::StrJoin(metadata, ",",
                                                 [](std::string* out, const auto& pair) {
                                                   absl::StrAppend(out, Quoted(pair.first), ":", Quoted(pair.second));
                                                 }),
                                   "}"));
  }
  int64_t at = 0;
  for (const size_t i : order) {
    ASSIGN_OR_RETURN(auto length, BytesOf(tensors[i], *dtypes[i]));
    const std::optional<int64_t> end = CheckedAdd(at, length);
    if (!end) return absl::ResourceExhaustedError("the tensors of one safetensors file do not fit 64 bits");
    layout.places[i] = {at, length};
    members.push_back(absl::StrCat(Quoted(tensors[i].name), ":{\"dtype\":\"", tensors[i].dtype, "\",\"shape\":[",
                                   absl::StrJoin(tensors[i].shape, ","), "],\"data_offsets\":[", at, ",", *end, "]}"));
    at = *end;
  }
  std::string json = absl::StrCat("{", absl::StrJoin(members, ","), "}");
  json.resize((json.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  if (json.size() > kLongestHeader) {
    return absl::ResourceExhaustedError(absl::StrCat("a header of ", json.size(),
                                                     " bytes; readers of safetensors take ", kLongestHeader,
                                                     " at most, so use more files"));
  }
  for (size_t i = 0; i < kLengthBytes; ++i) layout.head.push_back(static_cast<char>(json.size() >> (8 * i) & 0xff));
  layout.head += json;
  const auto head_bytes = static_cast<int64_t>(layout.head.size());
  const std::optional<int64_t> bytes = CheckedAdd(head_bytes, at);
  if (!bytes) return absl::ResourceExhaustedError("the tensors of one safetensors file do not fit 64 bits");
  layout.bytes = *bytes;
  for (SafetensorsLayout::DataRange& place : layout.places) place.at += head_bytes;
  return layout;
}

// InvalidArgument when two neighbors of the sorted list are the same.
absl::Status CheckUnique(std::vector<std::string_view> names) {
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the name ", io::Shown(*twice), " appears twice"));
}

}  // namespace

absl::StatusOr<SafetensorsLayout> LayOutSafetensors(absl::Span<const SafetensorsTensor> tensors,
                                                    absl::Span<const std::pair<std::string, std::string>> metadata) {
  return NoThrow([&]() -> absl::StatusOr<SafetensorsLayout> {
    std::vector<std::string_view> names, keys;
    for (const SafetensorsTensor& tensor : tensors) names.push_back(tensor.name);
    for (const auto& [key, value] : metadata) keys.push_back(key);
    for (auto* list : {&names, &keys}) {
      RETURN_IF_ERROR(CheckUnique(std::move(*list)));
    }
    return LayOut(tensors, metadata);
  });
}

std::vector<std::pair<size_t, size_t>> SplitIntoFiles(absl::Span<const int64_t> sizes, int64_t most) {
  std::vector<std::pair<size_t, size_t>> files;
  int64_t used = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const std::optional<int64_t> with = CheckedAdd(used, sizes[i]);
    const bool fits = !files.empty() && with && *with <= most;
    if (fits) {
      files.back().second = i + 1;
      used = *with;
    } else {
      files.emplace_back(i, i + 1);
      used = sizes[i];
    }
  }
  return files;
}

std::string SafetensorsFileName(std::string_view stem, int64_t index, int64_t count) {
  if (count == 1) return absl::StrCat(status::View(stem), ".safetensors");
  return absl::StrFormat("%s-%05d-of-%05d.safetensors", status::View(stem), index + 1, count);
}

std::string SafetensorsIndexName(std::string_view stem) {
  return absl::StrCat(status::View(stem), ".safetensors.index.json");
}

absl::StatusOr<std::string> SafetensorsIndex(absl::Span<const std::pair<std::string, std::string>> files,
                                             int64_t total_bytes) {
  return NoThrow([&]() -> absl::StatusOr<std::string> {
    nlohmann::json index;  // its objects are sorted
    index["metadata"]["total_size"] = total_bytes;
    nlohmann::json& map = index["weight_map"] = nlohmann::json::object();
    for (const auto& [name, file] : files) {
      if (!map.emplace(name, file).second) {
        return absl::InvalidArgumentError(absl::StrCat("the name ", io::Shown(name), " appears twice"));
      }
    }
    return index.dump(2) + "\n";
  });
}

}  // namespace reshard::safetensors
