// A valid plan is edited in one place, every place in turn, and the judge has to notice. What it cannot notice is
// listed here, and nothing else is forgiven.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/catch.h"
#include "tests/check/plans.h"
#include "tests/sanitized.h"

namespace reshard::testing {
namespace {

using nlohmann::json;

json PlanOf(const Case& c, bool with_pieces) { return json::parse(PlanText(c, with_pieces)); }
std::string WrongWith(const json& plan) { return testing::WrongWith(plan.dump()); }

// Figures that layouts and pieces do not decide.
const std::vector<std::string>& Undecided() {
  static const auto* paths = new std::vector<std::string>{
      "/alternatives/**",             // of other plans, of which only the ops are printed
      "/options/memory_limit_bytes",  // a byte more or less is kept too
      "/steps/*/first_holder",        // whom the planner began with
      "/chunks/dimension",            // any that has such blocks would do
  };
  return *paths;
}

// Without the pieces the holders, and what has to be packed, are open: these are held against ranges.
const std::vector<std::string>& Ranges() {
  static const auto* paths = new std::vector<std::string>{
      "/steps/*/send_bytes_max", "/steps/*/peers_max", "/totals/peak_bytes", "/steps/*/levels/**", "/totals/levels/**",
      "/steps/*/group_size",  // across meshes
  };
  return *paths;
}

const std::vector<std::string>& Layouts() {
  static const auto* paths = new std::vector<std::string>{"/source", "/target", "/steps/*/from", "/steps/*/to"};
  return *paths;
}

const std::vector<std::string>& Meshes() {
  static const auto* paths =
      new std::vector<std::string>{"/mesh", "/target_mesh", "/steps/*/from_mesh", "/steps/*/to_mesh"};
  return *paths;
}

// A * stands for one part of a path, a ** at the end for all that follow. (std::regex takes GCC a minute under the
// sanitizers.)
bool Matches(const std::string& path, const std::vector<std::string>& patterns) {
  const std::vector<std::string> parts = absl::StrSplit(path, '/');
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    std::vector<std::string> wanted = absl::StrSplit(pattern, '/');
    const bool open = wanted.back() == "**";
    if (open) wanted.pop_back();
    if (open ? parts.size() <= wanted.size() : parts.size() != wanted.size()) return false;
    return std::equal(wanted.begin(), wanted.end(), parts.begin(),
                      [](const std::string& want, const std::string& part) { return want == "*" || want == part; });
  });
}

// Bytes of the largest message that a step posts last, where the messages of a device are alike.
int64_t LastMessageOf(const json& plan) {
  int64_t most = 0;
  for (const json& step : plan["steps"]) {
    const int64_t bytes = std::max(step["recv_bytes_max"].get<int64_t>(), step["send_bytes_max"].get<int64_t>());
    const int64_t peers = std::max<int64_t>(step["peers_max"].get<int64_t>(), 1);
    most = std::max(most, (bytes + peers - 1) / peers);
  }
  return most;
}

// Of numbers and objects in the plans one of so many is changed.
constexpr size_t kEach = testing::kSanitized ? 5 : 1;

}  // namespace

TEST_CASE("plans of every kind agree with what is derived") {
  for (const Case& c : Cases()) {
    for (const bool with_pieces : {false, true}) {
      INFO(c.name);
      CHECK(WrongWith(PlanOf(c, with_pieces)) == "");
    }
  }
}

TEST_CASE("every number that is one too high or too low is found") {
  int found = 0;
  size_t at_number = 0;
  for (const Case& c : Cases()) {
    for (const bool with_pieces : {false, true}) {
      const json plan = PlanOf(c, with_pieces);
      const json flat = plan.flatten();
      for (const auto& [path, value] : flat.items()) {
        if (!value.is_number() || at_number++ % kEach != 0) continue;
        for (const int change : {-1, 1}) {
          json edited = plan;
          const json::json_pointer at(path);
          if (value.is_number_float()) {
            edited[at] = value.get<double>() + change;
          } else {
            edited[at] = value.get<int64_t>() + change;
          }
          INFO(c.name << (with_pieces ? " with pieces " : " ") << path << " " << value << " " << change);
          const std::string wrong = WrongWith(edited);
          if (Matches(path, Undecided()) || (!with_pieces && Matches(path, Ranges()))) continue;
          // In rounds a message is packed in parts, and the rest of a division may count as one.
          const bool in_rounds = plan["steps"][0].contains("rounds") && path == "/totals/peak_bytes";
          // Where the steps do not say what crosses which level, their time cannot be derived.
          const bool open_time = std::string_view(c.topology) != "flat" && !plan["steps"][0].contains("levels") &&
                                 (path.starts_with("/options/topology") || path.ends_with("time_ns"));
          // Levels work side by side: only the slowest one decides.
          const bool not_slowest = std::string_view(c.topology) != "flat" && path.ends_with("gb_per_s");
          // So few bytes take as many nanoseconds at either bandwidth.
          const int64_t last = LastMessageOf(plan);
          const bool too_few = path.ends_with("gb_per_s") && change > 0 && (last + 49) / 50 == (last + 50) / 51;
          if (in_rounds || open_time || not_slowest || too_few) continue;
          CHECK(wrong != "");
          ++found;
        }
      }
    }
  }
  CHECK(found > 3000 / static_cast<int>(kEach));
}

TEST_CASE("every other op name is found") {
  const std::vector<std::string> names = {"Slice",         "AllGather", "AllToAll", "AllPermute",
                                          "ReduceScatter", "AllReduce", "Exchange", "Broadcast"};
  for (const Case& c : Cases()) {
    for (const bool with_pieces : {false, true}) {
      json plan = PlanOf(c, with_pieces);
      plan["options"]["ops"] = names;
      plan["options"]["ops"].erase(7);
      REQUIRE(WrongWith(plan) == "");
      for (size_t s = 0; s < plan["steps"].size(); ++s) {
        for (const std::string& name : names) {
          if (plan["steps"][s]["op"] == name) continue;
          json edited = plan;
          edited["steps"][s]["op"] = name;
          INFO(c.name << " steps[" << s << "] " << plan["steps"][s]["op"] << " -> " << name);
          CHECK(WrongWith(edited) != "");
        }
      }
    }
  }
}

TEST_CASE("axes too many, too few and of another mesh are found") {
  for (const Case& c : Cases()) {
    const json plan = PlanOf(c, false);
    for (size_t s = 0; s < plan["steps"].size(); ++s) {
      const json& axes = plan["steps"][s]["axes"];
      std::vector<json> others;
      for (size_t a = 0; a < axes.size(); ++a) {
        json fewer = axes;
        fewer.erase(a);
        others.push_back(fewer);
        json twice = axes;
        twice.push_back(axes[a]);
        others.push_back(twice);
      }
      for (const char* more : {"X", "Y", "Q", "X:(1)2", "X,Y", "", "X> , [", "A"}) {
        if (std::find(axes.begin(), axes.end(), more) != axes.end()) continue;
        json longer = axes;
        longer.push_back(more);
        others.push_back(longer);
      }
      for (const json& other : others) {
        json edited = plan;
        edited["steps"][s]["axes"] = other;
        INFO(c.name << " " << axes << " -> " << other);
        CHECK(WrongWith(edited) != "");
      }
    }
  }
}

TEST_CASE("every layout and mesh that is another one is found") {
  for (const Case& c : Cases()) {
    const json plan = PlanOf(c, false);
    const json flat = plan.flatten();
    std::set<std::string> layouts, meshes;
    for (const auto& [path, value] : flat.items()) {
      if (!value.is_string()) continue;
      if (Matches(path, Layouts())) layouts.insert(value);
      if (Matches(path, Meshes())) meshes.insert(value);
    }
    std::string whole = "[" + absl::StrJoin(plan["shape"].get<std::vector<int64_t>>(), ", ") + "]";
    layouts.insert(whole);
    for (const char* broken : {"", "[", "[<Q>4]", "nonsense"}) layouts.insert(broken);
    for (const char* broken : {"", "{", "{X:0}", "{X:4}@5", "{Z:2}"}) meshes.insert(broken);
    for (const auto& [path, value] : flat.items()) {
      const bool layout = Matches(path, Layouts());
      if (!layout && !Matches(path, Meshes())) continue;
      for (const std::string& other : layout ? layouts : meshes) {
        if (value == other) continue;
        json edited = plan;
        edited[json::json_pointer(path)] = other;
        INFO(c.name << " " << path << " " << value << " -> " << other);
        CHECK(WrongWith(edited) != "");
      }
    }
  }
}

TEST_CASE("a key that is missing, unknown or of another type is found") {
  const std::set<std::string> optional = {"/target_mesh", "/pieces", "/options/boxes", "/id"};
  for (const Case& c : Cases()) {
    const json plan = PlanOf(c, true);
    const json flat = plan.flatten();
    std::vector<std::string> objects = {""};
    for (const auto& [path, value] : flat.items()) {
      std::string prefix = path;
      while (!prefix.empty()) {
        prefix = prefix.substr(0, prefix.rfind('/'));
        if (plan[json::json_pointer(prefix)].is_object()) objects.push_back(prefix);
      }
    }
    std::sort(objects.begin(), objects.end());
    objects.erase(std::unique(objects.begin(), objects.end()), objects.end());
    for (size_t number = 0; number < objects.size(); number += kEach) {
      const std::string& object = objects[number];
      json more = plan;
      more[json::json_pointer(object)]["extra"] = 1;
      INFO(c.name << " " << object);
      CHECK(WrongWith(more) != "");
      for (const auto& [key, value] : plan[json::json_pointer(object)].items()) {
        INFO(key);
        json fewer = plan;
        fewer[json::json_pointer(object)].erase(key);
        const bool may_miss = optional.contains(object + "/" + key) || key == "rounds" || key == "nics" ||
                              key == "first_holder" || key == "levels" || key == "schema" || key == "target_mesh" ||
                              (object.starts_with("/options/topology/levels") && key == "devices") ||
                              (object.starts_with("/bounds/levels") && key == "nic_bytes_max");
        if (!may_miss) CHECK(WrongWith(fewer) != "");
        const bool free = key == "id";
        for (const json& odd : {json("7"), json(1.5), json(-1), json::array({1}), json::object(), json(true)}) {
          if (free || odd.type() == value.type()) continue;
          if (value.is_number() && odd.is_number()) continue;  // see the numbers
          json edited = plan;
          edited[json::json_pointer(object)][key] = odd;
          INFO(odd);
          CHECK(WrongWith(edited) != "");
        }
      }
    }
  }
}

TEST_CASE("pieces that are left out, doubled or sent elsewhere are found") {
  for (const Case& c : Cases()) {
    const json plan = PlanOf(c, true);
    for (size_t i = 0; i < plan["pieces"].size(); ++i) {
      INFO(c.name << " " << plan["pieces"][i]);
      json fewer = plan;
      fewer["pieces"].erase(i);
      CHECK(WrongWith(fewer) != "");
      json twice = plan;
      twice["pieces"].push_back(plan["pieces"][i]);
      CHECK(WrongWith(twice) != "");
      json back = plan;
      std::swap(back["pieces"][i][1], back["pieces"][i][2]);
      CHECK(WrongWith(back) != "");
    }
  }
}

TEST_CASE("certificates that claim too much are found") {
  json plan = PlanOf(Cases()[9], false);
  INFO(plan.dump(1));
  REQUIRE(plan["totals"]["recv_bytes_max"] > plan["bounds"]["recv_bytes_max"]);
  plan["certificate"]["kind"] = "lower_bound";
  CHECK(WrongWith(plan) != "");
  plan["certificate"]["kind"] = "certain";
  CHECK(WrongWith(plan) != "");
  plan["certificate"]["kind"] = "best_found";
  CHECK(WrongWith(plan) == "");
}

}  // namespace reshard::testing
