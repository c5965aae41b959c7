// Judges a plan from what is printed of it: executes every piece on symbolic values and counts everything again.
#ifndef RESHARD_TESTS_ORACLE_PLAN_CHECK_H_
#define RESHARD_TESTS_ORACLE_PLAN_CHECK_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/oracle/holdings.h"

namespace oracle {

// A box that travels, in global element coordinates.
struct MovedBox {
  int64_t step = 0;
  int64_t sender = 0;
  int64_t receiver = 0;
  std::vector<int64_t> offset;
  std::vector<int64_t> size;
};

// As printed; the sizes in bytes.
struct StepFacts {
  std::string op;
  std::vector<std::string> axes;
  std::string from_mesh, from;
  std::string to_mesh, to;
  int64_t group_size = 1;
  int64_t recv_bytes_max = 0;
  int64_t recv_bytes_total = 0;
  int64_t send_bytes_max = 0;
  int64_t local_bytes_before_max = 0;
  int64_t local_bytes_after_max = 0;
  int64_t peers_max = 0;
  int64_t time_ns = 0;
};

struct PlanFacts {
  std::string mesh, source;
  std::string target_mesh, target;
  int64_t world = 0;
  int64_t element_bytes = 1;
  std::string objective = "time";
  std::vector<std::string> ops;  // allowed; empty: all
  bool boxes_only = false;
  bool flat_topology = true;
  std::optional<int64_t> memory_limit_bytes;
  std::vector<StepFacts> steps;
  int64_t chunks = 1, chunk_dim = 0, chunk_block = 1;
  std::vector<MovedBox> pieces;
  int64_t recv_bytes_max = 0;  // totals
  int64_t recv_bytes_total = 0;
  int64_t intermediate_bytes_max = 0;
  int64_t peak_bytes = 0;
  int64_t time_ns = 0;
  int64_t bound_recv_bytes_max = 0;
  int64_t bound_recv_bytes_total = 0;
  int64_t bound_intermediate_bytes_max = 0;
  std::string certificate;
};

// Everything that is wrong with the plan, one line each; empty when nothing is. A value is the set of
// contributions it is made of, so that a wrong element and a missing or doubled contribution all show. Texts that do
// not parse are findings too.
std::vector<std::string> Check(const PlanFacts& plan);

// What the members of a step's groups have in common: positions with equal keys form a group.
std::vector<int64_t> GroupKeys(const Mesh& mesh, const std::vector<Ref>& axes);

// Who moved what in one step, in elements; positions of the from mesh send, positions of the to mesh receive.
struct Movement {
  const Holdings* from = nullptr;
  const Holdings* to = nullptr;
  std::vector<Ref> axes;                          // of the from mesh
  std::vector<std::vector<ElementSet>> received;  // [to position][from position]; self-copies are not in it
  bool crosses() const {
    return from->layout.mesh.ids != to->layout.mesh.ids || from->layout.mesh.axes != to->layout.mesh.axes;
  }
};

// Why the movement is not what the name of the op says (the list at enum Op in include/reshard/planner/plan.h), or
// empty.
std::string BreaksDefinition(const std::string& op, const Movement& movement);

}  // namespace oracle

#endif  // RESHARD_TESTS_ORACLE_PLAN_CHECK_H_
