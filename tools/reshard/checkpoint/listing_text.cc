#include "tools/reshard/checkpoint/listing_text.h"

// The text of `reshard inspect`: the names as a tree, with one line per tensor, in columns.
//
//   model
//     embed.weight  bf16  [21, 8]  2 chunks  row blocks of 11  336 B  2 files
//     proj.weight   f32   [8, 14]  2 chunks  column blocks of 7  448 B  2 files
//
// A recorded layout replaces the blocks: "[<dp>21, 8] over {dp:2}".
#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "reshard/checkpoint/describe.h"
#include "reshard/planner/units.h"
#include "tools/reshard/printable.h"

namespace reshard::tool {
namespace {

// One step of a name: numbers sort first, by value, so that layer 10 follows layer 9.
struct Step {
  bool is_text = false;
  int64_t number = 0;
  std::string text;
  auto operator<=>(const Step&) const = default;  // NOLINT(modernize-use-nullptr): taken for a 0
};

Step StepOf(std::string_view text) {
  constexpr size_t kMostDigits = 18;
  const bool digits = !text.empty() && text.size() <= kMostDigits && (text[0] != '0' || text.size() == 1) &&
                      text.find_first_not_of("0123456789") == text.npos;
  if (!digits) return {.is_text = true, .number = 0, .text = std::string(text)};
  Step step;
  for (const char c : text) step.number = 10 * step.number + (c - '0');
  return step;
}

// A name with more steps ends with the rest as one step, so that the cost of a name made of dots is linear in its
// length.
constexpr size_t kMostSteps = 64;

std::vector<Step> StepsOf(const Catalog& catalog, std::string_view name) {
  std::vector<Step> steps;
  const std::vector<Catalog::PathStep>* path = catalog.PathOf(name);
  if (path != nullptr && !path->empty() && path->size() <= kMostSteps) {
    for (const Catalog::PathStep& step : *path) {
      if (const int64_t* index = std::get_if<int64_t>(&step)) {
        steps.push_back({.is_text = false, .number = *index, .text = {}});
      } else {
        steps.push_back({.is_text = true, .number = 0, .text = std::get<std::string>(step)});
      }
    }
    return steps;
  }
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = steps.size() + 1 < kMostSteps ? std::min(name.find('.', begin), name.size()) : name.size();
    steps.push_back(StepOf(name.substr(begin, end - begin)));
    begin = end + 1;
  }
  return steps;
}

std::string LabelOf(const std::vector<Step>& steps, size_t from, size_t to) {
  std::string name;
  for (size_t i = from; i < to; ++i) {
    absl::StrAppend(&name, i == from ? "" : ".", steps[i].is_text ? steps[i].text : absl::StrCat(steps[i].number));
  }
  const bool bare = !name.empty() && name.find(' ') == name.npos && name.find('"') == name.npos;
  if (bare) return Printable(name);
  return absl::StrCat("\"", absl::StrReplaceAll(Printable(name), {{"\"", "\\\""}}), "\"");
}

// Number of UTF-8 characters, which is the width if all are equally wide.
size_t Width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

struct Leaf {
  std::vector<Step> steps;
  const Catalog::Tensor* tensor = nullptr;  // or
  const Catalog::ByteItem* item = nullptr;
};

struct Line {
  static constexpr size_t kColumns = 7;
  std::array<std::string, kColumns> cells;  // the first with its indentation; a group has no others
  std::vector<std::string> below;           // chunks
};

class Tree {
 public:
  Tree(const Listing& listing, bool with_chunks)
      : listing_(listing), catalog_(*listing.catalog), with_chunks_(with_chunks) {
    for (const auto* tensor : listing.tensors) leaves_.push_back({StepsOf(catalog_, tensor->name), tensor, nullptr});
    for (const auto* item : listing.byte_items) leaves_.push_back({StepsOf(catalog_, item->name), nullptr, item});
    std::stable_sort(leaves_.begin(), leaves_.end(), [](const Leaf& a, const Leaf& b) { return a.steps < b.steps; });
  }

  // A depth-first walk. Steps without a branch between them share a line.
  std::vector<Line> Lines() const {
    std::vector<Line> lines;
    std::vector<Branch> open;
    if (!leaves_.empty()) open.push_back({0, leaves_.size(), 0, 0});
    while (!open.empty()) {
      Branch branch = open.back();
      open.pop_back();
      const std::vector<Step>& first = leaves_[branch.begin].steps;
      const std::vector<Step>& last = leaves_[branch.end - 1].steps;
      size_t common = branch.depth;
      while (common < std::min(first.size(), last.size()) && first[common] == last[common]) ++common;
      if (common > branch.depth || branch.end - branch.begin == 1) {
        const std::string label = LabelOf(first, branch.depth, common);
        if (first.size() > common) lines.push_back(Group(label, branch.indent));
        // Leaves that end here; the others continue below them.
        while (branch.begin < branch.end && leaves_[branch.begin].steps.size() == common) {
          lines.push_back(Row(label, branch.indent, leaves_[branch.begin++]));
        }
        ++branch.indent;
      }
      const size_t after = open.size();
      while (branch.begin < branch.end) {
        size_t next = branch.begin + 1;
        while (next < branch.end && leaves_[next].steps[common] == leaves_[branch.begin].steps[common]) ++next;
        open.push_back({branch.begin, next, common, branch.indent});
        branch.begin = next;
      }
      std::reverse(open.begin() + static_cast<std::ptrdiff_t>(after), open.end());
    }
    return lines;
  }

 private:
  // Leaves that have their first `depth` steps in common.
  struct Branch {
    size_t begin, end;
    size_t depth;
    size_t indent;
  };

  static std::string Indented(size_t indent, const std::string& label) { return std::string(2 * indent, ' ') + label; }

  static Line Group(const std::string& label, size_t indent) { return {{Indented(indent, label)}, {}}; }

  Line Row(const std::string& label, size_t indent, const Leaf& leaf) const {
    Line line = Group(label, indent);
    if (leaf.item != nullptr) {
      line.cells[1] = "bytes";
      line.cells[5] = HumanBytes(leaf.item->place.length);
      line.cells[6] = "1 file";
      return line;
    }
    const Catalog::Tensor& tensor = *leaf.tensor;
    std::set<int32_t> files;
    for (int64_t i = 0; i < tensor.num_chunks; ++i) {
      const Catalog::Chunk chunk = catalog_.chunk(tensor, i);
      files.insert(chunk.place.file);
      if (with_chunks_) line.below.push_back(Indented(indent + 1, ChunkText(chunk)));
    }
    line.cells[1] = Printable(DTypeText(tensor));
    line.cells[2] = absl::StrCat("[", absl::StrJoin(tensor.shape, ", "), "]");
    line.cells[3] = Counted(tensor.num_chunks, "chunk");
    const RecordedLayout* const recorded = LayoutOf(listing_, tensor);
    line.cells[4] = recorded == nullptr
                        ? DescribeChunks(catalog_, tensor)
                        : absl::StrCat(Printable(recorded->layout), " over ", Printable(recorded->mesh));
    line.cells[5] = HumanBytes(catalog_.BytesOf(tensor));
    line.cells[6] = Counted(static_cast<int64_t>(files.size()), "file");
    return line;
  }

  std::string ChunkText(const Catalog::Chunk& chunk) const {
    return absl::StrCat("at [", absl::StrJoin(chunk.offset, ", "), "] size [", absl::StrJoin(chunk.size, ", "),
                        "]: ", Printable(catalog_.files()[chunk.place.file].path), ", ", chunk.place.length,
                        " bytes from ", chunk.place.at);
  }

  const Listing& listing_;
  const Catalog& catalog_;
  const bool with_chunks_;
  std::vector<Leaf> leaves_;  // sorted
};

// What belongs to the checkpoint besides tensors and byte items.
std::string BesideText(const Listing& listing) {
  std::vector<std::string> attributes, files, left;
  for (const Catalog::Attribute* const attribute : listing.attributes) {
    const std::string what = attribute->of_files            ? " (describes its files)"
                             : attribute->is_opaque_value() ? absl::StrCat(" (", Printable(attribute->kind), ")")
                             : attribute->pickle.empty()    ? " (not plain data)"
                                                            : "";
    attributes.push_back(absl::StrCat(Printable(attribute->name), what));
  }
  for (const AuxiliaryFile& file : listing.beside.carried) {
    files.push_back(absl::StrCat(Printable(file.path), file.may_run ? " (loading it runs code)" : ""));
  }
  for (const std::string& path : listing.beside.left) left.push_back(Printable(path));
  std::string out;
  const auto line = [&](const char* head, std::vector<std::string> words) {
    constexpr size_t kShown = 12;  // --json has all
    if (words.empty()) return;
    const size_t more = words.size() - std::min(words.size(), kShown);
    words.resize(words.size() - more);
    absl::StrAppend(&out, head, absl::StrJoin(words, ", "), more > 0 ? absl::StrCat(" and ", more, " more") : "", "\n");
  };
  line("attributes: ", std::move(attributes));
  line("auxiliary files: ", std::move(files));
  line("beside it: ", std::move(left));
  return out;
}

}  // namespace

std::string ListingText(const Listing& listing, bool with_chunks) {
  constexpr size_t kWidest = 60;  // a longer cell only moves the rest of its own line
  const std::vector<Line> lines = Tree(listing, with_chunks).Lines();
  std::array<size_t, Line::kColumns> widths{};
  for (const Line& line : lines) {
    if (line.cells[1].empty()) continue;
    for (size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], std::min(Width(line.cells[i]), kWidest));
  }
  std::string out;
  for (const Line& line : lines) {
    std::string text;
    for (size_t i = 0; i < widths.size(); ++i) {
      text += line.cells[i];
      text += std::string(widths[i] - std::min(widths[i], Width(line.cells[i])) + 2, ' ');
    }
    text.erase(text.find_last_not_of(' ') + 1);
    absl::StrAppend(&out, text, "\n");
    for (const std::string& below : line.below) absl::StrAppend(&out, below, "\n");
  }
  absl::StrAppend(&out, Counted(listing.totals.tensors, "tensor"), ", ", Counted(listing.totals.chunks, "chunk"), ", ",
                  HumanBytes(listing.totals.bytes));
  if (!listing.byte_items.empty()) {
    absl::StrAppend(&out, "; ", Counted(static_cast<int64_t>(listing.byte_items.size()), "byte item"), ", ",
                    HumanBytes(listing.totals.item_bytes));
  }
  absl::StrAppend(&out, "; ", Counted(listing.totals.files, "file"), "\n");
  return out + BesideText(listing);
}

}  // namespace reshard::tool
