// torch.ops.reshard._recipe_views: what a recipe makes of tensors that exist only in running jobs.
// torch.ops.reshard._shards: which part of a tensor each device holds.
#include <ATen/core/List.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/catalog/catalog_builder.h"
#include "checkpoint/formats/dcp/format.h"
#include "checkpoint/views/apply.h"
#include "checkpoint/views/lower.h"
#include "checkpoint/views/strided_box.h"
#include "reshard/checkpoint/recipe.h"
#include "reshard/checkpoint/selection.h"
#include "reshard/layout/dtype.h"
#include "runtime/pytorch/layout_texts.h"
#include "runtime/pytorch/tensors.h"
#include "status/macros.h"
#include "status/no_throw.h"
#include "status/view.h"

namespace reshard {
namespace {

using TextList = c10::List<std::string>;

// Maximum number of boxes of one view; what needs more is a program, not a view.
constexpr int64_t kMostBoxes = int64_t{1} << 16;

absl::StatusOr<Catalog> CatalogOf(const TextList& names, const TextList& dtypes, at::IntArrayRef ranks,
                                  at::IntArrayRef sizes) {
  catalog::CatalogBuilder builder(dcp::kFormat, "");
  size_t at = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string& dtype = dtypes[i];
    const auto rank = static_cast<size_t>(ranks[i]);
    RETURN_IF_ERROR(builder.AddTensor(std::string(names[i]), dtype, FindDType(dtype),
                                      absl::MakeConstSpan(sizes.data() + at, rank), false));
    at += rank;
  }
  return std::move(builder).BuildUnstored();
}

// Boxes of tensors as JSON, column by column: the kinds that boxes share; then, for each box, its kind, its tensor, the
// element of the view where it begins, and the index in the tensor where it begins.
//
// Example: rows 2 and 3 of tensor 5, which is 8 x 4, and all of tensor 6, which is 2 x 4, one below the other:
//   [[[[], [[0, 2, 1, 4], [1, 4, 1, 1]]]], [0, 0], [5, 6], [0, 8], [2, 0, 0, 0]]
//   A kind is its casts and its loops, each [dimension, count, step, elements of the view].
class BoxTable {
 public:
  void Add(const views::StridedBox& box, const views::Casts& casts, int64_t tensor) {
    std::string kind = "[[";
    for (const DType cast : casts) absl::StrAppend(&kind, Comma(kind), "\"", status::View(Name(cast)), "\"");
    kind += "],[";
    for (const views::StridedBox::Loop& loop : box.loops) {
      absl::StrAppend(&kind, Comma(kind), "[", loop.dim, ",", loop.count, ",", loop.step, ",", loop.to, "]");
    }
    kind += "]]";
    const auto [known, fresh] = numbers_.emplace(std::move(kind), numbers_.size());
    if (fresh) absl::StrAppend(&kinds_, Comma(kinds_), known->first);
    absl::StrAppend(&kind_of_, Comma(kind_of_), known->second);
    absl::StrAppend(&tensor_of_, Comma(tensor_of_), tensor);
    absl::StrAppend(&to_, Comma(to_), box.to);
    for (const int64_t at : box.at) absl::StrAppend(&at_, Comma(at_), at);
  }
  std::string ToJson() const {
    return absl::StrCat(kinds_, "],", kind_of_, "],", tensor_of_, "],", to_, "],", at_, "]]");
  }

 private:
  static const char* Comma(const std::string& list) { return list.back() == '[' ? "" : ","; }

  std::string kinds_ = "[[", kind_of_ = "[", tensor_of_ = "[", to_ = "[", at_ = "[";
  absl::flat_hash_map<std::string, size_t> numbers_;  // of the kinds
};

// Maps the elements of a view, in its row-major order, to boxes of the tensors that they come from. `numbers` has the
// number of each tensor by its name.
absl::StatusOr<BoxTable> BoxesOf(const views::Node& view, const Catalog& catalog,
                                 const absl::flat_hash_map<std::string, int64_t>& numbers) {
  BoxTable boxes;
  if (std::find(view.shape.begin(), view.shape.end(), 0) != view.shape.end()) return boxes;
  int64_t count = 0;
  const auto visit = [&](const views::Node& leaf, const views::StridedBox& box,
                         const views::Casts& casts) -> absl::Status {
    if (leaf.kind == views::Node::Kind::kConstant) {
      return absl::UnimplementedError("padding: a constant cannot be moved from anywhere");
    }
    if (leaf.kind == views::Node::Kind::kDequantize) {
      return absl::UnimplementedError(
          "dequantize: elements are moved as they are, not multiplied; reshard.load and reshard convert can");
    }
    if (++count > kMostBoxes) {
      return absl::ResourceExhaustedError(absl::StrCat("it is made of more than ", kMostBoxes, " boxes"));
    }
    boxes.Add(box, casts, numbers.at(status::View(catalog.tensors()[leaf.tensor].stored_name)));
    return absl::OkStatus();
  };
  const std::vector<int64_t> offset(view.shape.size());
  RETURN_IF_ERROR(views::VisitLeaves(view, views::StridedBox::Of(offset, view.shape), visit));
  return boxes;
}

// The tensors that a recipe makes, as JSON, and the boxes of each.
using Made = std::tuple<std::string, std::vector<std::string>>;

absl::StatusOr<Made> RecipeViews(const TextList& names, const TextList& dtypes, at::IntArrayRef ranks,
                                 at::IntArrayRef sizes, const std::string& recipe_text) {
  if (dtypes.size() != names.size() || ranks.size() != names.size() ||
      std::accumulate(ranks.begin(), ranks.end(), int64_t{0}) != static_cast<int64_t>(sizes.size())) {
    return absl::InvalidArgumentError("names, dtypes and shapes differ in number");
  }
  ASSIGN_OR_RETURN(const Recipe recipe, Recipe::Parse(recipe_text));
  ASSIGN_OR_RETURN(Catalog all, CatalogOf(names, dtypes, ranks, sizes));
  ASSIGN_OR_RETURN(const Catalog stored, Select(std::move(all), recipe.selection));
  ASSIGN_OR_RETURN(const views::Applied applied, views::Apply(recipe, stored));
  absl::flat_hash_map<std::string, int64_t> numbers;
  for (size_t i = 0; i < names.size(); ++i) numbers.emplace(std::string(names[i]), static_cast<int64_t>(i));
  nlohmann::json tensors = nlohmann::json::array();
  std::vector<std::string> tables;
  for (size_t i = 0; i < applied.views.size(); ++i) {
    const Catalog::Tensor& made = applied.catalog.tensors()[i];
    const views::View& view = applied.views[i];
    if (!made.dtype) continue;  // of an unknown type; a request for it finds nothing
    const absl::StatusOr<BoxTable> boxes =
        BoxesOf(view.node ? *view.node : views::TensorNode(stored, view.stored), stored, numbers);
    if (!boxes.ok()) {
      return absl::Status(boxes.status().code(), absl::StrCat(status::View(made.name), ": ", boxes.status().message()));
    }
    tensors.push_back({{"name", std::string(made.name)},
                       {"shape", std::vector<int64_t>(made.shape.begin(), made.shape.end())},
                       {"text", view.text}});
    tables.push_back(boxes->ToJson());
  }
  return Made(tensors.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), std::move(tables));
}

Made RecipeViewsOp(const TextList& names, const TextList& dtypes, at::IntArrayRef ranks, at::IntArrayRef sizes,
                   c10::string_view recipe) {
  return pytorch::ValueOrThrow(status::NoThrow("applying a recipe", [&]() -> absl::StatusOr<Made> {
    return RecipeViews(names, dtypes, ranks, sizes, std::string(recipe));
  }));
}

// For each device of the mesh its id and then, for each dimension, how many intervals it holds and where they begin and
// end: {x:2}, [<x>8] gives 0, 1, 0, 4, 1, 1, 4, 8. Throws c10::ValueError: text that does not parse, values that are
// partial.
std::vector<int64_t> ShardsOp(c10::string_view mesh, c10::string_view text) {
  return pytorch::ValueOrThrow(status::NoThrow("reading a layout", [&]() -> absl::StatusOr<std::vector<int64_t>> {
    ASSIGN_OR_RETURN(const Layout layout, pytorch::LayoutOf(mesh, text));
    if (layout.partial()) {
      return absl::InvalidArgumentError(absl::StrCat(std::string(text), " is partial; only whole values are moved"));
    }
    std::vector<int64_t> shards;
    for (int64_t position = 0; position < layout.mesh().size(); ++position) {
      shards.push_back(layout.mesh().Device(position));
      for (int d = 0; d < layout.rank(); ++d) {
        const std::vector<Interval> intervals = layout.Intervals(position, d);
        shards.push_back(static_cast<int64_t>(intervals.size()));
        for (const Interval& interval : intervals) {
          shards.push_back(interval.begin);
          shards.push_back(interval.end);
        }
      }
    }
    return shards;
  }));
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(reshard, library) {
  library.def("_recipe_views(str[] names, str[] dtypes, int[] ranks, int[] sizes, str recipe) -> (str, str[])",
              RecipeViewsOp);
  library.def("_shards(str mesh, str layout) -> int[]", ShardsOp);
}

}  // namespace reshard
