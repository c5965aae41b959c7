#include "planner/page/layout_data.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "layout/cut.h"
#include "planner/report/blocks.h"
#include "planner/report/view.h"
#include "reshard/layout/text.h"

namespace reshard::page {
namespace {

using Json = nlohmann::ordered_json;

// Blocks along one of two dimensions that are both drawn, unless the other has so few that there is room for more.
constexpr size_t kBlocksAlong = 64;

constexpr size_t kSlotTextWidth = 60;

Json DigitsJson(const Layout& layout, int d) {
  Json out = Json::array();
  const Mesh& mesh = layout.mesh();
  for (const AxisRef& ref : layout.dim(d).Axes()) {
    if (ref.size == 1) continue;
    out.push_back({ref.size, mesh.axis(ref.axis).size / (ref.pre * ref.size) * mesh.stride(ref.axis)});
  }
  return out;
}

// "edges" has one entry more than "offsets"; block i is [edges[i], edges[i+1]).
Json DimJson(const Layout& layout, int d, size_t most_blocks) {
  Json out{{"size", layout.dim(d).size}, {"digits", DigitsJson(layout, d)}};
  if (layout.num_elements() == 0) return out;
  const report::DimBlocks along = report::BlocksOf(layout, d, std::max<size_t>(3, most_blocks));
  Json edges = Json::array({0}), offsets = Json::array();
  for (size_t i = 0; i < along.blocks.size(); ++i) {
    edges.push_back(along.blocks[i].interval.end);
    offsets.push_back(along.blocks[i].offset);
    if (along.blocks[i].elided) out["elided"] = i;
  }
  if (layout.slot_dim() == d) {
    // What the slots of each block hold, since its edges count slots.
    out["slots"] = Json::array();
    for (const report::Block& block : along.blocks) {
      out["slots"].push_back(block.elided ? "..."
                                          : report::Clip(report::SlotText(layout, d, block.offset), kSlotTextWidth));
    }
  }
  out["count"] = along.count;
  out["edges"] = std::move(edges);
  out["offsets"] = std::move(offsets);
  return out;
}

// How many blocks of each dimension to draw.
std::vector<size_t> Room(const Layout& layout, const std::vector<int>& drawn, size_t blocks) {
  std::vector<size_t> room(static_cast<size_t>(layout.rank()), std::min(blocks, kBlocksAlong));
  if (drawn.empty() || layout.num_elements() == 0) return room;
  for (size_t i = 0; i < drawn.size(); ++i) {
    size_t across = 1;
    if (drawn.size() == 2) across = report::BlocksOf(layout, drawn[1 - i], kBlocksAlong).blocks.size();
    room[drawn[i]] = std::max(std::min(blocks, kBlocksAlong), blocks / across);
  }
  return room;
}

Json MeshJson(const Mesh& mesh, int64_t devices) {
  Json axes = Json::array();
  for (int i = 0; i < mesh.num_axes(); ++i) axes.push_back({mesh.axis(i).name, mesh.axis(i).size, mesh.stride(i)});
  Json out{{"text", report::MeshText(mesh, 200)}, {"axes", std::move(axes)}, {"size", mesh.size()}};
  if (mesh.contiguous()) {
    out["first"] = mesh.first_device();
  } else {
    out["ids"] = Json::array();
    for (int64_t i = 0; i < std::min(mesh.size(), devices); ++i) out["ids"].push_back(mesh.Device(i));
  }
  return out;
}

}  // namespace

size_t LayoutTable::Add(const Layout& layout, const std::vector<int>& drawn) {
  const std::string text = ToString(layout);
  const auto [found, is_new] =
      index_.emplace(absl::StrCat(text, " ", ToString(layout.mesh()), " ", absl::StrJoin(drawn, ",")), texts_.size());
  if (!is_new) return found->second;
  Json out{
      {"text", text}, {"mesh", MeshJson(layout.mesh(), detail_.devices)}, {"shape", layout.shape()}, {"draw", drawn}};
  out["facts"] = {report::LocalSentence(layout), report::CopiesSentence(layout)};
  const std::string partial = report::PartialSentence(layout);
  if (!partial.empty()) out["facts"].push_back(partial);
  const std::vector<std::string> notes = report::Notes(layout, report::MakeView(layout, drawn, 16, 16));
  for (const std::string& note : notes) {
    if (note.find("are drawn") == std::string::npos || note.rfind("rank", 0) == 0) out["facts"].push_back(note);
  }
  out["dims"] = Json::array();
  const std::vector<size_t> room = Room(layout, drawn, detail_.blocks);
  for (int d = 0; d < layout.rank(); ++d) out["dims"].push_back(DimJson(layout, d, room[d]));
  texts_.push_back(out.dump(-1, ' ', false, Json::error_handler_t::replace));
  bytes_ += texts_.back().size() + 1;
  return found->second;
}

std::string LayoutTable::Text() const { return absl::StrCat("[", absl::StrJoin(texts_, ","), "]"); }

std::vector<int64_t> ListedDevices(const Mesh& from, const Mesh& to, const Detail& detail) {
  std::vector<int64_t> ids;
  for (const Mesh* mesh : {&from, &to}) {
    for (int64_t i = 0; i < std::min(mesh->size(), detail.devices); ++i) ids.push_back(mesh->Device(i));
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  if (static_cast<int64_t>(ids.size()) > detail.devices) ids.resize(detail.devices);
  return ids;
}

}  // namespace reshard::page
