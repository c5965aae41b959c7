#include "checkpoint/formats/torch_save/dtensor.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "checkpoint/io/show.h"
#include "reshard/layout/checked.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard::torch_save {
namespace {

using Value = pickle::Pickle::Value;
using Kind = pickle::Pickle::Kind;

// No framework has more dimensions, of tensors or meshes, and no object here more attributes: what is shared among
// many tensors must not be long.
constexpr size_t kMost = 64;

// How a mesh dimension cuts the tensor.
struct Cut {
  size_t mesh_dim = 0;
  size_t dim = 0;            // of the tensor
  int64_t split_factor = 0;  // _StridedShard: how many parts it is cut into before; 0: a plain Shard
};

class DTensorReader {
 public:
  explicit DTensorReader(const Archive& archive) : archive_(archive), pickle_(archive.description()) {}

  // Arguments of _rebuild_from_type_v2: function, class, its arguments, state; those of the function, which is
  // _rebuild_wrapper_subclass: class, dtype, size, strides, offset, layout, device, requires_grad.
  absl::StatusOr<LocalPart> Read(Value dtensor) {
    const absl::Span<const Value> given = pickle_.Tuple(pickle_.Arguments(dtensor));
    const absl::Span<const Value> inner = pickle_.Tuple(given[2]);
    const std::optional<Value> spec = StateField(given[3], "_spec");
    const std::optional<Value> local = StateField(given[3], "_local_tensor");
    LocalPart part;
    if (inner.size() < 3 || !Ints(inner[2], &part.shape) || !spec || !local) {
      return archive_.Bad("a DTensor without size, spec and local tensor");
    }
    part.local = *local;
    const std::optional<Value> mesh = Field(*spec, "mesh");
    if (!mesh) return archive_.Bad("a DTensor without a mesh");
    RETURN_IF_ERROR(ReadMesh(*mesh));
    part.in_mesh = in_mesh_;
    if (!in_mesh_) return part;
    RETURN_IF_ERROR(ReadPlacements(*spec, part.shape.size()));
    ASSIGN_OR_RETURN(const std::vector<Cut> cuts, InOrder(*spec, part.shape.size()));
    part.offset.assign(part.shape.size(), 0);
    part.size = part.shape;
    for (const Cut& cut : cuts) {
      const int64_t parts = mesh_shape_[cut.mesh_dim];
      const int64_t size = part.size[cut.dim];
      if (size < 0) return archive_.Bad("a DTensor of the size ", io::Shown(part.shape));
      const int64_t each = size / parts + (size % parts != 0 ? 1 : 0);
      const int64_t index = coordinates_[cut.mesh_dim];
      const int64_t begin = each == 0 || index >= size / each + 1 ? size : std::min(index * each, size);
      part.offset[cut.dim] += begin;
      part.size[cut.dim] = std::min(each, size - begin);
    }
    return part;
  }

 private:
  // An attribute of an object, or an item of a dict.
  std::optional<Value> Field(Value object, std::string_view name) const {
    std::optional<Value> found;
    size_t looked = 0;
    if (!pickle_.HasItems(object)) return found;
    pickle_.ForEachItem(object, [&](Value key, Value value) {
      if (pickle_.IsText(key, name)) found = value;
      return ++looked < kMost;
    });
    return found;
  }

  // Of a state as copyreg makes it: the attributes, or two sets of them, those in slots apart.
  std::optional<Value> StateField(Value state, std::string_view name) const {
    if (pickle_.kind(state) != Kind::kTuple) return Field(state, name);
    for (const Value part : pickle_.Tuple(state).subspan(0, 2)) {
      if (const std::optional<Value> found = Field(part, name)) return found;
    }
    return std::nullopt;
  }

  bool Ints(Value v, std::vector<int64_t>* out) const {
    out->clear();
    if (pickle_.kind(v) != Kind::kTuple && pickle_.kind(v) != Kind::kList) return false;
    return pickle_.ForEach(v, [&](Value one) {
      const std::optional<int64_t> number = pickle_.Int(one);
      if (number) out->push_back(*number);
      return number.has_value() && out->size() <= kMost;
    });
  }

  // PyTorch's meshes have a layout since 2.9, before that a tensor of ranks; the rank's own place in all of them.
  absl::Status ReadMesh(Value mesh) {
    bool has_shape = false;
    if (const std::optional<Value> layout = Field(mesh, "_layout")) {
      const std::optional<Value> shape = Field(*layout, "shape");
      has_shape = shape && Ints(*shape, &mesh_shape_);
    } else if (const std::optional<Value> ranks = Field(mesh, "mesh"); ranks && pickle_.kind(*ranks) == Kind::kObject) {
      const absl::Span<const Value> given = pickle_.Tuple(pickle_.Arguments(*ranks));
      has_shape = given.size() > 2 && Ints(given[2], &mesh_shape_);
    }
    const std::optional<Value> place = Field(mesh, "_coordinate_on_dim");
    if (!has_shape || !place)
      return archive_.CannotRead("a device mesh that does not say its shape and the rank's place");
    in_mesh_ = pickle_.kind(*place) != Kind::kNone;
    if (!in_mesh_) return absl::OkStatus();
    bool fits = Ints(*place, &coordinates_) && coordinates_.size() == mesh_shape_.size();
    for (size_t d = 0; fits && d < mesh_shape_.size(); ++d) {
      fits = mesh_shape_[d] > 0 && coordinates_[d] >= 0 && coordinates_[d] < mesh_shape_[d];
    }
    if (fits) return absl::OkStatus();
    return archive_.Bad("a rank at ", io::Shown(coordinates_), " of a mesh of ", io::Shown(mesh_shape_));
  }

  absl::Status ReadPlacements(Value spec, size_t rank) {
    const std::optional<Value> placements = Field(spec, "placements");
    const bool is_list =
        placements && (pickle_.kind(*placements) == Kind::kTuple || pickle_.kind(*placements) == Kind::kList);
    if (!is_list) return archive_.Bad("a DTensor without placements");
    size_t count = 0;
    absl::Status status;
    pickle_.ForEach(*placements, [&](Value placement) {
      if (count < mesh_shape_.size()) status = ReadPlacement(placement, count, rank);
      return ++count <= mesh_shape_.size() && status.ok();
    });
    if (status.ok() && count != mesh_shape_.size()) {
      return archive_.Bad("placements that are not one for each dimension of a mesh of ", io::Shown(mesh_shape_));
    }
    return status;
  }

  absl::Status ReadPlacement(Value placement, size_t mesh_dim, size_t rank) {
    if (pickle_.kind(placement) != Kind::kObject || pickle_.kind(pickle_.Class(placement)) != Kind::kName) {
      return archive_.Bad("a placement that is no object");
    }
    const std::string_view name = pickle_.Name(pickle_.Class(placement));
    if (name == "Replicate") return absl::OkStatus();
    const bool strided = name == "_StridedShard";
    if (name != "Shard" && !strided) {
      return archive_.CannotRead("a DTensor with the placement ", io::Shown(name.substr(0, 100)));
    }
    const std::optional<Value> dim = Field(placement, "dim");
    const std::optional<int64_t> number = dim ? pickle_.Int(*dim) : std::nullopt;
    if (!number || *number < 0 || *number >= static_cast<int64_t>(rank)) {
      return archive_.Bad("a placement along a dimension that the tensor does not have");
    }
    Cut cut = {mesh_dim, static_cast<size_t>(*number), 0};
    if (strided) {
      const std::optional<Value> factor = Field(placement, "split_factor");
      cut.split_factor = factor ? pickle_.Int(*factor).value_or(0) : 0;
      if (cut.split_factor < 1) return archive_.Bad("a _StridedShard without a split factor");
    }
    cuts_.push_back(cut);
    return absl::OkStatus();
  }

  // The cuts in the order in which they are made.
  absl::StatusOr<std::vector<Cut>> InOrder(Value spec, size_t rank) const {
    const bool strided = std::any_of(cuts_.begin(), cuts_.end(), [](const Cut& cut) { return cut.split_factor != 0; });
    if (!strided) return ByShardOrder(spec);
    std::vector<Cut> all;
    for (size_t dim = 0; dim < rank; ++dim) {
      std::vector<Cut> ordered;
      for (size_t i = cuts_.size(); i-- > 0;) {
        if (cuts_[i].dim != dim) continue;
        // A plain cut comes before those of later mesh dimensions; a strided one behind as many as its factor says.
        std::optional<int64_t> before = 1;
        size_t at = 0;
        while (before && *before < cuts_[i].split_factor && at < ordered.size()) {
          before = CheckedMul(*before, mesh_shape_[ordered[at++].mesh_dim]);
        }
        if (cuts_[i].split_factor > 1 && before != cuts_[i].split_factor) {
          return archive_.CannotRead("a _StridedShard of factor ", cuts_[i].split_factor,
                                     ", which no other placement of the tensor explains");
        }
        ordered.insert(ordered.begin() + static_cast<std::ptrdiff_t>(at), cuts_[i]);
      }
      all.insert(all.end(), ordered.begin(), ordered.end());
    }
    return all;
  }

  // The spec of later versions may list, for some dimensions of the tensor, its mesh dimensions in order:
  // (ShardOrderEntry(dim, (mesh dims)), ...).
  absl::StatusOr<std::vector<Cut>> ByShardOrder(Value spec) const {
    const std::optional<Value> order = Field(spec, "shard_order");
    if (!order || pickle_.kind(*order) != Kind::kTuple || pickle_.Tuple(*order).size() > kMost) return cuts_;
    std::vector<size_t> when(mesh_shape_.size());
    for (size_t i = 0; i < when.size(); ++i) when[i] = i;
    for (const Value entry : pickle_.Tuple(*order)) {
      if (pickle_.kind(entry) != Kind::kObject) continue;
      const absl::Span<const Value> given = pickle_.Tuple(pickle_.Arguments(entry));
      std::vector<int64_t> dims;
      if (given.size() != 2 || !Ints(given[1], &dims)) return archive_.CannotRead("a shard order of another form");
      for (size_t i = 0; i < dims.size(); ++i) {
        if (dims[i] < 0 || dims[i] >= static_cast<int64_t>(when.size())) {
          return archive_.Bad("a shard order with a dimension that the mesh does not have");
        }
        when[static_cast<size_t>(dims[i])] = i;
      }
    }
    std::vector<Cut> cuts = cuts_;
    std::stable_sort(cuts.begin(), cuts.end(),
                     [&](const Cut& a, const Cut& b) { return when[a.mesh_dim] < when[b.mesh_dim]; });
    return cuts;
  }

  const Archive& archive_;
  const pickle::Pickle& pickle_;
  std::vector<int64_t> mesh_shape_;
  std::vector<int64_t> coordinates_;
  bool in_mesh_ = false;
  std::vector<Cut> cuts_;
};

}  // namespace

bool IsDTensor(const pickle::Pickle& description, Value value) {
  if (!description.IsObjectOf(value, pickle::Known::kRebuildFromType)) return false;
  const absl::Span<const Value> given = description.Tuple(description.Arguments(value));
  return given.size() == 4 && description.kind(given[0]) == Kind::kName &&
         description.known(given[0]) == pickle::Known::kRebuildWrapper && description.kind(given[1]) == Kind::kName &&
         description.Name(given[1]) == "DTensor" && description.kind(given[2]) == Kind::kTuple;
}

absl::StatusOr<LocalPart> ReadDTensor(const Archive& archive, Value dtensor) {
  return DTensorReader(archive).Read(dtensor);
}

}  // namespace reshard::torch_save
