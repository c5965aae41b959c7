// Judges one plan: compares every claim of it with what follows from its layouts.
#ifndef RESHARD_CHECK_JUDGE_H_
#define RESHARD_CHECK_JUDGE_H_

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/node_hash_set.h"
#include "check/bounds.h"
#include "check/plan_text/plan_text.h"
#include "check/step.h"
#include "reshard/check/check.h"

namespace reshard::check {

// State: the claims, the layouts they are about, and what was derived for each step. Invariant: a step has facts if it
// could be derived, and only then do its figures and the totals count.
class PlanJudge {
 public:
  PlanJudge(plan_text::PlanText plan, std::vector<Finding> findings);
  PlanVerdict Run();

 private:
  struct Step {
    const Holdings* from = nullptr;
    const Holdings* to = nullptr;
    std::optional<std::vector<AxisRef>> axes;
    std::optional<Op> op;
    std::optional<StepFacts> facts;
    std::optional<Op> other_name;
    bool crosses = false;
    std::vector<int64_t> pieces;  // numbers in the plan
  };

  // Reading the texts.
  absl::Status Parse();
  absl::StatusOr<Mesh> ReadMesh(const std::string& where, const std::string& text);
  absl::StatusOr<const Layout*> ReadLayout(const std::string& where, const Mesh& mesh, const std::string& text);
  absl::Status CheckSizes(const std::vector<const Layout*>& layouts) const;
  absl::Status Enumerate(const std::vector<const Layout*>& layouts);
  bool SameMeaning(const Holdings& a, const Holdings& b) const;
  void CheckEnds();
  void CheckChain();
  void CheckOptions();
  void CheckChunks();

  // Deriving and comparing.
  void DeriveStep(size_t s);
  void CompareStep(size_t s);
  void CompareStepLevels(size_t s, const std::string& where);
  void CompareTime(size_t s, const std::string& where);
  void CompareTotals();
  void CompareTotalTime();
  void CompareTotalLevels();
  void ComparePeak();
  Derived PeakInTurn() const;
  Derived PeakInChunks() const;
  void CompareBounds();
  void CompareLevelBounds();
  void CheckCertificate();
  bool MeetsLevelBound() const;

  void Find(std::string where, std::string why) {
    verdict_.findings.push_back({std::move(where), "", "", std::move(why)});
  }
  void Leave(std::string where, std::string why) { verdict_.unjudged.push_back({std::move(where), std::move(why)}); }
  void Same(const std::string& where, const plan_text::Figure& said, __int128 is);
  void Between(const std::string& where, const plan_text::Figure& said, __int128 low, __int128 high);
  bool all_known() const { return known_steps_ == plan_.steps.size(); }

  plan_text::PlanText plan_;
  PlanVerdict verdict_;
  int64_t element_ = 1;                            // bytes
  absl::flat_hash_map<std::string, Mesh> meshes_;  // by their texts
  absl::node_hash_set<Layout> layouts_;            // that the plan mentions
  std::map<const Layout*, std::unique_ptr<Holdings>> holdings_;
  std::vector<Contents> contents_;
  std::unique_ptr<Devices> devices_;
  const Holdings* source_ = nullptr;
  const Holdings* target_ = nullptr;
  std::vector<std::pair<const Layout*, const Layout*>> texts_;  // of the steps
  const Layout* source_text_ = nullptr;
  const Layout* target_text_ = nullptr;
  std::vector<Step> steps_;
  size_t known_steps_ = 0;
  std::optional<BoundFacts> bounds_;
  DerivedPlan derived_;
};

}  // namespace reshard::check

#endif  // RESHARD_CHECK_JUDGE_H_
