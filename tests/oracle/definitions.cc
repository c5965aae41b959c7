// What the operations are (the list at enum Op in include/reshard/planner/plan.h), as conditions on sets of elements.
#include <algorithm>
#include <map>
#include <set>

#include "tests/oracle/plan_check.h"

namespace oracle {
namespace {

std::string Device(const Movement& m, size_t to_position) {
  return "device " + std::to_string(m.to->layout.mesh.ids[to_position]);
}

ElementSet Empty(const Movement& m) { return ElementSet(m.to->elements); }

std::string BreaksSlice(const Movement& m) {
  for (size_t q = 0; q < m.to->sets.size(); ++q) {
    if (!m.to->sets[q].Within(m.from->sets[q])) return Device(m, q) + " does not hold all it needs";
    for (const ElementSet& set : m.received[q]) {
      if (set.Count() != 0) return Device(m, q) + " receives";
    }
  }
  return "";
}

std::map<int64_t, std::vector<size_t>> Groups(const Movement& m) {
  std::map<int64_t, std::vector<size_t>> groups;
  const std::vector<int64_t> keys = GroupKeys(m.from->layout.mesh, m.axes);
  for (size_t p = 0; p < keys.size(); ++p) groups[keys[p]].push_back(p);
  return groups;
}

std::string BreaksAllGather(const Movement& m) {
  for (const auto& [key, members] : Groups(m)) {
    ElementSet pool = Empty(m);
    for (const size_t p : members) {
      if (pool.CountCommon(m.from->sets[p]) != 0) return "shards of a group overlap at " + Device(m, p);
      pool.Merge(m.from->sets[p]);
    }
    for (const size_t p : members) {
      if (m.to->sets[p] != pool) return Device(m, p) + " does not end with the group's pool";
    }
  }
  return "";
}

std::string BreaksAllToAll(const Movement& m) {
  for (const auto& [key, members] : Groups(m)) {
    const auto n = static_cast<int64_t>(members.size());
    const int64_t local = m.from->sets[members[0]].Count();
    for (const size_t q : members) {
      if (m.from->sets[q].Count() != local || m.to->sets[q].Count() != local)
        return "local size changes at " + Device(m, q);
      for (const size_t p : members) {
        const int64_t part = p == q ? m.to->sets[q].CountCommon(m.from->sets[q]) : m.received[q][p].Count();
        if (part * n != local) return Device(m, q) + " gets an unequal part";
      }
    }
  }
  return "";
}

std::string BreaksAllPermute(const Movement& m) {
  std::vector<int64_t> sent_to(m.from->sets.size(), 0);
  for (size_t q = 0; q < m.to->sets.size(); ++q) {
    const int64_t p = m.from->layout.mesh.Position(m.to->layout.mesh.ids[q]);
    if (p >= 0 && m.from->local_shape[p] != m.to->local_shape[q] &&
        (m.from->sets[p].Count() != 0 || m.to->sets[q].Count() != 0)) {
      return "the local shape changes at " + Device(m, q);
    }
    const bool keeps = p >= 0 && m.from->sets[p] == m.to->sets[q];
    int64_t senders = 0;
    for (size_t s = 0; s < m.received[q].size(); ++s) {
      if (m.received[q][s].Count() == 0) continue;
      ++senders;
      ++sent_to[s];
      if (keeps) return Device(m, q) + " receives though its shard stays";
      if (m.received[q][s] != m.from->sets[s]) return Device(m, q) + " gets a part of a shard";
      if (m.received[q][s] != m.to->sets[q]) return Device(m, q) + " gets another shard than it needs";
    }
    if (senders > 1) return Device(m, q) + " gets from several";
    if (senders == 0 && !keeps && m.to->sets[q].Count() != 0) return Device(m, q) + " gets nothing";
  }
  if (*std::max_element(sent_to.begin(), sent_to.end()) > 1) return "a device sends to several";
  return "";
}

std::string BreaksReduction(const Movement& m, bool scatter) {
  for (const auto& [key, members] : Groups(m)) {
    ElementSet pool = Empty(m);
    for (const size_t p : members) {
      if (m.from->sets[p] != m.from->sets[members[0]])
        return "members hold contributions to other elements, " + Device(m, p);
      if (!scatter && m.to->sets[p] != m.from->sets[p]) return Device(m, p) + " does not keep all";
      if (scatter && pool.CountCommon(m.to->sets[p]) != 0) return "parts of a group overlap at " + Device(m, p);
      pool.Merge(m.to->sets[p]);
      for (const size_t s : members) {
        if (s != p && m.received[p][s] != m.to->sets[p]) return Device(m, p) + " misses a contribution";
      }
    }
    if (pool != m.from->sets[members[0]]) return "parts of a group are not the whole";
  }
  return "";
}

}  // namespace

std::vector<int64_t> GroupKeys(const Mesh& mesh, const std::vector<Ref>& axes) {
  std::vector<int64_t> keys;
  for (int64_t p = 0; p < mesh.size(); ++p) {
    int64_t key = 0;
    for (size_t a = 0; a < mesh.axes.size(); ++a) {
      const int64_t n = mesh.axes[a].second;
      int64_t coordinate = Coordinate(mesh, {a, 1, n}, p);
      for (const Ref& ref : axes) {
        if (ref.axis == a) coordinate -= Coordinate(mesh, ref, p) * (n / (ref.pre * ref.size));
      }
      key = key * n + coordinate;
    }
    keys.push_back(key);
  }
  return keys;
}

std::string BreaksDefinition(const std::string& op, const Movement& movement) {
  if (movement.crosses() && op != "Exchange" && op != "AllPermute") return "it crosses meshes";
  if (op == "Exchange") return "";
  if (op == "Slice") return BreaksSlice(movement);
  if (op == "AllGather") return BreaksAllGather(movement);
  if (op == "AllToAll") return BreaksAllToAll(movement);
  if (op == "AllPermute") return BreaksAllPermute(movement);
  if (op == "ReduceScatter") return BreaksReduction(movement, true);
  if (op == "AllReduce") return BreaksReduction(movement, false);
  return "unknown op";
}

}  // namespace oracle
