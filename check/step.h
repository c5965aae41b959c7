// One step by its definition: whether it is what its name says, and every figure that follows from its two layouts.
#ifndef RESHARD_CHECK_STEP_H_
#define RESHARD_CHECK_STEP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "check/groups.h"
#include "check/meet.h"
#include "check/plan_text/topology.h"
#include "reshard/check/check.h"

namespace reshard::check {

enum class Op { kSlice, kAllGather, kAllToAll, kAllPermute, kReduceScatter, kAllReduce, kExchange };
std::optional<Op> ParseOp(std::string_view name);
const char* Name(Op op);
inline bool Reduces(Op op) { return op == Op::kReduceScatter || op == Op::kAllReduce; }

// What one device does, in elements. Ranges where the holders, or the packing, are not known.
struct Load {
  int64_t recv = 0;
  Derived send;
  Derived staging;
};

// What crosses one level, in elements.
struct LevelLoad {
  int64_t recv = 0;
  int64_t send = 0;
  int64_t peers = 0;  // the larger of senders and receivers
};

struct StepFacts {
  std::vector<std::string> illegal;  // reasons; the figures mean nothing when there are any
  std::vector<std::string> unjudged;
  bool known = true;        // false: the figures could not be derived
  std::vector<Load> loads;  // by device of the plan
  int64_t recv_max = 0;
  int64_t recv_total = 0;
  Derived send_max;
  Derived peers_max;
  Derived group_size;
  // By level, then by device of the plan; empty where the holders are not known.
  std::vector<std::vector<LevelLoad>> levels;
};

// What the step's layouts and axes say. `axes`: absent across meshes, or where the plan names none.
class StepJudge {
 public:
  StepJudge(Op op, const Holdings& from, const Holdings& to, const std::optional<std::vector<AxisRef>>& axes,
            const std::vector<Contents>& contents, const Devices& devices, const plan_text::Links& links);

  StepFacts Run();
  // After Run() of an Exchange: the name of the collective that it is, if it is one.
  std::optional<Op> OtherName(const StepFacts& facts, int64_t peers_max) const;

  const std::optional<Groups>& groups() const { return groups_; }
  const Meeting& meeting() const { return *meeting_; }
  bool crosses() const { return crosses_; }
  // Elements that members of a group give each other: `i` gets give[j] + take[i] from `j`, positions of the mesh.
  struct Shares {
    std::vector<int64_t> take, give;
  };

 private:
  bool CheckPartial(StepFacts& facts);
  bool FindGroups(StepFacts& facts);
  // Reasons why the pattern is not what the op's name says; nothing when it is.
  std::optional<std::string> Breaks(Op op) const;
  std::optional<std::string> BreaksSlice() const;
  std::optional<std::string> BreaksAllGather() const;
  std::optional<std::string> BreaksAllToAll() const;
  std::optional<std::string> BreaksAllPermute() const;
  std::optional<std::string> BreaksReduceScatter() const;
  std::optional<std::string> BreaksAllReduce() const;
  // Whether members of a group hold all that each of them needs.
  std::optional<std::string> LeavesGroups(const Groups& groups) const;
  std::optional<std::string> LeavesGroups(const KeyedDim& keyed, int d) const;
  void CheckAxes(StepFacts& facts) const;
  void CountReceived(StepFacts& facts) const;
  Shares SharesOf(Op op) const;
  void CountShares(const Shares& shares, StepFacts& facts) const;
  void CountHolders(StepFacts& facts) const;
  void CountSlotHolders(StepFacts& facts) const;
  std::string At(int64_t position) const;

  const Op op_;
  const Holdings& from_;
  const Holdings& to_;
  const std::optional<std::vector<AxisRef>>& axes_;
  const std::vector<Contents>& contents_;
  const Devices& devices_;
  const plan_text::Links& links_;
  const bool crosses_;
  std::optional<Meeting> meeting_;
  std::optional<Digits> digits_;
  std::optional<Groups> groups_;
};

}  // namespace reshard::check

#endif  // RESHARD_CHECK_STEP_H_
