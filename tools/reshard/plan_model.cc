// reshard plan MODEL --mesh MESH --from RULES --to RULES: plans all tensors of a model as one schedule.
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "reshard/checkpoint/model.h"
#include "reshard/planner/option_text.h"
#include "tools/reshard/commands.h"
#include "tools/reshard/exit_code.h"

namespace reshard::tool {
namespace {

// A file of rules, which has its own mesh; a layout rule; or schemes.
absl::StatusOr<ModelLayout> ReadModelLayout(std::string_view flag, const std::string& text,
                                            const std::string& mesh_text, const std::vector<ModelTensor>& model) {
  std::error_code none;
  if (absl::EndsWith(text, ".json") || std::filesystem::is_regular_file(text, none)) {
    const absl::StatusOr<std::string> content = ReadFile(text);
    if (!content.ok()) return Named(flag, content.status());
    absl::StatusOr<LayoutRules> rules = LayoutRules::Parse(*content);
    if (!rules.ok()) return Named(absl::StrCat(std::string(flag), " ", Clipped(text)), rules.status());
    return ModelLayout::Of(*std::move(rules));
  }
  if (mesh_text.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(flag), " ", Clipped(text), " needs --mesh, like {dp:4,tp:8}"));
  }
  absl::StatusOr<Mesh> mesh = ReadNamedMesh("mesh", mesh_text);
  if (!mesh.ok()) return mesh.status();
  absl::StatusOr<ModelLayout> layout = ModelLayout::Parse(text, *mesh, model);
  if (!layout.ok()) return Named(flag, layout.status());
  return layout;
}

}  // namespace

int PlanModel(const std::string& path, const ModelFlags& model_flags, DType dtype, const ScheduleFlags& flags) {
  if (model_flags.from.empty() || model_flags.to.empty()) {
    return Fail(kUsage,
                "a model needs --from and --to: a file of rules, one layout for all tensors such as '[<dp>, ...]', or "
                "schemes such as fsdp, tp:llama or fsdp+tp:llama");
  }
  const absl::StatusOr<std::vector<ModelTensor>> model = ReadModel(path, dtype);
  if (!model.ok()) return FailCheckpoint(model.status());
  const auto source = ReadModelLayout("--from", model_flags.from, model_flags.mesh, *model);
  if (!source.ok()) return Fail(source.status(), Stage::kInput);
  const std::string& target_mesh = model_flags.to_mesh.empty() ? model_flags.mesh : model_flags.to_mesh;
  const auto target = ReadModelLayout("--to", model_flags.to, target_mesh, *model);
  if (!target.ok()) return Fail(target.status(), Stage::kInput);
  absl::StatusOr<std::vector<Problem>> problems = ModelProblems(*model, *source, *target);
  if (!problems.ok()) return Fail(problems.status(), Stage::kInput);
  std::vector<std::string> names;
  for (const ModelTensor& tensor : *model) names.push_back(tensor.name);
  return PlanSchedule(*std::move(problems), {names, names, {}}, flags);
}

}  // namespace reshard::tool
