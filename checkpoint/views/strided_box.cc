#include "checkpoint/views/strided_box.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "status/macros.h"

namespace reshard::views {
namespace {

using Loop = StridedBox::Loop;
using Loops = std::vector<Loop>;
using BoxVisitor = absl::FunctionRef<absl::Status(StridedBox box)>;

// Cuts a box along a dimension where parts that end at `ends` meet, and calls `visit` with the part and the box, whose
// indices count from the part's begin then.
absl::Status VisitParts(StridedBox box, size_t dim, const std::vector<int64_t>& ends,
                        absl::FunctionRef<absl::Status(size_t part, StridedBox box)> visit) {
  for (;;) {
    const auto part = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), box.at[dim]) - ends.begin());
    const int64_t end = ends[part], last = box.Last(dim);
    if (last < end) {
      if (part > 0) box.at[dim] -= ends[part - 1];
      return visit(part, std::move(box));
    }
    // The longest step crosses first; what the others add to it is `inner`.
    size_t longest = box.loops.size();
    for (size_t l = 0; l < box.loops.size(); ++l) {
      if (box.loops[l].dim != dim) continue;
      if (longest == box.loops.size() || box.loops[l].step > box.loops[longest].step) longest = l;
    }
    const Loop loop = box.loops[longest];
    const int64_t first_last = last - (loop.count - 1) * loop.step;  // the largest index in the first iteration
    const int64_t whole = first_last < end ? (end - 1 - first_last) / loop.step + 1 : 0;
    // Iterations that are whole in this part; or one that is not, in which a shorter step crosses.
    const int64_t taken = std::max<int64_t>(1, whole);
    StridedBox here = box;
    here.Narrow(longest, 0, taken);
    RETURN_IF_ERROR(VisitParts(std::move(here), dim, ends, visit));
    box.Narrow(longest, taken, loop.count - taken);
  }
}

// Dimensions of both sides of a reshape that have the same elements, as few as there can be.
struct Group {
  size_t new_begin = 0, new_end = 0;
  size_t old_begin = 0, old_end = 0;
};

std::vector<Group> GroupsOf(const std::vector<int64_t>& made, const std::vector<int64_t>& old) {
  std::vector<Group> groups;
  size_t n = 0, o = 0;
  while (n < made.size() || o < old.size()) {
    Group group{n, n, o, o};
    int64_t in_new = 1, in_old = 1;
    const auto take_new = [&] { in_new *= made[n++]; };
    const auto take_old = [&] { in_old *= old[o++]; };
    if (n < made.size()) take_new();
    if (o < old.size()) take_old();
    while (in_new != in_old) {
      if (in_new < in_old) {
        take_new();
      } else {
        take_old();
      }
    }
    // Dimensions of one index belong to what is before them.
    while (n < made.size() && made[n] == 1) take_new();
    while (o < old.size() && old[o] == 1) take_old();
    group.new_end = n;
    group.old_end = o;
    groups.push_back(group);
  }
  return groups;
}

// Turns a box of the reshaped tensor into boxes of the tensor before.
class Unfolding {
 public:
  Unfolding(const std::vector<int64_t>& made, const std::vector<int64_t>& old, BoxVisitor visit)
      : new_(made), old_(old), groups_(GroupsOf(made, old)), visit_(visit) {}

  absl::Status Run(const StridedBox& box) {
    StridedBox out;
    out.at.assign(old_.size(), 0);
    out.to = box.to;
    return OfGroup(0, box, std::move(out));
  }

 private:
  // Numbers of elements, row-major, within a group: those first + sum(i_l * step_l).
  struct Flat {
    int64_t first = 0;
    Loops loops;
  };

  absl::Status OfGroup(size_t g, const StridedBox& box, StridedBox out) {
    if (g == groups_.size()) return visit_(std::move(out));
    const Group& group = groups_[g];
    Flat flat;
    int64_t stride = 1;
    for (size_t d = group.new_end; d-- > group.new_begin;) {
      flat.first += box.at[d] * stride;
      for (Loop loop : box.loops) {
        if (loop.dim != d) continue;
        loop.step *= stride;
        flat.loops.push_back(loop);
      }
      stride *= new_[d];
    }
    return OfDim(group.old_begin, g, flat, box, std::move(out));
  }

  // `flat` counts within the dimensions of the group from d on.
  absl::Status OfDim(size_t d, size_t g, const Flat& flat, const StridedBox& box, StridedBox out) {
    const Group& group = groups_[g];
    if (d == group.old_end) return OfGroup(g + 1, box, std::move(out));
    int64_t inner = 1;  // elements of an index of d
    for (size_t k = d + 1; k < group.old_end; ++k) inner *= old_[k];
    return Split(flat, inner, std::move(out), [&](const Flat& outer, const Flat& rest, StridedBox with) {
      with.at[d] = outer.first;
      for (Loop loop : outer.loops) {
        loop.dim = d;
        with.loops.push_back(loop);
      }
      return OfDim(d + 1, g, rest, box, std::move(with));
    });
  }

  using FlatVisitor = absl::FunctionRef<absl::Status(const Flat& outer, const Flat& rest, StridedBox out)>;

  // Calls `visit` with quotients and remainders of the numbers by `inner`, in runs in which no remainder carries.
  static absl::Status Split(Flat flat, int64_t inner, StridedBox out, FlatVisitor visit) {
    for (;;) {
      Flat outer, rest;
      outer.first = flat.first / inner;
      rest.first = flat.first % inner;
      int64_t last = rest.first;  // the largest remainder, if nothing carries
      size_t longest = flat.loops.size();
      for (size_t l = 0; l < flat.loops.size(); ++l) {
        Loop loop = flat.loops[l];
        if (loop.step % inner == 0) {
          loop.step /= inner;
          outer.loops.push_back(loop);
          continue;
        }
        rest.loops.push_back(loop);
        last += (loop.count - 1) * loop.step;
        if (longest == flat.loops.size() || loop.step > flat.loops[longest].step) longest = l;
      }
      if (last < inner) return visit(outer, rest, std::move(out));
      const Loop loop = flat.loops[longest];
      const int64_t first_last = last - (loop.count - 1) * loop.step;  // the largest remainder in the first iteration
      const int64_t fits = first_last < inner ? (inner - 1 - first_last) / loop.step + 1 : 0;
      const int64_t period = inner / loop.step;
      int64_t taken = std::clamp<int64_t>(fits, 1, loop.count);
      Flat now = flat;
      if (fits >= period && inner % loop.step == 0 && loop.count >= 2 * period) {
        // As many whole periods as there are: one loop over them, and one within.
        taken = loop.count / period * period;
        now.loops[longest] = {loop.dim, loop.count / period, inner, period * loop.to};
        if (period > 1) now.loops.push_back({loop.dim, period, loop.step, loop.to});
      } else if (taken == 1) {
        now.loops.erase(now.loops.begin() + static_cast<ptrdiff_t>(longest));
      } else {
        now.loops[longest].count = taken;
      }
      RETURN_IF_ERROR(Split(std::move(now), inner, out, visit));
      if (taken == loop.count) return absl::OkStatus();
      flat.first += taken * loop.step;
      out.to += taken * loop.to;
      flat.loops[longest].count -= taken;
      if (flat.loops[longest].count == 1) flat.loops.erase(flat.loops.begin() + static_cast<ptrdiff_t>(longest));
    }
  }

  const std::vector<int64_t>& new_;
  const std::vector<int64_t>& old_;
  const std::vector<Group> groups_;
  const BoxVisitor visit_;
};

absl::Status Visit(const Node& node, StridedBox box, const Casts& casts, LeafVisitor visit) {
  switch (node.kind) {
    case Node::Kind::kTensor:
    case Node::Kind::kConstant:
    case Node::Kind::kDequantize:
      return visit(node, box, casts);
    case Node::Kind::kConcatenate:
      return VisitParts(std::move(box), node.dim, node.ends, [&](size_t part, StridedBox within) {
        return Visit(node.inputs[part], std::move(within), casts, visit);
      });
    case Node::Kind::kPermute: {
      std::vector<int64_t> at(box.at.size());
      for (size_t d = 0; d < at.size(); ++d) at[node.dims[d]] = box.at[d];
      box.at = std::move(at);
      for (Loop& loop : box.loops) loop.dim = node.dims[loop.dim];
      return Visit(node.inputs[0], std::move(box), casts, visit);
    }
    case Node::Kind::kReshape:
      return Unfolding(node.shape, node.inputs[0].shape,
                       [&](StridedBox before) { return Visit(node.inputs[0], std::move(before), casts, visit); })
          .Run(box);
    case Node::Kind::kSlice:
      box.at[node.dim] += node.begin;
      return Visit(node.inputs[0], std::move(box), casts, visit);
    case Node::Kind::kCast: {
      Casts more{node.dtype};
      more.insert(more.end(), casts.begin(), casts.end());
      return Visit(node.inputs[0], std::move(box), more, visit);
    }
  }
  return absl::OkStatus();
}

}  // namespace

StridedBox StridedBox::Of(absl::Span<const int64_t> offset, absl::Span<const int64_t> size) {
  assert(std::find(size.begin(), size.end(), 0) == size.end());
  StridedBox box;
  box.at.assign(offset.begin(), offset.end());
  int64_t to = 1;
  for (size_t d = size.size(); d-- > 0;) {
    if (size[d] > 1) box.loops.push_back({d, size[d], 1, to});
    to *= size[d];
  }
  return box;
}

void StridedBox::Narrow(size_t loop, int64_t first, int64_t count) {
  Loop& l = loops[loop];
  at[l.dim] += first * l.step;
  to += first * l.to;
  l.count = count;
  if (count == 1) loops.erase(loops.begin() + static_cast<ptrdiff_t>(loop));
}

int64_t StridedBox::Elements() const {
  int64_t elements = 1;
  for (const Loop& loop : loops) elements *= loop.count;
  return elements;
}

int64_t StridedBox::Last(size_t dim) const {
  int64_t last = at[dim];
  for (const Loop& loop : loops) {
    if (loop.dim == dim) last += (loop.count - 1) * loop.step;
  }
  return last;
}

absl::Status VisitLeaves(const Node& view, const StridedBox& box, LeafVisitor visit) {
  return Visit(view, box, {}, visit);
}

}  // namespace reshard::views
