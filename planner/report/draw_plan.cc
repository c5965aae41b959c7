// PlanToSvg: one panel per layout, with the steps as arrows between them.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "planner/report/panel.h"
#include "planner/report/svg.h"
#include "planner/report/view.h"
#include "reshard/layout/text.h"
#include "reshard/planner/report.h"

namespace reshard {
namespace {

constexpr int kSide = 300;
constexpr int kArrowPad = 14;  // between an arrow and its neighbors
constexpr int kArrowLine = 18;
constexpr size_t kLayoutChars = 40;

constexpr report::SvgFont kStage = {.size = 13, .bold = true, .mono = false, .fill = "#555555"};
constexpr report::SvgFont kLayout = {.size = 13, .bold = true};
constexpr report::SvgFont kStepWarning = {.size = 12, .mono = false, .fill = "#a02020"};
constexpr report::SvgFont kOp = {.size = 14, .bold = true, .mono = false, .anchor = "middle"};
constexpr report::SvgFont kDetail = {.size = 12, .mono = false, .anchor = "middle", .fill = "#333333"};

// What stands above and below the arrow of a step.
struct ArrowText {
  std::vector<std::string> above;  // the first is the operation
  std::vector<std::string> below;

  int width() const {
    int width = 0;
    for (const std::string& line : above) width = std::max(width, kOp.Width(line.size()));
    for (const std::string& line : below) width = std::max(width, kDetail.Width(line.size()));
    return width + 12;
  }
  void Draw(report::Svg& svg, int x, int y) const {
    int middle = y - kArrowLine * static_cast<int>(above.size()) + 2;
    for (const std::string& line : above) {
      svg.Text(x, middle, line, &line == &above.front() ? kOp : kDetail);
      middle += kArrowLine;
    }
    middle = y + kArrowLine;
    for (const std::string& line : below) {
      svg.Text(x, middle, line, kDetail);
      middle += kArrowLine;
    }
  }
};

ArrowText TextOf(const Step& step) {
  ArrowText text;
  text.above.emplace_back(Name(step.op));
  if (step.crosses_meshes()) {
    text.above.emplace_back("across meshes");
    text.below.push_back(absl::StrCat(step.group_size, " devices"));
  } else if (!step.axes.empty()) {
    std::vector<std::string> axes;
    for (const AxisRef& ref : step.axes) axes.push_back(ToString(step.from.mesh(), ref));
    text.above.push_back(absl::StrCat("over ", report::Clip(absl::StrJoin(axes, ","), 24)));
    text.below.push_back(absl::StrCat("groups of ", step.group_size));
  }
  if (step.recv_bytes_total == 0) {
    text.below.emplace_back("nothing moves");
  } else {
    text.below.insert(text.below.begin(), absl::StrCat(HumanBytes(step.recv_bytes_max), " a device"));
    text.below.push_back(HumanTime(step.time_ns));
  }
  if (step.rounds > 1) text.below.push_back(absl::StrCat(step.rounds, " rounds"));
  return text;
}

// A layout of the plan with the lines above it.
struct Stage {
  report::SvgLines heading;
  std::unique_ptr<report::Panel> panel;
  int width() const { return std::max(heading.width(), panel->width()); }
};

Stage MakeStage(const Plan& plan, std::string name, const Layout& layout, const std::vector<int>& dims) {
  Stage stage;
  stage.heading.Add(std::move(name), kStage);
  stage.heading.Add(report::Clip(ToString(layout), kLayoutChars), kLayout);
  if (!(plan.source.mesh() == plan.target.mesh())) {
    stage.heading.Add(absl::StrCat("on ", report::MeshText(layout.mesh(), kLayoutChars)), report::kNote);
  }
  stage.heading.Add(absl::StrCat("local ", report::Clip(report::ShapeText(layout.MaxLocalShape()), 24), ", ",
                                 HumanBytes(layout.MaxLocalElements() * SizeOf(plan.dtype))),
                    report::kNote);
  if (layout.partial()) {
    std::vector<std::string> axes;
    for (const AxisRef& ref : layout.partial()->axes) axes.push_back(ToString(layout.mesh(), ref));
    stage.heading.Add(absl::StrCat("hatched: partial ", Name(layout.partial()->op), " over ",
                                   report::Clip(absl::StrJoin(axes, ","), 24)),
                      kStepWarning);
  }
  report::Panel::Options options;
  options.side = kSide;
  options.dims = dims;
  options.max_cols = 8;
  stage.panel = std::make_unique<report::Panel>(layout, options);
  return stage;
}

// Which dimensions the panels show, where that is not all.
std::string DimsNote(const std::vector<const Layout*>& layouts, const std::vector<int>& drawn) {
  const int rank = layouts.front()->rank();
  if (rank <= 2) return "";
  std::vector<int> others;
  for (int d = 0; d < rank; ++d) {
    if (std::find(drawn.begin(), drawn.end(), d) != drawn.end()) continue;
    const auto sharded = [d](const Layout* layout) { return report::IsSharded(*layout, d); };
    if (std::any_of(layouts.begin(), layouts.end(), sharded)) others.push_back(d);
  }
  std::string note = absl::StrCat("rank ", rank, ": ");
  absl::StrAppend(&note, drawn.empty() ? "no dimension is sharded" : absl::StrCat("drawn ", report::DimList(drawn)));
  if (others.empty()) return note;
  return absl::StrCat(note, "; ", report::DimList(others),
                      " sharded too: the devices of a block may hold different parts");
}

std::string TotalsSentence(const Plan& plan) {
  if (plan.steps.empty()) return "nothing has to move: every device already holds what the target asks for";
  return absl::StrCat(
      plan.steps.size(), plan.steps.size() == 1 ? " step: " : " steps: ", HumanBytes(plan.totals.recv_bytes_max),
      " received by the worst device (lower bound ", HumanBytes(plan.bounds.recv_bytes_max), "), ",
      HumanBytes(plan.totals.recv_bytes_total), " by all (lower bound ", HumanBytes(plan.bounds.recv_bytes_total), ")");
}

}  // namespace

std::string PlanToSvg(const Plan& plan) {
  std::vector<const Layout*> layouts = {&plan.source, &plan.target};
  for (const Step& step : plan.steps) layouts.push_back(&step.to);
  const std::vector<int> dims = report::DrawnDims(layouts);

  std::vector<Stage> stages;
  std::vector<ArrowText> arrows;
  stages.push_back(MakeStage(plan, "source", plan.source, dims));
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    arrows.push_back(TextOf(plan.steps[i]));
    const bool last = i + 1 == plan.steps.size();
    stages.push_back(MakeStage(plan, last ? "target" : absl::StrCat("after step ", i + 1), plan.steps[i].to, dims));
  }
  if (plan.steps.empty()) {
    arrows.push_back({{"the same"}, {"nothing moves"}});
    stages.push_back(MakeStage(plan, "target", plan.target, dims));
  }
  // A block has the same colour wherever its first device is the same.
  std::vector<int64_t> first_devices;
  int heading_height = 0;
  int above = 0;  // the middle of the panels
  int below = 0;
  for (const Stage& stage : stages) {
    const std::vector<int64_t> first = stage.panel->FirstDevices();
    first_devices.insert(first_devices.end(), first.begin(), first.end());
    heading_height = std::max(heading_height, stage.heading.height());
    above = std::max(above, stage.panel->middle());
    below = std::max(below, stage.panel->height() - stage.panel->middle());
  }
  const report::Palette palette(std::move(first_devices));

  report::SvgLines header;
  const std::string title = absl::StrCat(report::Clip(ToString(plan.source), report::kTitleChars / 2), " to ",
                                         report::Clip(ToString(plan.target), report::kTitleChars / 2));
  header.Add(title, report::kTitle);
  header.Add(absl::StrCat(std::string(Name(plan.dtype)), " over ", report::MeshText(plan.source.mesh(), 60), ", ",
                          report::MeshSentence(plan.source.mesh())),
             report::kFact);
  if (!(plan.source.mesh() == plan.target.mesh())) {
    header.Add(
        absl::StrCat("to ", report::MeshText(plan.target.mesh(), 60), ", ", report::MeshSentence(plan.target.mesh())),
        report::kFact);
  }
  header.Add(TotalsSentence(plan), report::kFact);
  if (!plan.steps.empty()) {
    const int64_t chunks = plan.chunks.count;
    header.Add(absl::StrCat("peak memory ", HumanBytes(plan.totals.peak_bytes), " a device, estimated time ",
                            HumanTime(plan.totals.time_ns),
                            chunks > 1 ? absl::StrCat(" in ", chunks, " chunks, which overlap") : ""),
               report::kFact);
  }
  report::SvgLines legend;
  legend.Add("A block lists the devices that hold it; blocks with the same first device have the same colour.",
             report::kNote);
  legend.Add(DimsNote(layouts, dims), report::kNote);

  report::Svg svg;
  header.Draw(svg, report::kMargin, report::kMargin);
  const int top = report::kMargin + header.height() + 16;
  const int middle = top + heading_height + 10 + std::max(above, 3 * kArrowLine);
  int x = report::kMargin;
  for (size_t i = 0; i < stages.size(); ++i) {
    const Stage& stage = stages[i];
    stage.heading.Draw(svg, x, top);
    stage.panel->Draw(svg, x, middle - stage.panel->middle(), palette);
    x += stage.width();
    if (i == arrows.size()) break;
    const int width = std::max(arrows[i].width(), 80);
    svg.Arrow(x + kArrowPad, x + kArrowPad + width, middle, plan.steps.empty());
    arrows[i].Draw(svg, x + kArrowPad + width / 2, middle);
    x += width + 2 * kArrowPad;
  }
  const int bottom = middle + std::max(below, 4 * kArrowLine) + 12;
  legend.Draw(svg, report::kMargin, bottom);
  const int width = std::max({header.width() + report::kMargin, legend.width() + report::kMargin, x}) + report::kMargin;
  return svg.Finish(width, bottom + legend.height() + report::kMargin / 2, title);
}

}  // namespace reshard
