#include "tests/layout/gen.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "reshard/layout/text.h"
#include "tests/property.h"

namespace reshard::testing {
namespace {

struct Cell {
  int64_t begin;
  int64_t end;
};

// A whole axis, or parts of it that are still free; each is used once.
std::vector<AxisRef> AnyRefs(const Mesh& mesh, const LayoutGen& gen) {
  std::vector<AxisRef> refs;
  for (int a = 0; a < mesh.num_axes(); ++a) {
    const int64_t size = mesh.axis(a).size;
    std::vector<int64_t> cuts;
    for (int64_t c = 2; c < size; ++c) {
      if (size % c == 0) cuts.push_back(c);
    }
    if (!gen.sub_axes || cuts.empty() || Draw(0, 2) > 0) {
      refs.push_back({a, 1, size});
      continue;
    }
    const int64_t cut = cuts[Draw(0, static_cast<int64_t>(cuts.size()) - 1)];
    refs.push_back({a, 1, cut});
    refs.push_back({a, cut, size / cut});
  }
  // Any order.
  for (size_t i = refs.size(); i > 1; --i) std::swap(refs[i - 1], refs[Draw(0, static_cast<int64_t>(i) - 1)]);
  return refs;
}

// Non-negative sizes with this sum.
std::vector<int64_t> AnySplit(int64_t sum, int64_t parts) {
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i + 1 < parts; ++i) {
    sizes.push_back(Draw(0, sum));
    sum -= sizes.back();
  }
  sizes.push_back(sum);
  return sizes;
}

}  // namespace

int64_t Draw(int64_t low, int64_t high) {
  // The whole range from the first case on; RapidCheck would begin with its lower end.
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<int64_t>(low, high + 1));
}

Mesh AnyMesh(const MeshGen& gen) {
  std::vector<Mesh::Axis> axes;
  const int64_t num_axes = Draw(0, gen.max_axes);
  int64_t devices = 1;
  for (int64_t a = 0; a < num_axes; ++a) {
    const int64_t size = gen.sizes[Draw(0, static_cast<int64_t>(gen.sizes.size()) - 1)];
    axes.push_back({std::string(1, static_cast<char>('A' + a)), size});
    devices *= size;
  }
  const int64_t ids = gen.other_ids ? Draw(0, 2) : 0;
  if (ids < 2) return *Mesh::Create(std::move(axes), ids == 0 ? 0 : Draw(0, 50));
  std::vector<int64_t> list;
  for (int64_t i = 0; i < devices; ++i) list.push_back(3 * i + 1);
  for (size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[Draw(0, static_cast<int64_t>(i) - 1)]);
  return *Mesh::Create(std::move(axes), std::move(list));
}

Layout AnyLayout(const Mesh& mesh, const LayoutGen& gen) {
  std::vector<DimLayout> dims(static_cast<size_t>(Draw(0, gen.max_rank)));
  Partial partial;
  partial.op = static_cast<ReduceOp>(Draw(0, 4));
  for (const AxisRef& ref : AnyRefs(mesh, gen)) {
    // Mostly a dimension, else the partial list or nowhere.
    if (dims.empty() || Draw(0, 3) == 0) {
      if (gen.partial && Draw(0, 1) == 0) partial.axes.push_back(ref);
      continue;
    }
    std::vector<Factor>& factors = dims[Draw(0, static_cast<int64_t>(dims.size()) - 1)].factors;
    if (gen.digits && Draw(0, 4) == 0) factors.push_back(Factor::Blocks(Draw(1, 4)));
    const bool whole = ref.size == mesh.axis(ref.axis).size;
    const bool reflected = gen.reflected && whole && Draw(0, 4) == 0;
    factors.push_back({reflected ? Factor::Kind::kReflected : Factor::Kind::kAxis, ref, Draw(0, 4) == 0, 1, {}, {}});
  }
  for (DimLayout& dim : dims) {
    int64_t product = 1;
    for (const Factor& factor : dim.factors) product *= factor.parts();
    dim.size = gen.even ? product * Draw(0, 3) : Draw(0, gen.max_size);
    // Explicit sizes stand first, where what they cut has one length.
    if (gen.sizes && !dim.factors.empty() && dim.factors[0].has_axis() &&
        dim.factors[0].axis.size == mesh.axis(dim.factors[0].axis.axis).size && Draw(0, 3) == 0) {
      dim.factors[0].kind = Factor::Kind::kSizes;
      dim.factors[0].sizes = AnySplit(dim.size, dim.factors[0].axis.size);
    }
  }
  absl::StatusOr<Layout> layout =
      Layout::Create(mesh, std::move(dims), partial.axes.empty() ? std::nullopt : std::optional<Partial>(partial));
  if (!layout.ok()) throw std::runtime_error("the generator made a bad layout: " + Message(layout.status()));
  return *std::move(layout);
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

std::string FirstLine(const absl::Status& status) {
  const std::string message = Message(status);
  return message.substr(0, message.find('\n'));
}

bool HoldsByDefinition(const Layout& layout, int64_t position, int d, int64_t index) {
  const Mesh& mesh = layout.mesh();
  std::vector<Cell> cells = {{0, layout.dim(d).size}};
  for (const Factor& factor : layout.dim(d).factors) {
    int64_t coordinate = 0;
    if (factor.has_axis()) {
      int64_t behind = 1;
      for (int a = factor.axis.axis + 1; a < mesh.num_axes(); ++a) behind *= mesh.axis(a).size;
      const int64_t size = mesh.axis(factor.axis.axis).size;
      coordinate = position / behind % size / (size / factor.axis.pre / factor.axis.size) % factor.axis.size;
    }
    const int64_t s = factor.kind == Factor::Kind::kBlocks ? factor.blocks : factor.axis.size;
    std::vector<Cell> next;
    for (size_t i = 0; i < cells.size(); ++i) {
      const int64_t m = cells[i].end - cells[i].begin;
      const int64_t c = (m + s - 1) / s;
      int64_t at = cells[i].begin;
      for (int64_t j = 0; j < s; ++j) {
        Cell chunk = {cells[i].begin + std::min(m, j * c), cells[i].begin + std::min(m, (j + 1) * c)};
        if (factor.kind == Factor::Kind::kSizes) chunk = {at, at + factor.sizes[j]};
        at = chunk.end;
        const int64_t wanted = factor.kind == Factor::Kind::kReflected && i % 2 == 1 ? s - 1 - coordinate : coordinate;
        if (factor.kind == Factor::Kind::kBlocks || j == wanted) next.push_back(chunk);
      }
    }
    cells = std::move(next);
  }
  return std::any_of(cells.begin(), cells.end(), [&](const Cell& c) { return c.begin <= index && index < c.end; });
}

}  // namespace reshard::testing
