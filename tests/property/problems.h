// Planning problems made from a list of choices, so that a failing one can be shrunk: fewer and smaller choices make a
// simpler problem.
#ifndef RESHARD_TESTS_PROPERTY_PROBLEMS_H_
#define RESHARD_TESTS_PROPERTY_PROBLEMS_H_

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "reshard/layout/dtype.h"
#include "reshard/planner/plan.h"

namespace reshard::testing {

// A stream of small decisions; 0 is always the simplest answer.
class Choices {
 public:
  // These bytes, then zeros.
  explicit Choices(std::vector<uint8_t> given) : given_(std::move(given)) {}
  // Random bytes, which taken() records.
  explicit Choices(uint64_t seed) : random_(true), generator_(seed) {}

  // A number in [0, n), n <= 256.
  int Pick(int n);
  bool Chance(int percent) { return Pick(100) >= 100 - percent; }
  template <typename T>
  const T& From(const std::vector<T>& list) {
    return list[Pick(static_cast<int>(list.size()))];
  }
  const std::vector<uint8_t>& taken() const { return taken_; }

 private:
  bool random_ = false;
  std::vector<uint8_t> given_;
  std::mt19937_64 generator_;
  std::vector<uint8_t> taken_;
};

// What a problem may contain beyond whole axes on evenly divided dimensions of one mesh.
struct Flavour {
  bool uneven = false;
  bool sub_axes = false;
  bool digits = false;  // integer digits and reflected axes
  bool sizes = false;   // explicit sizes
  bool slots = false;   // slot tables, in the first dimension
  bool partial = false;
  bool two_meshes = false;
  bool flattened = false;  // neighboring dimensions flattened into one
  bool options = false;    // objectives, op sets, boxes, memory limits
  bool large = false;      // up to 4 axes and 64 devices
  static Flavour Everything() {
    return {.uneven = true,
            .sub_axes = true,
            .digits = true,
            .sizes = true,
            .partial = true,
            .two_meshes = true,
            .options = true};
  }
};

struct RandomProblem {
  std::string mesh;
  std::string from;
  std::string target_mesh;
  std::string to;
  DType dtype = DType::kI8;
  PlanOptions options;
  bool limit_memory = false;  // to `limit_percent` of what the plan needs without a limit
  int limit_percent = 100;

  std::string Text() const;
};

RandomProblem MakeProblem(Choices& choices, const Flavour& flavour);

enum class Outcome { kPlanned, kRefused, kWrong };
struct Verdict {
  Outcome outcome = Outcome::kPlanned;
  std::string text;  // why wrong, or why refused
};

// Plans the problem, holds the plan against the oracle, and a refusal against the rules for refusing.
Verdict Judge(const RandomProblem& problem);

// The simplest choices that still fail, found by dropping and lowering bytes while `fails` holds.
std::vector<uint8_t> Shrink(std::vector<uint8_t> choices,
                            const std::function<bool(const std::vector<uint8_t>&)>& fails);

}  // namespace reshard::testing

#endif  // RESHARD_TESTS_PROPERTY_PROBLEMS_H_
