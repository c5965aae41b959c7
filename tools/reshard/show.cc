// reshard show MESH LAYOUT: draws which device holds what.
#include <cstdio>
#include <memory>

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
  auto mesh = ReadMesh(state.mesh);
  if (!mesh.ok()) return Fail(mesh.status(), Stage::kInput);
  auto layout = ReadLayout("layout", state.layout, *mesh, *notation, shape);
  if (!layout.ok()) return Fail(layout.status(), Stage::kInput);
  if (!state.svg.empty()) {
    if (absl::Status s = WriteFile(state.svg, LayoutToSvg(*layout, state.device)); !s.ok())
      return Fail(s, Stage::kInput);
    std::fprintf(stderr, "wrote %s\n", state.svg.c_str());
  }
  if (!state.html.empty()) {
    if (absl::Status s = WriteFile(state.html, LayoutToHtml(*layout, state.device)); !s.ok())
      return Fail(s, Stage::kInput);
    std::fprintf(stderr, "wrote %s\n", state.html.c_str());
  }
  const std::string out = DrawLayout(*layout, state.device);
  if (std::fwrite(out.data(), 1, out.size(), stdout) != out.size() || std::fflush(stdout) != 0) {
    return Fail(kIo, "cannot write to standard output");
  }
  return kOk;
}

}  // namespace

Action AddShow(CLI::App& app) {
  auto state = std::make_shared<ShowCommand>();
  CLI::App& show = *app.add_subcommand("show", "Draw which device holds what");
  show.add_option("MESH", state->mesh, "the mesh, like {X:4,Y:2}")->required();
  show.add_option("LAYOUT", state->layout, "the layout, like [<X>512, 128]")->required();
  show.add_option("--device", state->device, "draw only what this device holds");
  show.add_option("--shape", state->shape, "global sizes, like 512,128; LAYOUT may then be a layout rule");
  show.add_option("--format,--from-format", state->format, absl::StrCat("notation of LAYOUT: ", KnownNotations()));
  show.add_option("--svg", state->svg, "also write the picture to this file");
  show.add_option("--html", state->html, "also write a page about the layout to this file, for a browser");
  return [state] { return RunShow(*state); };
}

}  // namespace reshard::tool
