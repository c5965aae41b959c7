#include "check/judge.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "check/pieces.h"
#include "reshard/layout/checked.h"
#include "reshard/layout/dtype.h"
#include "reshard/layout/text.h"
#include "status/macros.h"

namespace reshard::check {
namespace {

// Devices of all distinct layouts of a plan together, and of all its steps; more are refused.
constexpr int64_t kMaxPlaces = int64_t{1} << 22;
constexpr int64_t kMaxStepPlaces = int64_t{1} << 24;
// Intervals that the dimensions of all distinct layouts are cut into, and those of all steps.
constexpr int64_t kMaxIntervals = int64_t{1} << 24;
constexpr int64_t kMaxStepIntervals = int64_t{1} << 26;

absl::Status TooMany(const char* what, int64_t most) {
  return absl::ResourceExhaustedError(absl::StrCat("the plan is too big to judge: more than ", most, " ", what));
}

absl::Status In(const std::string& where, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(where, ": ", status.message()));
}

}  // namespace

PlanJudge::PlanJudge(plan_text::PlanText plan, std::vector<Finding> findings) : plan_(std::move(plan)) {
  verdict_.name = plan_.name;
  verdict_.findings = std::move(findings);
}

absl::StatusOr<Mesh> PlanJudge::ReadMesh(const std::string& where, const std::string& text) {
  const auto known = meshes_.find(text);
  if (known != meshes_.end()) return known->second;
  auto mesh = ParseMesh(text);
  if (!mesh.ok()) return In(where, mesh.status());
  meshes_.emplace(text, *mesh);
  return mesh;
}

absl::StatusOr<const Layout*> PlanJudge::ReadLayout(const std::string& where, const Mesh& mesh,
                                                    const std::string& text) {
  auto layout = ParseLayout(text, mesh);
  if (!layout.ok()) return In(where, layout.status());
  if (layout->shape() != plan_.shape) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": ", ToString(*layout), " is a layout of another shape than \"shape\""));
  }
  return &*layouts_.insert(*layout).first;
}

absl::Status PlanJudge::Parse() {
  const auto dtype = ParseDType(plan_.dtype);
  if (!dtype) return absl::InvalidArgumentError(absl::StrCat("dtype: \"", plan_.dtype, "\" is not an element type"));
  element_ = SizeOf(*dtype);
  auto mesh = ReadMesh("mesh", plan_.mesh);
  if (!mesh.ok()) return mesh.status();
  auto target_mesh = ReadMesh("target_mesh", plan_.target_mesh.value_or(plan_.mesh));
  if (!target_mesh.ok()) return target_mesh.status();
  auto source = ReadLayout("source", *mesh, plan_.source);
  if (!source.ok()) return source.status();
  auto target = ReadLayout("target", *target_mesh, plan_.target);
  if (!target.ok()) return target.status();
  source_text_ = *source;
  target_text_ = *target;
  std::vector<const Layout*> layouts = {*source, *target};
  Mesh here = *mesh;
  for (size_t s = 0; s < plan_.steps.size(); ++s) {
    const plan_text::StepText& step = plan_.steps[s];
    const std::string where = absl::StrCat("steps[", s, "].");
    auto from_mesh = step.from_mesh ? ReadMesh(where + "from_mesh", *step.from_mesh) : here;
    if (!from_mesh.ok()) return from_mesh.status();
    auto to_mesh = step.to_mesh ? ReadMesh(where + "to_mesh", *step.to_mesh) : from_mesh;
    if (!to_mesh.ok()) return to_mesh.status();
    auto from = ReadLayout(where + "from", *from_mesh, step.from);
    if (!from.ok()) return from.status();
    auto to = ReadLayout(where + "to", *to_mesh, step.to);
    if (!to.ok()) return to.status();
    texts_.emplace_back(*from, *to);
    layouts.push_back(*from);
    layouts.push_back(*to);
    here = *to_mesh;
  }
  const auto same_size = [](const DimLayout& a, const DimLayout& b) { return a.size == b.size; };
  for (const Layout* layout : layouts) {
    const std::vector<DimLayout>& a = source_text_->dims();
    const std::vector<DimLayout>& b = layout->dims();
    if (std::equal(a.begin(), a.end(), b.begin(), b.end(), same_size)) continue;
    return absl::InvalidArgumentError(absl::StrCat("source ", ToString(*source_text_), " and ", ToString(*layout),
                                                   " flatten different dimensions; all layouts of a plan flatten the "
                                                   "same ones"));
  }
  std::sort(layouts.begin(), layouts.end());
  layouts.erase(std::unique(layouts.begin(), layouts.end()), layouts.end());
  RETURN_IF_ERROR(CheckSizes(layouts));
  return Enumerate(layouts);
}

// Every sum over devices and steps fits, and so does the work.
absl::Status PlanJudge::CheckSizes(const std::vector<const Layout*>& layouts) const {
  int64_t places = 0;
  for (const Layout* layout : layouts) places += layout->mesh().size();
  if (places > kMaxPlaces) return TooMany("devices in all its layouts", kMaxPlaces);
  int64_t step_places = 0;
  for (const auto& [from, to] : texts_) step_places += from->mesh().size() + to->mesh().size();
  if (step_places > kMaxStepPlaces) return TooMany("devices in all its steps", kMaxStepPlaces);
  auto total = CheckedMul(source_text_->num_elements(), element_);
  if (total) total = CheckedMul(*total, 8 * static_cast<int64_t>(plan_.steps.size() + 1));
  if (total) total = CheckedMul(*total, places);
  if (!total) {
    return absl::InvalidArgumentError("the tensor's bytes on all devices in all steps together do not fit in 64 bits");
  }
  return absl::OkStatus();
}

absl::Status PlanJudge::Enumerate(const std::vector<const Layout*>& layouts) {
  absl::flat_hash_set<Mesh> meshes;
  for (const auto& [text, mesh] : meshes_) meshes.insert(mesh);
  devices_ = std::make_unique<Devices>(meshes);
  contents_.resize(plan_.shape.size() + 1);
  int64_t intervals = 0;
  for (const Layout* layout : layouts) {
    ASSIGN_OR_RETURN(auto holdings, Holdings::Create(*layout, *devices_, contents_));
    intervals += holdings.num_intervals();
    if (intervals > kMaxIntervals) return TooMany("intervals in all its layouts", kMaxIntervals);
    holdings_[layout] = std::make_unique<Holdings>(std::move(holdings));
  }
  source_ = holdings_[source_text_].get();
  target_ = holdings_[target_text_].get();
  steps_.resize(texts_.size());
  int64_t step_intervals = 0;
  for (size_t s = 0; s < steps_.size(); ++s) {
    steps_[s].from = holdings_[texts_[s].first].get();
    steps_[s].to = holdings_[texts_[s].second].get();
    steps_[s].crosses = !(steps_[s].from->mesh() == steps_[s].to->mesh());
    step_intervals += steps_[s].from->num_intervals() + steps_[s].to->num_intervals();
    if (step_intervals > kMaxStepIntervals) return TooMany("intervals in all its steps", kMaxStepIntervals);
  }
  return absl::OkStatus();
}

// Every device holds the same elements and the same contributions.
bool PlanJudge::SameMeaning(const Holdings& a, const Holdings& b) const {
  if (&a == &b) return true;
  const auto partial = PartialRefs(a.layout());
  if (partial != PartialRefs(b.layout())) return false;
  const bool same_mesh = a.mesh() == b.mesh();
  if (!partial.empty() && (!same_mesh || a.layout().partial()->op != b.layout().partial()->op)) return false;
  for (int64_t device = 0; device < devices_->size(); ++device) {
    if (a.ElementsOf(device) != b.ElementsOf(device)) return false;
    if (a.ElementsOf(device) == 0) continue;
    for (int d = 0; d < a.num_dims(); ++d) {
      if (a.Content(a.PositionOf(device), d) != b.Content(b.PositionOf(device), d)) return false;
    }
  }
  return true;
}

void PlanJudge::CheckEnds() {
  Same("world", plan_.world, std::max(source_->mesh().world(), target_->mesh().world()));
  if (plan_.strict && plan_.target_mesh && source_->mesh() == target_->mesh()) {
    Find("target_mesh", "it is the same mesh");
  }
  const bool same = SameMeaning(*source_, *target_);
  if (steps_.empty() && !same) Find("steps", "there are none, but source and target differ");
  if (!steps_.empty() && same && plan_.strict) Find("steps", "source and target are equivalent and need no steps");
}

void PlanJudge::CheckChain() {
  // Our own plans repeat the text; another tool may write the same layout differently.
  const auto agree = [&](const Holdings* a, const Holdings* b) {
    return plan_.strict ? a->layout() == b->layout() : SameMeaning(*a, *b);
  };
  for (size_t s = 0; s < steps_.size(); ++s) {
    const std::string where = absl::StrCat("steps[", s, "]");
    const Holdings* before = s == 0 ? source_ : steps_[s - 1].to;
    if (!agree(before, steps_[s].from)) {
      Find(where + ".from", s == 0 ? "the first step does not start at the source" : "the step before ends elsewhere");
    }
    const plan_text::StepText& text = plan_.steps[s];
    if (plan_.strict &&
        (text.from_mesh.has_value() != steps_[s].crosses || text.to_mesh.has_value() != steps_[s].crosses)) {
      Find(where, "from_mesh and to_mesh belong to a step between meshes, and only there");
    }
  }
  if (!steps_.empty() && !agree(steps_.back().to, target_)) {
    Find(absl::StrCat("steps[", steps_.size() - 1, "].to"), "the last step does not end at the target");
  }
}

void PlanJudge::CheckOptions() {
  for (size_t i = 0; plan_.ops && i < plan_.ops->size(); ++i) {
    if (!ParseOp((*plan_.ops)[i])) Find(absl::StrCat("options.ops[", i, "]"), "there is no such op");
  }
  for (size_t s = 0; s < steps_.size(); ++s) {
    const std::string where = absl::StrCat("steps[", s, "].op");
    const std::string& op = plan_.steps[s].op;
    steps_[s].op = ParseOp(op);
    if (!steps_[s].op) Find(where, absl::StrCat("there is no op \"", op.substr(0, 40), "\""));
    const bool allowed = !plan_.ops || std::find(plan_.ops->begin(), plan_.ops->end(), op) != plan_.ops->end();
    if (steps_[s].op && !allowed) Find(where, "options.ops does not allow it");
    if (!plan_.boxes || s + 1 == steps_.size()) continue;
    const Holdings& to = *steps_[s].to;
    for (int d = 0; d < to.layout().rank(); ++d) {
      for (const int32_t content : to.dim(d).content_of_row) {
        if (contents_[d].intervals(content).size() <= 1) continue;
        Find(absl::StrCat("steps[", s, "].to"), "options.boxes asks for contiguous boxes in between, and this is none");
        d = to.layout().rank();
        break;
      }
    }
  }
}

// Chunks move alike only where no layout cuts within a block.
void PlanJudge::CheckChunks() {
  if (!plan_.chunks) return;
  const plan_text::ChunksText& chunks = *plan_.chunks;
  if (!plan_.overlap) Find("chunks", "options.overlap does not allow them");
  for (size_t s = 0; s < steps_.size(); ++s) {
    if (steps_[s].op == Op::kAllReduce) {
      Find(absl::StrCat("steps[", s, "].op"), "a turn is one exchange, and an AllReduce takes two");
    }
  }
  if (chunks.block % chunks.count != 0) Find("chunks.block", "it should be a multiple of chunks.count");
  if (chunks.dimension >= source_->layout().rank()) return Find("chunks.dimension", "there is no such dimension");
  const auto whole = [&](const Holdings& layout) {
    const auto dim = static_cast<int>(chunks.dimension);
    const auto& contents = layout.dim(dim).content_of_row;
    return layout.layout().dim(dim).size % chunks.block == 0 &&
           std::all_of(contents.begin(), contents.end(), [&](int32_t content) {
             const auto& intervals = contents_[dim].intervals(content);
             return std::all_of(intervals.begin(), intervals.end(), [&](const Interval& interval) {
               return interval.begin % chunks.block == 0 && interval.end % chunks.block == 0;
             });
           });
  };
  bool blocks = whole(*source_);
  for (const Step& step : steps_) blocks = blocks && whole(*step.to);
  if (!blocks) Find("chunks.block", "a layout of the plan cuts within a block");
}

void PlanJudge::DeriveStep(size_t s) {
  Step& step = steps_[s];
  const std::string where = absl::StrCat("steps[", s, "]");
  const plan_text::StepText& text = plan_.steps[s];
  if (!step.op) return;
  if (text.axes) {
    step.axes.emplace();
    for (size_t a = 0; a < text.axes->size(); ++a) {
      const auto ref = ParseAxis((*text.axes)[a], step.from->layout().mesh());
      if (!ref) return Find(absl::StrCat(where, ".axes[", a, "]"), "the mesh has no such axis");
      step.axes->push_back(*ref);
    }
  }
  StepJudge judge(*step.op, *step.from, *step.to, step.axes, contents_, *devices_, plan_.links);
  StepFacts facts = judge.Run();
  for (const std::string& reason : facts.illegal) Find(where, reason);
  for (const std::string& reason : facts.unjudged) Leave(where, reason);
  if (!facts.illegal.empty() || !facts.known) return;
  if (plan_.pieces) {
    const PieceStep with{*step.op, judge, step.axes, contents_, *devices_, plan_.links, text.rounds.value_or(1)};
    const size_t left = facts.unjudged.size();
    JudgePieces(with, *plan_.pieces, step.pieces, facts, verdict_.findings);
    for (size_t i = left; i < facts.unjudged.size(); ++i) Leave(where, facts.unjudged[i]);
  }
  if (plan_.strict) {
    step.other_name = judge.OtherName(facts, text.peers_max.value_or(facts.peers_max.high));
  }
  step.facts = std::move(facts);
  ++known_steps_;
}

PlanVerdict PlanJudge::Run() {
  verdict_.status = Parse();
  if (!verdict_.status.ok()) {
    verdict_.findings.clear();
    return std::move(verdict_);
  }
  CheckEnds();
  CheckChain();
  CheckOptions();
  CheckChunks();
  for (size_t i = 0; plan_.pieces && i < plan_.pieces->size(); ++i) {
    const auto s = static_cast<size_t>((*plan_.pieces)[i].step);
    if (s >= steps_.size()) {
      Find(absl::StrCat("pieces[", i, "]"), "there is no such step");
      break;
    }
    steps_[s].pieces.push_back(static_cast<int64_t>(i));
  }
  for (size_t s = 0; s < steps_.size(); ++s) DeriveStep(s);
  for (size_t s = 0; s < steps_.size(); ++s) CompareStep(s);
  bounds_ = Bounds(*source_, *target_, contents_, *devices_, element_);
  CompareTotals();
  ComparePeak();
  CompareBounds();
  CheckCertificate();
  if (all_known() && bounds_) verdict_.derived = derived_;
  return std::move(verdict_);
}

}  // namespace reshard::check
