#include "reshard/planner/plan.h"

#include <array>

namespace reshard {
namespace {

constexpr std::array<std::string_view, kNumOps> kOpNames = {"Slice",         "AllGather", "AllToAll", "AllPermute",
                                                            "ReduceScatter", "AllReduce", "Exchange"};
constexpr std::array<std::string_view, 3> kObjectiveNames = {"time", "bytes", "steps"};

static_assert(!kOpNames.back().empty());

}  // namespace

std::string_view Name(Op op) { return kOpNames[static_cast<size_t>(op)]; }

std::optional<Op> ParseOp(std::string_view name) {
  for (size_t i = 0; i < kOpNames.size(); ++i) {
    if (kOpNames[i] == name) return static_cast<Op>(i);
  }
  return std::nullopt;
}

std::string_view Name(Objective objective) { return kObjectiveNames[static_cast<size_t>(objective)]; }

std::optional<Objective> ParseObjective(std::string_view name) {
  for (size_t i = 0; i < kObjectiveNames.size(); ++i) {
    if (kObjectiveNames[i] == name) return static_cast<Objective>(i);
  }
  return std::nullopt;
}

std::string_view Name(Certificate::Kind kind) {
  switch (kind) {
    case Certificate::Kind::kLowerBound:
      return "lower_bound";
    case Certificate::Kind::kExhaustive:
      return "exhaustive";
    case Certificate::Kind::kBestFound:
      return "best_found";
  }
  return "best_found";
}

}  // namespace reshard
