// reshard show MESH LAYOUT: draws which device holds what.
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "reshard/planner/html.h"
#include "reshard/planner/report.h"
#include "tools/reshard/commands.h"
#include "tools/reshard/exit_code.h"

namespace reshard::tool {
namespace {

struct ShowCommand {
  std::string mesh, layout, shape, format = "reshard", svg, html;
  std::optional<int64_t> device;
};

int RunShow(const ShowCommand& state) {
  const auto notation = ParseNotation(state.format);
  if (!notation) return Fail(kUsage, absl::StrCat("--format: must be one of ", KnownNotations()));
  std::optional<std::vector<int64_t>> shape;
  if (!state.shape.empty()) {
    auto parsed = ParseShape(state.shape);
    if (!parsed.ok()) return Fail(kUsage, "--shape: " + std::string(parsed.status().message()));
    shape = *std::move(parsed);
  }
  if (state.device && *state.device < 0) return Fail(kUsage, "--device: a device id cannot be negative");
  auto mesh = ReadNamedMesh("mesh", state.mesh);
  if (!mesh.ok()) return Fail(mesh.status(), Stage::kInput);
  auto layout = ReadNamedLayout("layout", state.layout, *mesh, *notation, shape);
  if (!layout.ok()) return Fail(layout.status(), Stage::kInput);
  if (!state.svg.empty()) {
    if (const int code = WritePage(state.svg, LayoutToSvg(*layout, state.device)); code != kOk) return code;
  }
  if (!state.html.empty()) {
    if (const int code = WritePage(state.html, LayoutToHtml(*layout, state.device)); code != kOk) return code;
  }
  const std::string out = DrawLayout(*layout, state.device);
  return Print(out);
}

}  // namespace

Action AddShow(CLI::App& app) {
  auto state = std::make_shared<ShowCommand>();
  CLI::App& show = *app.add_subcommand("show", "Draw which device holds what");
  show.group(kOfLayouts);
  show.add_option("MESH", state->mesh, "the mesh, like {X:4,Y:2}")->required();
  show.add_option("LAYOUT", state->layout, "the layout, like [<X>512, 128]")->required();
  show.option_defaults()->group("What is drawn");
  show.add_option("--device", state->device, "draw only what this device holds")->type_name("ID");
  show.add_option("--shape", state->shape, "global sizes, like 512,128; LAYOUT may then be a layout rule")
      ->type_name("SIZES");
  show.add_option("--format,--from-format", state->format, "notation of LAYOUT")->type_name(NotationValues());
  show.option_defaults()->group("Output");
  show.add_option("--svg", state->svg, "also write the picture to this file")->type_name("FILE");
  show.add_option("--html", state->html, "also write a page about the layout to this file, for a browser")
      ->type_name("FILE");
  show.footer(
      "# Who holds what\n"
      "reshard show '{X:2,Y:2}' '[<X,Y>8, 4]'\n"
      "# What JAX's notation means\n"
      "reshard show '{x:2,y:2}' \"P('x', 'y')\" --format jax --shape 8x4\n");
  return [state] { return RunShow(*state); };
}

}  // namespace reshard::tool
