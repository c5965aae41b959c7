#include "tests/checkpoint/formats/pickle_graph.h"

#include <map>
#include <set>
#include <utility>
#include <vector>

namespace reshard::testing {
namespace {

using Value = pickle::Pickle::Value;
using Kind = pickle::Pickle::Kind;

// What a value leads to, in order.
std::vector<Value> Successors(const pickle::Pickle& pickle, Value v) {
  std::vector<Value> next;
  const auto add = [&](Value one) {
    next.push_back(one);
    return true;
  };
  const auto add_both = [&](Value key, Value value) { return add(key) && add(value); };
  switch (pickle.kind(v)) {
    case Kind::kTuple:
    case Kind::kList:
    case Kind::kSet:
      pickle.ForEach(v, add);
      break;
    case Kind::kDict:
      pickle.ForEachItem(v, add_both);
      break;
    case Kind::kObject:
      add(pickle.Class(v));
      add(pickle.Arguments(v));
      if (pickle.State(v)) add(*pickle.State(v));
      if (pickle.HasItems(v)) pickle.ForEachItem(v, add_both);
      break;
    case Kind::kPersistent:
      add(pickle.Arguments(v));
      break;
    default:
      break;
  }
  return next;
}

bool IsMutable(Kind kind) {
  return kind == Kind::kList || kind == Kind::kSet || kind == Kind::kDict || kind == Kind::kObject;
}

// Of the values themselves, without what they lead to.
std::string DifferenceHere(const pickle::Pickle& a, Value in_a, const pickle::Pickle& b, Value in_b) {
  const Kind kind = a.kind(in_a);
  if (b.kind(in_b) != kind) return "kinds";
  switch (kind) {
    case Kind::kBool:
      return a.IsTrue(in_a) == b.IsTrue(in_b) ? "" : "bools";
    case Kind::kInt:
      return a.Int(in_a) == b.Int(in_b) ? "" : "numbers";
    case Kind::kString:
    case Kind::kBytes:
      return a.Text(in_a) == b.Text(in_b) ? "" : "texts";
    case Kind::kName:
      return a.Module(in_a) == b.Module(in_b) && a.Name(in_a) == b.Name(in_b) && a.known(in_a) == b.known(in_b)
                 ? ""
                 : "names";
    case Kind::kObject:
      return a.HasItems(in_a) == b.HasItems(in_b) && a.State(in_a).has_value() == b.State(in_b).has_value() ? ""
                                                                                                            : "states";
    default:
      return "";
  }
}

}  // namespace

std::string Difference(const pickle::Pickle& a, const pickle::Pickle& b) {
  std::map<Value, Value> a_to_b;
  std::map<Value, Value> b_to_a;
  std::set<std::pair<Value, Value>> seen;
  std::vector<std::pair<Value, Value>> todo = {{a.root(), b.root()}};
  while (!todo.empty()) {
    const auto [in_a, in_b] = todo.back();
    todo.pop_back();
    if (!seen.insert({in_a, in_b}).second) continue;
    if (std::string here = DifferenceHere(a, in_a, b, in_b); !here.empty()) return here;
    if (IsMutable(a.kind(in_a)) &&
        (a_to_b.emplace(in_a, in_b).first->second != in_b || b_to_a.emplace(in_b, in_a).first->second != in_a)) {
      return "objects are shared in one of them";
    }
    const std::vector<Value> after_a = Successors(a, in_a);
    const std::vector<Value> after_b = Successors(b, in_b);
    if (after_a.size() != after_b.size()) return "numbers of members";
    for (size_t i = 0; i < after_a.size(); ++i) todo.emplace_back(after_a[i], after_b[i]);
  }
  return "";
}

int64_t CountShaped(const pickle::Pickle& pickle) {
  int64_t count = 0;
  std::set<Value> seen;
  std::vector<Value> todo = {pickle.root()};
  while (!todo.empty()) {
    const Value v = todo.back();
    todo.pop_back();
    if (!seen.insert(v).second) continue;
    count += pickle.kind(v) == Kind::kObject && pickle.Shape(v) != 0;
    for (const Value next : Successors(pickle, v)) todo.push_back(next);
  }
  return count;
}

}  // namespace reshard::testing
