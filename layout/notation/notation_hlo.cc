// HLO: {devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}, {devices=[2,2]0,2,1,3}, {replicated}, {maximal
// device=3}.
//
// The device numbers of an HLO sharding are logical: number i is the device at position i of the mesh. Tile dimensions
// list the devices row-major; `<=[r..]T(p..)` means iota(N).reshape(r).transpose(p).reshape(tile dimensions).
#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "layout/axes.h"
#include "layout/draft.h"
#include "layout/notation/foreign.h"
#include "layout/notation/hlo_devices.h"
#include "reshard/layout/checked.h"
#include "status/macros.h"

namespace reshard::notation {
namespace {

constexpr std::string_view kHlo = "HLO";

// What a tile dimension behind those of the tensor means.
enum class Meaning { kReplicated, kUnreduced, kManual };

class HloReader {
 public:
  HloReader(std::string_view text, const Mesh& mesh, const Shape& shape)
      : in_(text), mesh_(mesh), shape_(shape), draft_(shape) {}

  absl::StatusOr<Layout> Read() {
    RETURN_IF_ERROR(in_.Expect('{'));
    const size_t column = in_.column();
    if (in_.Peek() == '{') return in_.Unsupported(column, "a tuple of shardings; give them one by one");
    if (in_.TakeWord("devices")) {
      RETURN_IF_ERROR(ReadTiles(column));
    } else if (in_.TakeWord("maximal")) {
      RETURN_IF_ERROR(ReadMaximal());
    } else if (in_.TakeWord("unreduced")) {
      for (int axis = 0; axis < mesh_.num_axes(); ++axis) {
        draft_.partial.push_back({{axis, 1, mesh_.axis(axis).size}, column});
      }
    } else if (in_.TakeWord("manual") || in_.TakeWord("unknown")) {
      return in_.Unsupported(column, "this sharding does not say who holds what");
    } else if (!in_.TakeWord("replicated")) {
      return in_.Expected("devices, replicated or maximal");
    }
    RETURN_IF_ERROR(in_.Expect('}'));
    RETURN_IF_ERROR(in_.ExpectEnd());
    absl::StatusOr<Layout> layout = draft_.Build(in_, mesh_);
    if (!layout.ok()) return layout;
    RETURN_IF_ERROR(CheckCutInOneGo(in_, *layout, kHlo));
    return layout;
  }

 private:
  absl::Status ReadMaximal() {
    if (!in_.TakeWord("device")) return in_.Expected("device");
    RETURN_IF_ERROR(in_.Expect('='));
    const size_t column = in_.column();
    const absl::StatusOr<int64_t> device = in_.Int("a device");
    if (!device.ok()) return device.status();
    if (mesh_.size() == 1 && mesh_.Device(0) == *device) return absl::OkStatus();
    return in_.Unsupported(
        column, absl::StrCat("one device that holds everything needs a mesh of just that device, {}@", *device));
  }

  // devices=[tiles] <=[reshape]T(transpose) or a list of numbers, then what the last tile dimensions mean.
  absl::Status ReadTiles(size_t column) {
    RETURN_IF_ERROR(in_.Expect('='));
    std::vector<int64_t> tiles;
    RETURN_IF_ERROR(ReadList('[', ']', &tiles));
    RETURN_IF_ERROR(CheckProduct(column, tiles, "the tile dimensions"));
    const size_t devices_at = in_.column();
    HloDevices devices;
    std::vector<int64_t> ids;
    if (in_.Take("<=")) {
      RETURN_IF_ERROR(ReadIota(&devices));
    } else
      RETURN_IF_ERROR(ReadIds(&ids));
    std::vector<Meaning> meanings;
    RETURN_IF_ERROR(ReadMeanings(&meanings));
    if (tiles.size() != shape_.size() + meanings.size()) {
      return in_.Error(
          column, absl::StrCat("there are ", tiles.size(), " tile dimensions for a tensor of ", shape_.size(),
                               " dimensions", meanings.empty() ? "" : " and ",
                               meanings.empty() ? "" : absl::StrCat(meanings.size()), meanings.empty() ? "" : " more"));
    }
    if (!ids.empty()) {
      // Within a replicated group the order means nothing, and sorting it finds the factors of any group that has some.
      if (meanings.size() == 1 && meanings[0] == Meaning::kReplicated) SortGroups(tiles.back(), &ids);
      if (!devices.FromIds(ids)) {
        return in_.Unsupported(devices_at, "this order of the devices is not a product of factors");
      }
    }
    return Assign(column, tiles, meanings, &devices);
  }

  // Gives every tile dimension the axes that its digits are.
  absl::Status Assign(size_t column, const std::vector<int64_t>& tiles, const std::vector<Meaning>& meanings,
                      HloDevices* devices) {
    for (size_t i = 0; i < tiles.size(); ++i) {
      const std::optional<std::vector<AxisRef>> refs = devices->Take(tiles[i], mesh_);
      if (!refs) {
        return in_.Unsupported(column, absl::StrCat("tile dimension ", i, " of ", tiles[i],
                                                    " shards is not a product of mesh axes or parts of them"));
      }
      for (const AxisRef& ref : *refs) {
        if (i < shape_.size()) {
          draft_.dims[i].Add(ref, column);
        } else if (meanings[i - shape_.size()] == Meaning::kUnreduced) {
          draft_.partial.push_back({ref, column});
        } else if (meanings[i - shape_.size()] == Meaning::kManual) {
          return in_.Unsupported(column, "a manual sharding does not say who holds what");
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadIota(HloDevices* devices) {
    const size_t column = in_.column();
    std::vector<int64_t> reshape;
    RETURN_IF_ERROR(ReadList('[', ']', &reshape));
    RETURN_IF_ERROR(CheckProduct(column, reshape, "the reshape"));
    std::vector<int64_t> transpose(reshape.size());
    std::iota(transpose.begin(), transpose.end(), 0);
    const size_t at = in_.column();
    if (in_.TakeWord("T")) {
      transpose.clear();
      RETURN_IF_ERROR(ReadList('(', ')', &transpose));
      std::vector<int64_t> sorted = transpose;
      std::sort(sorted.begin(), sorted.end());
      bool permutation = sorted.size() == reshape.size();
      for (size_t i = 0; i < sorted.size(); ++i) permutation = permutation && sorted[i] == static_cast<int64_t>(i);
      if (!permutation) {
        return in_.Error(at, absl::StrCat("the transpose is not a permutation of 0 to ", reshape.size() - 1));
      }
    }
    devices->FromIota(reshape, transpose);
    return absl::OkStatus();
  }

  absl::Status ReadIds(std::vector<int64_t>* ids) {
    std::vector<bool> seen(static_cast<size_t>(mesh_.size()));
    do {
      const size_t column = in_.column();
      ASSIGN_OR_RETURN(const int64_t id, in_.Int("'<=' or a list of devices"));
      if (id >= mesh_.size()) {
        return in_.Error(column, absl::StrCat("device ", id, " is outside a mesh of ", mesh_.size(), " devices"));
      }
      if (seen[id]) return in_.Error(column, absl::StrCat("device ", id, " appears twice"));
      seen[id] = true;
      ids->push_back(id);
    } while (in_.Take(','));
    if (static_cast<int64_t>(ids->size()) == mesh_.size()) return absl::OkStatus();
    return in_.Error(in_.column(), absl::StrCat("there are ", ids->size(), " devices but the mesh has ", mesh_.size()));
  }

  // last_tile_dim_replicate or last_tile_dims={..}.
  absl::Status ReadMeanings(std::vector<Meaning>* out) {
    if (in_.TakeWord("last_tile_dim_replicate")) {
      out->push_back(Meaning::kReplicated);
      return absl::OkStatus();
    }
    if (!in_.TakeWord("last_tile_dims")) return absl::OkStatus();
    RETURN_IF_ERROR(in_.Expect('='));
    RETURN_IF_ERROR(in_.Expect('{'));
    do {
      if (in_.TakeWord("replicated")) {
        out->push_back(Meaning::kReplicated);
      } else if (in_.TakeWord("unreduced")) {
        out->push_back(Meaning::kUnreduced);
      } else if (in_.TakeWord("manual")) {
        out->push_back(Meaning::kManual);
      } else {
        return in_.Expected("replicated, unreduced or manual");
      }
    } while (in_.Take(','));
    return in_.Expect('}');
  }

  absl::Status ReadList(char open, char close, std::vector<int64_t>* out) {
    RETURN_IF_ERROR(in_.Expect(open));
    do {
      ASSIGN_OR_RETURN(const int64_t value, in_.Int("a number"));
      out->push_back(value);
    } while (in_.Take(','));
    return in_.Expect(close);
  }

  absl::Status CheckProduct(size_t column, const std::vector<int64_t>& sizes, std::string_view what) {
    std::optional<int64_t> product = 1;
    for (const int64_t size : sizes) product = product && size > 0 ? CheckedMul(*product, size) : std::nullopt;
    if (product && *product == mesh_.size()) return absl::OkStatus();
    return in_.Error(column, absl::StrCat(std::string(what), " must multiply to ", mesh_.size(),
                                          ", the number of devices of the mesh"));
  }

  static void SortGroups(int64_t group, std::vector<int64_t>* ids) {
    for (auto at = ids->begin(); at != ids->end(); at += group) std::sort(at, at + group);
  }

  layout::Scanner in_;
  const Mesh& mesh_;
  const Shape& shape_;
  layout::LayoutDraft draft_;
};

}  // namespace

absl::StatusOr<Layout> ImportHlo(std::string_view text, const Mesh& mesh, const Shape& shape) {
  return HloReader(text, mesh, shape).Read();
}

absl::StatusOr<std::string> ExportHlo(const Layout& layout) {
  std::vector<AxisRef> order;  // of all parts of all axes, as the tile dimensions list them
  std::vector<int64_t> tiles;
  const auto add_tile = [&](const std::vector<AxisRef>& refs) {
    tiles.push_back(1);
    for (const AxisRef& ref : refs) tiles.back() *= ref.size;
    order.insert(order.end(), refs.begin(), refs.end());
  };
  for (int d = 0; d < layout.rank(); ++d) {
    ASSIGN_OR_RETURN(const std::vector<AxisRef> axes, OnlyAxes(layout, d, kHlo));
    add_tile(axes);
  }
  ASSIGN_OR_RETURN(const std::vector<AxisRef> sums, OnlySums(layout, kHlo));
  if (order.empty() && sums.empty()) return std::string("{replicated}");
  if (!sums.empty()) add_tile(sums);

  const std::vector<AxisRef> parts = AllParts(layout.mesh(), order);
  std::vector<AxisRef> rest;
  for (const AxisRef& part : parts) {
    if (std::find(order.begin(), order.end(), part) == order.end()) rest.push_back(part);
  }
  if (!rest.empty()) add_tile(rest);

  std::string out = absl::StrCat("{devices=[", absl::StrJoin(tiles, ","), "]<=", IotaText(parts, order));
  if (sums.empty()) {
    if (!rest.empty()) out += " last_tile_dim_replicate";
  } else {
    out += rest.empty() ? " last_tile_dims={unreduced}" : " last_tile_dims={unreduced, replicated}";
  }
  return out + "}";
}

}  // namespace reshard::notation
