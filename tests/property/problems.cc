#include "tests/property/problems.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reshard/layout/text.h"
#include "reshard/planner/planner.h"
#include "tests/layouts.h"
#include "tests/oracle/holdings.h"
#include "tests/property/checked.h"
#include "tests/property/facts.h"

namespace reshard::testing {
namespace {

struct Axis {
  std::string name;
  int64_t size = 1;
};

// One place to put an axis or a part of it.
struct Part {
  std::string text;
  int64_t size = 1;
  bool whole = true;
  std::string name;
};

std::vector<Axis> PickAxes(Choices& choices, const Flavour& flavour) {
  static const std::vector<std::vector<int64_t>> small = {
      {2}, {2, 2}, {2, 2, 2}, {4}, {3}, {2, 3}, {3, 2}, {2, 4}, {4, 2}, {8}, {6}, {5}, {7}, {}, {1, 2}, {2, 1, 3}};
  static const std::vector<std::vector<int64_t>> large = {{4, 4}, {2, 2, 2, 2}, {16}, {3, 4, 2}, {2, 3, 2, 2}, {8, 4},
                                                          {5, 3}, {4, 2, 2, 2}, {64}, {2, 8, 4}, {9},          {6, 6}};
  static const std::vector<std::string> names = {"X", "Y", "Z", "W"};
  std::vector<Axis> axes;
  for (const int64_t size : choices.From(flavour.large ? large : small)) axes.push_back({names[axes.size()], size});
  return axes;
}

int64_t SizeOfMesh(const std::vector<Axis>& axes) {
  int64_t size = 1;
  for (const Axis& axis : axes) size *= axis.size;
  return size;
}

std::string MeshText(const std::vector<Axis>& axes, const std::vector<int64_t>& ids) {
  std::string text = absl::StrCat(
      "{",
      absl::StrJoin(axes, ",",
                    [](std::string* out, const Axis& axis) { absl::StrAppend(out, axis.name, ":", axis.size); }),
      "}");
  const bool iota =
      ids.empty() || (ids.front() == 0 && std::adjacent_find(ids.begin(), ids.end(), [](int64_t a, int64_t b) {
                                            return b != a + 1;
                                          }) == ids.end());
  return iota ? text : absl::StrCat(text, "@[", absl::StrJoin(ids, ","), "]");
}

std::vector<int64_t> PickIds(Choices& choices, int64_t devices) {
  std::vector<int64_t> ids(static_cast<size_t>(devices));
  std::iota(ids.begin(), ids.end(), 0);
  switch (choices.Pick(4)) {
    case 0:
      return ids;
    case 1: {  // elsewhere: overlapping or disjoint
      const int64_t first = 1 + choices.Pick(10);
      for (int64_t& id : ids) id += first;
      return ids;
    }
    case 2: {  // with gaps
      int64_t next = choices.Pick(3);
      for (int64_t& id : ids) {
        id = next;
        next += 1 + choices.Pick(3);
      }
      return ids;
    }
    default:  // in another order
      for (size_t i = ids.size(); i > 1; --i) std::swap(ids[i - 1], ids[choices.Pick(static_cast<int>(i))]);
      return ids;
  }
}

std::vector<int64_t> PickShape(Choices& choices, const Flavour& flavour) {
  static const std::vector<int64_t> even = {8, 24, 4, 16, 48, 12};
  static const std::vector<int64_t> uneven = {6, 5, 7, 3, 9, 10, 13, 2, 1, 11, 4, 8, 0, 17};
  const int rank = std::vector<int>{2, 1, 3, 2, 3, 0}[choices.Pick(flavour.uneven ? 6 : 5)];
  std::vector<int64_t> shape;
  int64_t elements = 1;
  for (int d = 0; d < rank; ++d) {
    int64_t size = choices.From(flavour.uneven && choices.Chance(80) ? uneven : even);
    while (elements * size > 640) size = (size + 1) / 2;
    elements *= std::max<int64_t>(size, 1);
    shape.push_back(size);
  }
  return shape;
}

std::vector<Part> Parts(Choices& choices, const Axis& axis, const Flavour& flavour) {
  const bool splits = axis.size > 3 && axis.size != 5 && axis.size != 7;
  if (!flavour.sub_axes || !splits || !choices.Chance(40)) return {{axis.name, axis.size, true, axis.name}};
  std::vector<Part> parts;
  int64_t pre = 1;
  while (pre < axis.size) {
    std::vector<int64_t> sizes;
    for (int64_t s = 2; pre * s <= axis.size; ++s) {
      if (axis.size % (pre * s) == 0) sizes.push_back(s);
    }
    const int64_t size = choices.From(sizes);
    parts.push_back({absl::StrCat(axis.name, ":(", pre, ")", size), size, false, axis.name});
    pre *= size;
  }
  return parts;
}

// A slot table: any number of slots each, any index in each, and every index somewhere.
std::string SlotTable(Choices& choices, const Part& part, int64_t n) {
  std::vector<std::vector<int64_t>> slots(static_cast<size_t>(part.size));
  std::vector<bool> held(static_cast<size_t>(n), false);
  for (std::vector<int64_t>& mine : slots) {
    const int count = choices.Pick(static_cast<int>(std::min<int64_t>(n, 6)) + 1);
    for (int i = 0; i < count; ++i) mine.push_back(choices.Pick(static_cast<int>(n)));
    for (const int64_t index : mine) held[index] = true;
  }
  for (int64_t index = 0; index < n; ++index) {
    if (held[index]) continue;
    const int first = choices.Pick(static_cast<int>(part.size));
    // A device has at most n slots; where one is full, what it holds twice makes room.
    std::vector<int64_t>& mine = slots[first];
    if (static_cast<int64_t>(mine.size()) < n) {
      mine.insert(mine.begin() + choices.Pick(static_cast<int>(mine.size()) + 1), index);
    } else {
      mine.clear();
      for (int64_t i = 0; i < n; ++i) mine.push_back(i);
      break;
    }
  }
  std::vector<std::string> lists;
  for (const std::vector<int64_t>& mine : slots) lists.push_back(absl::StrJoin(mine, ","));
  return absl::StrCat("<", part.name, "={", absl::StrJoin(lists, "|"), "}>", n);
}

// The factors of one dimension as text, around the given axes.
std::string Factors(Choices& choices, const Flavour& flavour, const std::vector<Part>& parts, int64_t n) {
  std::vector<std::string> out;
  int64_t cut = 1;  // chunks so far
  for (const Part& part : parts) {
    if (flavour.digits && choices.Chance(25)) {
      const int64_t digit = 2 + choices.Pick(2);
      out.push_back(absl::StrCat(digit));
      cut *= digit;
    }
    if (flavour.sizes && part.whole && n % cut == 0 && choices.Chance(30)) {
      std::vector<int64_t> sizes(static_cast<size_t>(part.size), 0);
      int64_t left = n / cut;
      for (size_t i = 0; i + 1 < sizes.size(); ++i) {
        sizes[i] = choices.Pick(static_cast<int>(std::min<int64_t>(left, 200)) + 1);
        left -= sizes[i];
      }
      sizes.back() = left;
      out.push_back(absl::StrCat(part.name, "=[", absl::StrJoin(sizes, ","), "]"));
      cut = int64_t{1} << 40;  // the intervals may differ from here on
    } else {
      const bool reflected = flavour.digits && part.whole && choices.Chance(25);
      out.push_back(absl::StrCat(reflected ? "~" : "", part.text));
      cut *= part.size;
    }
  }
  if (flavour.digits && choices.Chance(5)) out.emplace_back("2");
  return out.empty() ? absl::StrCat(n) : absl::StrCat("<", absl::StrJoin(out, ","), ">", n);
}

// Dimensions first .. last-1 flattened into one: some of their axes cut them before, the others afterwards.
std::string Flattened(Choices& choices, Flavour flavour, const std::vector<std::vector<Part>>& placed,
                      const std::vector<int64_t>& shape, size_t first, size_t last) {
  flavour.sizes = flavour.sizes && choices.Chance(50);
  std::vector<Part> outer;
  std::vector<std::string> dims;
  int64_t held = 1;  // of all devices; 0: not alike, or perhaps not
  for (size_t d = first; d < last; ++d) {
    std::vector<Part> inner;
    int64_t parts = 1;
    for (const Part& part : placed[d]) {
      if (choices.Chance(60)) {
        outer.insert(outer.begin() + choices.Pick(static_cast<int>(outer.size()) + 1), part);
      } else {
        inner.push_back(part);
        parts *= part.size;
      }
    }
    dims.push_back(Factors(choices, flavour, inner, shape[d]));
    const bool plain = inner.empty() || (!flavour.sizes && !flavour.digits);
    held = plain && shape[d] % parts == 0 ? held * (shape[d] / parts) : 0;
  }
  if (held == 0) flavour.sizes = flavour.digits = false;
  std::string factors = Factors(choices, flavour, outer, held);
  factors.resize(factors.rfind('>') + 1);  // without the size
  return absl::StrCat(factors, "(", absl::StrJoin(dims, ", "), ")");
}

// `may_pend`: axes (as text) that may be partial; nullptr: all.
std::string PickLayout(Choices& choices, const Flavour& flavour, const std::vector<Axis>& axes,
                       const std::vector<int64_t>& shape, const std::string& op,
                       const std::vector<std::string>* may_pend, std::vector<std::string>* partial) {
  const int rank = static_cast<int>(shape.size());
  std::vector<std::vector<Part>> placed(shape.size());
  std::vector<std::string> pends;
  for (const Axis& axis : axes) {
    for (const Part& part : Parts(choices, axis, flavour)) {
      const auto listed = [&](const std::string& text) {
        return may_pend == nullptr || std::find(may_pend->begin(), may_pend->end(), text) != may_pend->end();
      };
      const bool can_pend = flavour.partial && (listed(part.text) || listed(part.name));
      if (can_pend && choices.Chance(35)) {
        pends.push_back(part.text);
        continue;
      }
      const int where = choices.Pick(rank + 1);
      if (where == rank) continue;  // replicated
      auto& list = placed[rank - 1 - where];
      list.insert(list.begin() + choices.Pick(static_cast<int>(list.size()) + 1), part);
    }
  }
  // Which dimensions become one, if any: some are at the same place in both layouts, some are not.
  const bool flattens = flavour.flattened && rank > 0 && choices.Chance(70);
  const size_t first = flattens ? static_cast<size_t>(choices.Pick(rank)) : shape.size();
  const size_t last = flattens ? first + 1 + static_cast<size_t>(choices.Pick(rank - static_cast<int>(first))) : 0;
  std::vector<std::string> dims;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (d == first) {
      dims.push_back(Flattened(choices, flavour, placed, shape, first, last));
      d = last - 1;
      continue;
    }
    const bool table = flavour.slots && d == 0 && placed[d].size() == 1 && placed[d][0].whole && shape[d] > 0;
    dims.push_back(table && choices.Chance(70) ? SlotTable(choices, placed[d][0], shape[d])
                                               : Factors(choices, flavour, placed[d], shape[d]));
  }
  std::string text = absl::StrCat("[", absl::StrJoin(dims, ", "), "]");
  if (!pends.empty()) absl::StrAppend(&text, " ", op, "<", absl::StrJoin(pends, ","), ">");
  if (partial != nullptr) *partial = pends;
  return text;
}

void PickOptions(Choices& choices, RandomProblem& problem) {
  static const std::vector<Objective> objectives = {Objective::kTime, Objective::kBytes, Objective::kSteps};
  problem.options.objective = choices.From(objectives);
  if (choices.Chance(30)) {
    problem.options.ops = OpSet::All().without(Op::kExchange);
    for (int i = 0; i < kNumOps; ++i) {
      if (choices.Chance(15)) problem.options.ops = problem.options.ops.without(static_cast<Op>(i));
    }
  } else if (choices.Chance(20)) {
    problem.options.boxes_only = true;
  }
  if (choices.Chance(20)) {
    problem.limit_memory = true;
    problem.limit_percent = std::vector<int>{100, 90, 75, 110}[choices.Pick(4)];
  }
}

// Whether the target keeps apart what the source does not: two devices with the same contribution that the target tells
// from each other.
bool HasNewPartial(const oracle::Layout& from, const oracle::Layout& to) {
  if (!oracle::Pends(to)) return false;
  if (from.mesh.axes != to.mesh.axes || from.mesh.ids != to.mesh.ids) return true;
  oracle::Layout both = from;
  both.partial.insert(both.partial.end(), to.partial.begin(), to.partial.end());
  const oracle::Contributions coarse(from);
  const oracle::Contributions fine(both);
  for (int64_t p = 0; p < to.mesh.size(); ++p) {
    for (int64_t q = 0; q < to.mesh.size(); ++q) {
      if (coarse.Own(p) == coarse.Own(q) && fine.Own(p) != fine.Own(q)) return true;
    }
  }
  return false;
}

std::string Explained(absl::StatusCode allowed, const absl::Status& status, const std::string& why) {
  if (status.code() == allowed) return "";
  return absl::StrCat(why, ", but it is refused with ", status.ToString());
}

// A refusal for want of memory says how much would do.
std::string NeedsMore(const Layout& from, const Layout& to, const RandomProblem& problem, const PlanOptions& options,
                      const absl::Status& status) {
  const std::string message(status.message());
  const size_t at = message.find("at least ");
  if (at == std::string::npos) return absl::StrCat("the refusal names no number: ", message);
  PlanOptions enough = options;
  enough.memory_limit_bytes = std::stoll(message.substr(at + 9));
  if (*enough.memory_limit_bytes <= *options.memory_limit_bytes) return absl::StrCat("it asks for no more: ", message);
  const auto plan = MakePlan({from, to, problem.dtype}, enough);
  if (!plan.ok()) return absl::StrCat("with what it asks for: ", plan.status().ToString());
  --*enough.memory_limit_bytes;
  if (MakePlan({from, to, problem.dtype}, enough).ok()) return absl::StrCat("it would do with less: ", message);
  return "";
}

// Partial values, and slot tables, are refused where dimensions are cut before they are flattened.
bool BeyondPlainFactors(const absl::Status& status) {
  const absl::string_view reason = status.message();
  const auto says = [&](absl::string_view text) { return reason.find(text) != absl::string_view::npos; };
  return absl::IsUnimplemented(status) ? says("before it flattens them") : says("before they are flattened");
}

Verdict JudgePlan(const Layout& from, const Layout& to, const RandomProblem& problem, const PlanOptions& options) {
  const auto plan = MakePlan({from, to, problem.dtype}, options);
  const bool new_partial = HasNewPartial(oracle::ParseLayout(problem.from, oracle::ParseMesh(problem.mesh)),
                                         oracle::ParseLayout(problem.to, oracle::ParseMesh(problem.target_mesh)));
  if (!plan.ok()) {
    const absl::StatusCode code = plan.status().code();
    std::string wrong;
    if (new_partial) {
      wrong = Explained(absl::StatusCode::kUnimplemented, plan.status(), "the target has new partial axes");
    } else if (options.memory_limit_bytes && code == absl::StatusCode::kResourceExhausted) {
      wrong = NeedsMore(from, to, problem, options, plan.status());
    } else if (options.boxes_only || !(options.ops == OpSet::All())) {
      wrong = Explained(absl::StatusCode::kFailedPrecondition, plan.status(), "the ops are restricted");
    } else if (!BeyondPlainFactors(plan.status())) {
      wrong = absl::StrCat("no plan: ", plan.status().ToString());
    }
    if (!wrong.empty()) return {Outcome::kWrong, wrong};
    return {Outcome::kRefused, plan.status().ToString()};
  }
  if (new_partial) return {Outcome::kWrong, "planned though the target has new partial axes"};
  // A plan is over the dimensions that both layouts have.
  for (const auto& [mesh, text, layout] :
       {std::tie(problem.mesh, problem.from, plan->source), std::tie(problem.target_mesh, problem.to, plan->target)}) {
    const oracle::Mesh read = oracle::ParseMesh(mesh);
    if (!oracle::Equivalent(oracle::ParseLayout(text, read), oracle::ParseLayout(ToString(layout), read))) {
      return {Outcome::kWrong, absl::StrCat(ToString(layout), " stands for ", text)};
    }
  }
  const auto facts = FactsOf(*plan);
  if (!facts.ok()) return {Outcome::kWrong, absl::StrCat("no pieces: ", facts.status().ToString())};
  const std::vector<std::string> findings = oracle::Check(*facts);
  if (!findings.empty()) return {Outcome::kWrong, absl::StrJoin(findings, "\n")};
  const std::string disagreement = Disagreement(*plan);
  if (!disagreement.empty()) return {Outcome::kWrong, disagreement};
  return {Outcome::kPlanned, absl::StrCat(plan->totals.peak_bytes)};
}

}  // namespace

int Choices::Pick(int n) {
  uint8_t byte = 0;
  if (random_) {
    byte = static_cast<uint8_t>(generator_() & 0xff);
  } else if (taken_.size() < given_.size()) {
    byte = given_[taken_.size()];
  }
  taken_.push_back(byte);
  return byte % n;
}

std::string RandomProblem::Text() const {
  std::string text =
      absl::StrCat("reshard plan '", mesh, "' '", from, "' '", to, "' --dtype ", std::string(Name(dtype)));
  if (target_mesh != mesh) absl::StrAppend(&text, " --to-mesh '", target_mesh, "'");
  absl::StrAppend(&text, " --objective ", std::string(Name(options.objective)));
  if (options.boxes_only) absl::StrAppend(&text, " --ops boxes");
  if (!(options.ops == OpSet::All())) {
    std::vector<std::string> ops;
    for (int i = 0; i < kNumOps; ++i) {
      if (options.ops.contains(static_cast<Op>(i))) ops.emplace_back(Name(static_cast<Op>(i)));
    }
    absl::StrAppend(&text, " --ops ", absl::StrJoin(ops, ","));
  }
  if (limit_memory) absl::StrAppend(&text, " --memory-limit (", limit_percent, " % of what it needs)");
  return text;
}

RandomProblem MakeProblem(Choices& choices, const Flavour& flavour) {
  static const std::vector<DType> dtypes = {DType::kI8, DType::kF32, DType::kBF16, DType::kC128};
  static const std::vector<std::string> reductions = {"sum", "avg", "min", "max", "prod"};
  RandomProblem problem;
  const std::vector<int64_t> shape = PickShape(choices, flavour);
  const std::vector<Axis> axes = PickAxes(choices, flavour);
  std::vector<int64_t> ids;
  if (flavour.two_meshes && choices.Chance(40)) ids = PickIds(choices, SizeOfMesh(axes));
  problem.mesh = problem.target_mesh = MeshText(axes, ids);
  std::vector<Axis> to_axes = axes;
  if (flavour.two_meshes && choices.Chance(60)) {
    to_axes = choices.Chance(50) ? PickAxes(choices, flavour) : axes;
    problem.target_mesh = MeshText(to_axes, PickIds(choices, SizeOfMesh(to_axes)));
  }
  const std::string op = flavour.partial ? choices.From(reductions) : "sum";
  std::vector<std::string> partial;
  problem.from = PickLayout(choices, flavour, axes, shape, op, nullptr, &partial);
  const bool same_mesh = problem.mesh == problem.target_mesh;
  const std::vector<std::string> none;
  const bool anything = choices.Chance(5);  // targets that pend anew must be refused
  problem.to =
      PickLayout(choices, flavour, to_axes, shape, op, anything ? nullptr : (same_mesh ? &partial : &none), nullptr);
  problem.dtype = choices.From(dtypes);
  if (flavour.options) PickOptions(choices, problem);
  return problem;
}

Verdict Judge(const RandomProblem& problem) {
  const auto from = ParseLayout(problem.from, problem.mesh);
  const auto to = ParseLayout(problem.to, problem.target_mesh);
  if (!from.ok()) return {Outcome::kWrong, absl::StrCat("the source is refused: ", from.status().ToString())};
  if (!to.ok()) return {Outcome::kWrong, absl::StrCat("the target is refused: ", to.status().ToString())};
  Verdict verdict = JudgePlan(*from, *to, problem, problem.options);
  if (!problem.limit_memory || verdict.outcome != Outcome::kPlanned) return verdict;
  PlanOptions limited = problem.options;
  limited.memory_limit_bytes = std::stoll(verdict.text) * problem.limit_percent / 100;
  return JudgePlan(*from, *to, problem, limited);
}

std::vector<uint8_t> Shrink(std::vector<uint8_t> choices,
                            const std::function<bool(const std::vector<uint8_t>&)>& fails) {
  bool better = true;
  while (better) {
    better = false;
    const auto attempt = [&](std::vector<uint8_t> simpler) {
      if (simpler == choices || !fails(simpler)) return false;
      choices = std::move(simpler);
      better = true;
      return true;
    };
    for (size_t length = choices.size(); length >= 1; length /= 2) {
      for (size_t at = 0; at + length <= choices.size();) {
        std::vector<uint8_t> without = choices;
        without.erase(without.begin() + static_cast<std::ptrdiff_t>(at),
                      without.begin() + static_cast<std::ptrdiff_t>(at + length));
        if (!attempt(std::move(without))) at += length;
      }
    }
    for (size_t i = 0; i < choices.size(); ++i) {
      for (const int lower : {0, choices[i] / 2, choices[i] - 1}) {
        if (lower < 0 || lower >= choices[i]) continue;
        std::vector<uint8_t> simpler = choices;
        simpler[i] = static_cast<uint8_t>(lower);
        if (attempt(std::move(simpler))) break;
      }
    }
  }
  return choices;
}

}  // namespace reshard::testing
