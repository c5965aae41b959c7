#include "tools/reshard/problem.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "reshard/checkpoint/filesystem.h"
#include "reshard/planner/option_text.h"

namespace reshard::tool {

absl::StatusOr<std::vector<int64_t>> ParseShape(std::string_view text) {
  std::vector<int64_t> out;
  const std::string copy(text);
  if (copy.empty()) return out;
  absl::string_view sizes = absl::StripAsciiWhitespace(copy);
  // Also as Python prints shapes: (512, 128), [512, 128], and as people write them: 512x128.
  const auto in_brackets = [&](char open, char close) {
    return sizes.size() > 1 && sizes.front() == open && sizes.back() == close;
  };
  if (in_brackets('(', ')') || in_brackets('[', ']')) sizes = sizes.substr(1, sizes.size() - 2);
  if (absl::EndsWith(sizes, ",")) sizes.remove_suffix(1);
  for (absl::string_view part : absl::StrSplit(sizes, absl::ByAnyChar(",xX"))) {
    int64_t size = 0;
    part = absl::StripAsciiWhitespace(part);
    if (part.empty() || !std::all_of(part.begin(), part.end(), absl::ascii_isdigit) || !absl::SimpleAtoi(part, &size)) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", Clipped(copy), "\" is not a shape; write sizes like 512,128 or 512x128"));
    }
    out.push_back(size);
  }
  return out;
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  if (path.find("://") != std::string::npos) return ReadSmallFile(path);
  std::ifstream in(path, std::ios::binary);
  std::ostringstream content;
  if (in) content << in.rdbuf();
  if (!in || in.bad() || std::filesystem::is_directory(path))
    return absl::NotFoundError(absl::StrCat("cannot read ", path, ": ", std::strerror(errno)));
  return content.str();
}

absl::Status WriteFile(const std::string& path, std::string_view content) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  if (out) out.write(content.data(), static_cast<std::streamsize>(content.size()));
  if (out) out.close();
  if (!out) return absl::NotFoundError(absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
  return absl::OkStatus();
}

}  // namespace reshard::tool
