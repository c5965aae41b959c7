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
#include "layout/cut.h"
#include "layout/notation/dtensor_placements.h"
#include "reshard/layout/layout.h"
#include "reshard/layout/mesh.h"
#include "reshard/layout/text.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard::torch_save {
namespace {

using Value = pickle::Pickle::Value;
using Kind = pickle::Pickle::Kind;

// No framework has more dimensions, of tensors or meshes, and no object here more attributes: what is shared among
// many tensors must not be long.
constexpr size_t kMost = 64;

using notation::DTensorPlacement;

class DTensorReader {
 public:
  DTensorReader(const Archive& archive, std::string_view name)
      : archive_(archive), pickle_(archive.description()), name_(io::Shown(name)) {}

  // Arguments of _rebuild_from_type_v2: function, class, its arguments, state; those of the function, which is
  // _rebuild_wrapper_subclass: class, dtype, size, strides, offset, layout, device, requires_grad.
  absl::StatusOr<LocalPart> Read(Value dtensor) {
    const absl::Span<const Value> given = pickle_.Tuple(pickle_.Arguments(dtensor));
    const absl::Span<const Value> inner = pickle_.Tuple(given[2]);
    const std::optional<Value> spec = StateField(given[3], "_spec");
    const std::optional<Value> local = StateField(given[3], "_local_tensor");
    LocalPart part;
    if (inner.size() < 3 || !Ints(inner[2], &part.shape) || !spec || !local) {
      return Bad("a DTensor without size, spec and local tensor");
    }
    part.local = *local;
    const std::optional<Value> mesh = Field(*spec, "mesh");
    if (!mesh) return Bad("a DTensor without a mesh");
    RETURN_IF_ERROR(ReadMesh(*mesh));
    part.in_mesh = in_mesh_;
    if (!in_mesh_) return part;
    RETURN_IF_ERROR(ReadPlacements(*spec, part.shape.size()));
    RETURN_IF_ERROR(ReadShardOrder(*spec));
    RETURN_IF_ERROR(PlacePart(&part));
    return part;
  }

 private:
  template <typename... Text>
  absl::Status Bad(const Text&... text) const {
    return archive_.Bad("tensor ", name_, ": ", text...);
  }
  template <typename... Text>
  absl::Status CannotRead(const Text&... text) const {
    return archive_.CannotRead("tensor ", name_, ": ", text...);
  }

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
    if (!has_shape || !place) return CannotRead("a device mesh that does not say its shape and the rank's place");
    in_mesh_ = pickle_.kind(*place) != Kind::kNone;
    if (!in_mesh_) return absl::OkStatus();
    bool fits = Ints(*place, &coordinates_) && coordinates_.size() == mesh_shape_.size();
    for (size_t d = 0; fits && d < mesh_shape_.size(); ++d) {
      fits = mesh_shape_[d] > 0 && coordinates_[d] >= 0 && coordinates_[d] < mesh_shape_[d];
    }
    if (fits) return absl::OkStatus();
    return Bad("a rank at ", io::Shown(coordinates_), " of a mesh of ", io::Shown(mesh_shape_));
  }

  absl::Status ReadPlacements(Value spec, size_t rank) {
    const std::optional<Value> placements = Field(spec, "placements");
    const bool is_list =
        placements && (pickle_.kind(*placements) == Kind::kTuple || pickle_.kind(*placements) == Kind::kList);
    if (!is_list) return Bad("a DTensor without placements");
    placements_.resize(mesh_shape_.size());
    size_t count = 0;
    absl::Status status;
    pickle_.ForEach(*placements, [&](Value placement) {
      if (count < mesh_shape_.size()) status = ReadPlacement(placement, count, rank);
      return ++count <= mesh_shape_.size() && status.ok();
    });
    if (status.ok() && count != mesh_shape_.size()) {
      return Bad("placements that are not one for each dimension of a mesh of ", io::Shown(mesh_shape_));
    }
    return status;
  }

  absl::Status ReadPlacement(Value placement, size_t mesh_dim, size_t rank) {
    if (pickle_.kind(placement) != Kind::kObject || pickle_.kind(pickle_.Class(placement)) != Kind::kName) {
      return Bad("a placement that is not an object");
    }
    const std::string_view name = pickle_.Name(pickle_.Class(placement));
    if (name == "Replicate") return absl::OkStatus();
    const bool strided = name == "_StridedShard";
    if (name != "Shard" && !strided) {
      return CannotRead("a DTensor with the placement ", io::Shown(name.substr(0, 100)));
    }
    const std::optional<Value> dim = Field(placement, "dim");
    const std::optional<int64_t> number = dim ? pickle_.Int(*dim) : std::nullopt;
    if (!number || *number < 0 || *number >= static_cast<int64_t>(rank)) {
      return Bad("a placement along a dimension that the tensor does not have");
    }
    DTensorPlacement& read = placements_[mesh_dim];
    read.kind = DTensorPlacement::Kind::kShard;
    read.dim = static_cast<size_t>(*number);
    if (strided) {
      const std::optional<Value> factor = Field(placement, "split_factor");
      read.split_factor = factor ? pickle_.Int(*factor).value_or(0) : 0;
      if (*read.split_factor < 1) return Bad("a _StridedShard without a split factor");
    }
    return absl::OkStatus();
  }

  // The spec of later versions may list, for some dimensions of the tensor, its mesh dimensions in order:
  // (ShardOrderEntry(dim, (mesh dims)), ...). Strided shards have such an order only where the spec says that their
  // factors say none.
  absl::Status ReadShardOrder(Value spec) {
    const bool strided = std::any_of(placements_.begin(), placements_.end(), [](const DTensorPlacement& placement) {
      return placement.split_factor.has_value();
    });
    if (strided) {
      const std::optional<Value> factors_say = Field(spec, "use_strided_shard_as_shard_order");
      if (!factors_say || pickle_.kind(*factors_say) == Kind::kNone || pickle_.IsTrue(*factors_say)) {
        return absl::OkStatus();
      }
    }
    const std::optional<Value> order = Field(spec, "shard_order");
    if (!order || pickle_.kind(*order) != Kind::kTuple || pickle_.Tuple(*order).size() > kMost) return absl::OkStatus();
    for (const Value entry : pickle_.Tuple(*order)) {
      if (pickle_.kind(entry) != Kind::kObject) continue;
      const absl::Span<const Value> given = pickle_.Tuple(pickle_.Arguments(entry));
      std::vector<int64_t> dims;
      if (given.size() != 2 || !Ints(given[1], &dims)) return CannotRead("a shard order of another form");
      for (size_t i = 0; i < dims.size(); ++i) {
        if (dims[i] < 0 || dims[i] >= static_cast<int64_t>(placements_.size())) {
          return Bad("a shard order with a dimension that the mesh does not have");
        }
        placements_[dims[i]].order = static_cast<int64_t>(i);
      }
    }
    return absl::OkStatus();
  }

  // The box that the placements give the rank.
  absl::Status PlacePart(LocalPart* part) const {
    std::vector<Mesh::Axis> axes;
    for (size_t i = 0; i < mesh_shape_.size(); ++i) axes.push_back({absl::StrCat("d", i), mesh_shape_[i]});
    const absl::StatusOr<Mesh> mesh = Mesh::Create(std::move(axes));
    if (!mesh.ok()) return CannotRead("a mesh of ", io::Shown(mesh_shape_), ": ", mesh.status().message());
    const absl::StatusOr<Layout> layout = notation::LayoutOfPlacements(placements_, *mesh, part->shape);
    if (!layout.ok()) {
      const absl::string_view why = layout.status().message();
      return absl::IsUnimplemented(layout.status()) ? CannotRead(why)
                                                    : Bad("a DTensor of the size ", io::Shown(part->shape), ": ", why);
    }
    int64_t position = 0;
    for (size_t i = 0; i < coordinates_.size(); ++i) position += coordinates_[i] * mesh->stride(static_cast<int>(i));
    for (int d = 0; d < layout->rank(); ++d) {
      const std::vector<const Factor*> factors = layout::EffectiveFactors(layout->dim(d));
      if (std::any_of(factors.begin(), factors.end(), [](const Factor* factor) { return !factor->has_axis(); })) {
        return CannotRead("its placements, ", ToString(*layout), ", give a rank several blocks of dimension ", d,
                          "; one is read of each file. Redistribute it to Shard placements before it is saved");
      }
      const std::vector<Interval> held = layout->Intervals(position, d);
      const Interval part_of_dim = held.empty() ? Interval{0, 0} : held[0];
      part->offset.push_back(part_of_dim.begin);
      part->size.push_back(part_of_dim.length());
    }
    return absl::OkStatus();
  }

  const Archive& archive_;
  const pickle::Pickle& pickle_;
  const std::string name_;  // of the tensor
  std::vector<int64_t> mesh_shape_;
  std::vector<int64_t> coordinates_;
  bool in_mesh_ = false;
  std::vector<DTensorPlacement> placements_;  // one per mesh dimension
};

}  // namespace

bool IsDTensor(const pickle::Pickle& description, Value value) {
  if (!description.IsObjectOf(value, pickle::Known::kRebuildFromType)) return false;
  const absl::Span<const Value> given = description.Tuple(description.Arguments(value));
  return given.size() == 4 && description.kind(given[0]) == Kind::kName &&
         description.known(given[0]) == pickle::Known::kRebuildWrapper && description.kind(given[1]) == Kind::kName &&
         description.Name(given[1]) == "DTensor" && description.kind(given[2]) == Kind::kTuple;
}

absl::StatusOr<LocalPart> ReadDTensor(const Archive& archive, std::string_view name, Value dtensor) {
  return DTensorReader(archive, name).Read(dtensor);
}

}  // namespace reshard::torch_save
