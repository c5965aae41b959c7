// Planning problems that the runtime's tests share.
#ifndef RESHARD_TESTS_RUNTIME_CASES_H_
#define RESHARD_TESTS_RUNTIME_CASES_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "reshard/layout/text.h"
#include "reshard/planner/planner.h"
#include "tests/layouts.h"

namespace reshard::testing {

inline constexpr DType kAllTypes[] = {
    DType::kBool,   DType::kI8,         DType::kI16,        DType::kI32,  DType::kI64, DType::kU8,  DType::kU16,
    DType::kU32,    DType::kU64,        DType::kF16,        DType::kBF16, DType::kF32, DType::kF64, DType::kF8E4M3FN,
    DType::kF8E5M2, DType::kF8E4M3FNUZ, DType::kF8E5M2FNUZ, DType::kC64,  DType::kC128};

struct Case {
  std::string mesh;
  std::string from;
  std::string to;
  std::string target_mesh = "";  // empty: the same
};

inline absl::StatusOr<Plan> PlanOf(const Case& c, DType dtype = DType::kF32, const PlanOptions& options = {}) {
  const auto mesh = MeshOf(c.mesh);
  const auto target_mesh = c.target_mesh.empty() ? mesh : MeshOf(c.target_mesh);
  absl::StatusOr<Layout> from = ParseLayout(c.from, mesh);
  if (!from.ok()) return from.status();
  absl::StatusOr<Layout> to = ParseLayout(c.to, target_mesh);
  if (!to.ok()) return to.status();
  return MakePlan({*from, *to, dtype}, options);
}

inline const Case kMoves[] = {
    {"{X:4,Y:4,Z:2}", "[8<X,Y>128, 32]", "[8<Y,X>128, 32]"},
    {"{X:4,Y:4,Z:2}", "[32<Y>128, 8<X>32]", "[32<X>128, 8<Y>32]"},
    {"{X:2}", "[<X>6, 8]", "[6, <X>8]"},
    {"{X:4}", "[<X>16]", "[16]"},
    {"{X:4}", "[16]", "[<X>16]"},
    {"{x:2,y:3}", "[<x>6]", "[<y>6]"},
    {"{X:4}", "[<X>6]", "[6]"},           // 2,2,2,0
    {"{X:4}", "[<X>2, 5]", "[2, <X>5]"},  // ranks with nothing on both sides
    {"{X:2,Y:4}", "[<X,Y>7, 3]", "[7, <Y>3]"},
    {"{X:2}", "[<2,X>5]", "[<X>5]"},
    {"{X:4}", "[<2,~X>16, 3]", "[<X>16, 3]"},  // zigzag
    {"{X:4}", "[<X>16, 3]", "[<2,~X>16, 3]"},
    {"{X:4}", "[<2,~X>13]", "[13]"},              // uneven zigzag
    {"{X:3}", "[<4,X>100, 2]", "[<X>100, 2]"},    // block-cyclic, uneven
    {"{X:3}", "[<X=[5,0,2]>7, 2]", "[7, <X>2]"},  // explicit sizes with an empty shard
    {"{X:4}", "[<X:(1)2>8]", "[<X:(2)2>8]"},
    {"{X:4,Y:2}", "[<X:(2)2,Y>16, 4]", "[16, <X>4]"},
    {"{X:4}", "[<X=[9,0,20,6]>(5, 7)]", "[<X>5, 7]"},            // a flattened dimension, cut anywhere
    {"{X:2,Y:2}", "[<X=[9,5]>(7, <Y>4), 3]", "[7, <X,Y>4, 3]"},  // cut before it is flattened
    {"{X:2,Y:2}", "[<X>(7, <Y>4), 3]", "[(7, <Y>4), 3]"},        // an all-gather of such a one
    {"{X:2,Y:2}", "[<X>4, <Y>4, 3]", "[4, <X>4, <Y>3]"},
    {"{X:4}", "[]", "[]"},
    {"{X:2}", "[0]", "[<X>0]"},
    {"{X:2}", "[<X>0, 4]", "[0, <X>4]"},
    {"{X:4}", "[1]", "[<X>1]"},
    {"{}", "[5, 4]", "[5, 4]"},
    {"{X:2}@[3,1]", "[<X>8]", "[8]"},
    // Other meshes: disjoint, overlapping, single devices, gaps between ids.
    {"{X:4}", "[<X>12]", "[<Y>12]", "{Y:3}@4"},
    {"{X:4}", "[<X>12, 2]", "[12, <Y>2]", "{Y:2}@2"},
    {"{X:3}", "[<X>9]", "[9]", "{}"},
    {"{}", "[9]", "[<X>9]", "{X:3}@1"},
    {"{}", "[]", "[]", "{X:3}@1"},
    {"{X:2}@[7,1000000000]", "[<X>10, 3]", "[10, <X>3]", "{X:2}@[1000000000,5]"},
    {"{X:4,Y:2}", "[<X>8, <Y>6]", "[<T>8, 6]", "{T:2}@8"},
    {"{X:8}", "[<X>8, 8]", "[8, <Y>8]", "{Y:4,Z:2}"},
};

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_RUNTIME_CASES_H_
