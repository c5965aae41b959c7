#include <cstdio>
#include <memory>

#include "reshard/layout/text.h"
#include "reshard/planner/planner.h"
#include "reshard/planner/report.h"

int main() {
  const auto mesh = reshard::ParseMesh("{X:4,Y:4,Z:16}");
  if (!mesh.ok()) return 1;
  const auto source = reshard::ParseLayout("[32<X,Y>512, 128]", *mesh);
  const auto target = reshard::ParseLayout("[32<Y,X>512, 128]", *mesh);
  if (!source.ok() || !target.ok()) return 1;
  const auto plan = reshard::MakePlan({*source, *target, reshard::DType::kBF16});
  if (!plan.ok()) {
    std::fprintf(stderr, "%s\n", plan.status().ToString().c_str());
    return 1;
  }
  const auto json = reshard::PlanToJson(*plan);
  if (!json.ok()) return 1;
  std::printf("%s\n", json->c_str());
  return plan->steps.size() == 1 && plan->steps[0].op == reshard::Op::kAllPermute ? 0 : 1;
}
