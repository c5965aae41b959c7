#include "check/plan_text.h"

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "reshard/layout/mesh.h"

namespace reshard::check {
namespace {

using Json = nlohmann::json;

std::string Shown(const Json& value) {
  if (value.is_structured() && value.size() > 16) return absl::StrCat("a list of ", value.size());
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  constexpr size_t kMost = 80;
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return text;
}

// Reads the members of one object. What is required and absent, ill-typed or unknown is a finding; figures that a plan
// may leave out come back empty.
class Reader {
 public:
  Reader(const Json& object, std::string where, bool strict, std::vector<Finding>& findings)
      : object_(object), where_(std::move(where)), strict_(strict), findings_(findings) {}

  // Members that were asked for are known; call at the end.
  void Rest() {
    for (const auto& [key, value] : object_.items()) {
      if (known_.contains(key) || !strict_) continue;
      Find(key, Shown(value), "", "unknown key");
    }
  }

  const Json* Get(const char* key, bool required = false) {
    known_[key] = true;
    const auto it = object_.find(key);
    if (it != object_.end()) return &*it;
    if (required && strict_) Find(key, "", "", "the key is missing");
    return nullptr;
  }

  Figure Count(const char* key, bool required = true, int64_t least = 0) {
    const Json* value = Get(key, required);
    if (value == nullptr) return std::nullopt;
    const Figure out = AsCount(*value);
    if (out && *out >= least) return out;
    Find(key, Shown(*value), "", absl::StrCat("it should be a whole number of at least ", least, " that fits 64 bits"));
    return std::nullopt;
  }

  std::optional<std::string> Text(const char* key, bool required) {
    const Json* value = Get(key, required);
    if (value == nullptr) return std::nullopt;
    if (value->is_string()) return value->get<std::string>();
    Find(key, Shown(*value), "", "it should be a string");
    return std::nullopt;
  }

  std::optional<std::vector<std::string>> Texts(const char* key, bool required) {
    const Json* value = List(key, required);
    if (value == nullptr) return std::nullopt;
    std::vector<std::string> out;
    for (const Json& entry : *value) {
      if (!entry.is_string()) {
        Find(key, Shown(*value), "", "it should be a list of strings");
        return std::nullopt;
      }
      out.push_back(entry.get<std::string>());
    }
    return out;
  }

  const Json* List(const char* key, bool required) {
    const Json* value = Get(key, required);
    if (value == nullptr || value->is_array()) return value;
    Find(key, Shown(*value), "", "it should be a list");
    return nullptr;
  }

  const Json* Object(const char* key, bool required) {
    const Json* value = Get(key, required);
    if (value == nullptr || value->is_object()) return value;
    Find(key, Shown(*value), "", "it should be an object");
    return nullptr;
  }

  void Find(std::string_view key, std::string said, std::string is, std::string why) {
    const std::string at = where_.empty() ? std::string(key) : absl::StrCat(where_, ".", std::string(key));
    findings_.push_back({at, std::move(said), std::move(is), std::move(why)});
  }

  static Figure AsCount(const Json& value) {
    if (value.is_number_unsigned()) {
      const auto n = value.get<uint64_t>();
      return n <= static_cast<uint64_t>(INT64_MAX) ? Figure(static_cast<int64_t>(n)) : std::nullopt;
    }
    return std::nullopt;  // negative, a fraction, or no number at all
  }

  std::string where_of(std::string_view key, size_t i) const {
    return absl::StrCat(where_.empty() ? "" : where_ + ".", std::string(key), "[", i, "]");
  }

 private:
  const Json& object_;
  const std::string where_;
  const bool strict_;
  std::vector<Finding>& findings_;
  std::map<std::string, bool, std::less<>> known_;
};

// A list of objects, each read by `read(reader)`. Nothing when the list is absent or an entry is no object.
template <typename Entry, typename Read>
std::optional<std::vector<Entry>> Objects(Reader& in, const char* key, bool strict, std::vector<Finding>& findings,
                                          const Read& read) {
  const Json* list = in.List(key, false);
  if (list == nullptr) return std::nullopt;
  std::vector<Entry> out;
  for (size_t i = 0; i < list->size(); ++i) {
    if (!(*list)[i].is_object()) {
      findings.push_back({in.where_of(key, i), Shown((*list)[i]), "", "it should be an object"});
      return std::nullopt;
    }
    Reader entry((*list)[i], in.where_of(key, i), strict, findings);
    out.push_back(read(entry));
    entry.Rest();
  }
  return out;
}

LevelText ReadLevel(Reader& in) {
  LevelText out;
  out.recv_bytes_max = in.Count("recv_bytes_max");
  out.send_bytes_max = in.Count("send_bytes_max");
  out.recv_bytes_total = in.Count("recv_bytes_total");
  out.nic_bytes_max = in.Count("nic_bytes_max");
  out.peers_max = in.Count("peers_max");
  return out;
}

LevelBoundText ReadLevelBound(Reader& in) {
  LevelBoundText out;
  out.island_recv_bytes_max = in.Count("island_recv_bytes_max");
  out.nic_recv_bytes_max = in.Count("nic_recv_bytes_max");
  out.recv_bytes_total = in.Count("recv_bytes_total");
  return out;
}

class PlanReader {
 public:
  explicit PlanReader(const Json& json) : json_(json) {}

  ReadPlan Run() {
    if (!json_.is_object()) return Refused("a plan is a JSON object");
    if (json_.contains("error") && !json_.contains("steps")) {
      SetName();
      return Refused("the planner answered with an error, there is no plan");
    }
    plan().strict = json_.contains("schema");
    if (plan().strict && json_["schema"] != "reshard.plan/1") {
      return Refused(absl::StrCat("\"schema\" is ", Shown(json_["schema"]), "; reshard.plan/1 can be judged"));
    }
    for (const char* key : {"mesh", "source", "target", "dtype"}) {
      if (json_.contains(key) && json_[key].is_string()) continue;
      const bool hashed = json_.contains(key) && json_[key].is_null() && json_.contains(std::string(key) + "_hash");
      if (hashed)
        return Refused(absl::StrCat("\"", key, "\" is no layout but a hash; there is nothing to derive from"));
      return Refused(absl::StrCat("\"", key, "\" is missing or no string"));
    }
    Reader in(json_, "", plan().strict, out_.findings);
    in.Get("schema");
    in.Text("reshard_version", true);
    SetName();
    in.Get("id");
    plan().mesh = *in.Text("mesh", true);
    plan().source = *in.Text("source", true);
    plan().target = *in.Text("target", true);
    plan().dtype = *in.Text("dtype", true);
    plan().target_mesh = in.Text("target_mesh", false);
    plan().world = in.Count("world", true, 1);
    if (!ReadShape(in)) return Refused("\"shape\" is missing or no list of sizes");
    if (const Json* options = in.Object("options", true)) ReadOptions(*options);
    if (!ReadSteps(in)) return std::move(out_);
    if (const Json* totals = in.Object("totals", true)) ReadTotals(*totals);
    if (const Json* bounds = in.Object("bounds", true)) ReadBounds(*bounds);
    if (const Json* certificate = in.Object("certificate", true)) ReadCertificate(*certificate);
    ReadAlternatives(in);
    ReadPieces(in);
    in.Rest();
    return std::move(out_);
  }

 private:
  PlanText& plan() { return out_.plan; }
  ReadPlan Refused(const std::string& reason) {
    out_.status = absl::InvalidArgumentError(reason);
    return std::move(out_);
  }
  void SetName() {
    if (json_.contains("id")) plan().name = Shown(json_["id"]);
  }

  bool ReadShape(Reader& in) {
    const Json* shape = in.Get("shape");
    if (shape == nullptr || !shape->is_array()) return false;
    for (const Json& size : *shape) {
      const Figure n = Reader::AsCount(size);
      if (!n) return false;
      plan().shape.push_back(*n);
    }
    return true;
  }

  void ReadOptions(const Json& json) {
    Reader in(json, "options", plan().strict, out_.findings);
    if (const auto objective = in.Text("objective", true)) {
      const bool known = *objective == "time" || *objective == "bytes" || *objective == "steps";
      if (!known) in.Find("objective", *objective, "", "it should be time, bytes or steps");
    }
    plan().ops = in.Texts("ops", true);
    if (const Json* boxes = in.Get("boxes")) {
      plan().boxes = boxes->is_boolean() && boxes->get<bool>();
      if (!boxes->is_boolean()) in.Find("boxes", Shown(*boxes), "", "it should be true or false");
    }
    const Json* limit = in.Get("memory_limit_bytes", true);
    if (limit != nullptr && !limit->is_null()) plan().memory_limit_bytes = in.Count("memory_limit_bytes");
    if (const Json* topology = in.Object("topology", true)) ReadTopology(*topology);
    in.Rest();
  }

  // Anything odd leaves the flat network, and is a finding.
  void ReadTopology(const Json& json) {
    Reader in(json, "options.topology", plan().strict, out_.findings);
    in.Text("name", true);
    const Json* list = in.List("levels", true);
    in.Rest();
    if (list == nullptr) return;
    constexpr size_t kMostLevels = 16;
    std::vector<Level> levels;
    for (size_t i = 0; i < list->size() && i < kMostLevels; ++i) {
      const Json& entry = (*list)[i];
      const auto number = [&](const char* key) {
        return entry.contains(key) && entry[key].is_number() ? entry[key].get<double>() : -1.0;
      };
      const auto count = [&](const char* key) {
        return entry.contains(key) && !entry[key].is_null() ? Reader::AsCount(entry[key]).value_or(-1) : 0;
      };
      if (!entry.is_object()) break;
      Reader keys(entry, in.where_of("levels", i), plan().strict, out_.findings);
      for (const char* key : {"devices", "gb_per_s", "latency_us"}) keys.Get(key, true);
      keys.Get("nics");
      keys.Rest();
      const double bandwidth = number("gb_per_s");
      const double latency = number("latency_us");
      Level level;
      level.devices = count("devices");
      level.nics = count("nics");
      const bool last = i + 1 == list->size();
      const int64_t inside = levels.empty() ? 1 : levels.back().devices;
      const bool fits = bandwidth >= 1e-6 && bandwidth <= 1e6 && latency >= 0 && latency <= 1e9 && level.nics >= 0 &&
                        level.devices >= 0 && level.devices <= kMaxDeviceId &&
                        (last || (level.devices > 0 && level.devices % inside == 0)) &&
                        (level.nics == 0 || inside % level.nics == 0);
      if (!fits) break;
      level.bytes_per_second = std::llround(bandwidth * 1e9);
      level.latency_ns = std::llround(latency * 1e3);
      levels.push_back(level);
    }
    if (levels.empty() || levels.size() != list->size()) {
      in.Find("levels", Shown(*list), "",
              "it should list 1 to 16 levels of devices (nested, null on the last), gb_per_s and latency_us");
      return;
    }
    plan().links.levels = std::move(levels);
  }

  bool ReadSteps(Reader& in) {
    const Json* steps = in.Get("steps", true);
    const auto refuse = [&](const std::string& reason) {
      out_.status = absl::InvalidArgumentError(reason);
      return false;
    };
    if (steps == nullptr || !steps->is_array()) return refuse("\"steps\" is missing or no list");
    constexpr size_t kMostSteps = 1000;
    if (steps->size() > kMostSteps) return refuse(absl::StrCat("more than ", kMostSteps, " steps"));
    for (size_t s = 0; s < steps->size(); ++s) {
      const Json& json = (*steps)[s];
      if (!json.is_object()) return refuse(absl::StrCat("steps[", s, "] is no object"));
      for (const char* key : {"op", "from", "to"}) {
        if (!json.contains(key) || !json[key].is_string()) {
          return refuse(absl::StrCat("steps[", s, "].", key, " is missing or no string"));
        }
      }
      ReadStep(json, s);
    }
    return true;
  }

  void ReadStep(const Json& json, size_t s) {
    Reader in(json, absl::StrCat("steps[", s, "]"), plan().strict, out_.findings);
    StepText& step = plan().steps.emplace_back();
    step.op = *in.Text("op", true);
    step.from = *in.Text("from", true);
    step.to = *in.Text("to", true);
    step.from_mesh = in.Text("from_mesh", false);
    step.to_mesh = in.Text("to_mesh", false);
    step.axes = in.Texts("axes", true);
    step.group_size = in.Count("group_size");
    step.recv_bytes_max = in.Count("recv_bytes_max");
    step.recv_bytes_total = in.Count("recv_bytes_total");
    step.send_bytes_max = in.Count("send_bytes_max");
    step.local_bytes_before_max = in.Count("local_bytes_before_max");
    step.local_bytes_after_max = in.Count("local_bytes_after_max");
    step.peers_max = in.Count("peers_max");
    step.rounds = in.Count("rounds", false, 1);
    step.time_ns = in.Count("time_ns");
    in.Count("first_holder", false);
    step.levels = Objects<LevelText>(in, "levels", plan().strict, out_.findings, ReadLevel);
    in.Rest();
  }

  void ReadTotals(const Json& json) {
    Reader in(json, "totals", plan().strict, out_.findings);
    plan().recv_bytes_max = in.Count("recv_bytes_max");
    plan().recv_bytes_total = in.Count("recv_bytes_total");
    plan().intermediate_bytes_max = in.Count("intermediate_bytes_max");
    plan().peak_bytes = in.Count("peak_bytes");
    plan().time_ns = in.Count("time_ns");
    plan().levels = Objects<LevelText>(in, "levels", plan().strict, out_.findings, ReadLevel);
    in.Rest();
  }

  void ReadBounds(const Json& json) {
    Reader in(json, "bounds", plan().strict, out_.findings);
    plan().bound_recv_bytes_max = in.Count("recv_bytes_max");
    plan().bound_recv_bytes_total = in.Count("recv_bytes_total");
    plan().bound_intermediate_bytes_max = in.Count("intermediate_bytes_max");
    plan().bound_levels = Objects<LevelBoundText>(in, "levels", plan().strict, out_.findings, ReadLevelBound);
    in.Rest();
  }

  void ReadCertificate(const Json& json) {
    Reader in(json, "certificate", plan().strict, out_.findings);
    plan().certificate = in.Text("kind", true);
    in.Text("detail", true);
    in.Rest();
  }

  void ReadAlternatives(Reader& in) {
    const bool strict = plan().strict;
    if (in.Get("alternatives", true) == nullptr) return;
    Objects<int>(in, "alternatives", strict, out_.findings, [](Reader& entry) {
      entry.Texts("ops", true);
      entry.Count("recv_bytes_max");
      entry.Count("intermediate_bytes_max");
      entry.Count("time_ns");
      entry.Text("rejected_because", true);
      return 0;
    });
  }

  void ReadPieces(Reader& in) {
    const Json* list = in.List("pieces", false);
    if (list == nullptr) return;
    const size_t rank = plan().shape.size();
    plan().pieces.emplace();
    for (size_t i = 0; i < list->size(); ++i) {
      const Json& json = (*list)[i];
      bool fits = json.is_array() && json.size() == 5 && json[3].is_array() && json[4].is_array() &&
                  json[3].size() == rank && json[4].size() == rank;
      PieceText piece;
      const auto take = [&](const Json& value, int64_t& into) {
        const Figure n = Reader::AsCount(value);
        fits = fits && n;
        into = n.value_or(0);
      };
      if (fits) {
        take(json[0], piece.step);
        take(json[1], piece.sender);
        take(json[2], piece.receiver);
        piece.sizes.resize(2 * rank);
        for (size_t d = 0; d < rank; ++d) {
          take(json[3][d], piece.sizes[d]);
          take(json[4][d], piece.sizes[rank + d]);
        }
      }
      if (!fits) {
        out_.findings.push_back({absl::StrCat("pieces[", i, "]"), Shown(json), "",
                                 "it should be [step, sender, receiver, [offset...], [size...]]"});
        plan().pieces.reset();
        return;
      }
      plan().pieces->push_back(std::move(piece));
    }
  }

  const Json& json_;
  ReadPlan out_;
};

// Whoever copies or prints a tower of brackets exhausts the stack.
bool NestsTooDeep(std::string_view text) {
  constexpr int kMostLevels = 64;
  int level = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
      continue;
    }
    quoted = c == '"';
    if (c == '[' || c == '{') ++level;
    if (c == ']' || c == '}') --level;
    if (level > kMostLevels) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<ReadPlans> ReadText(std::string_view text) {
  if (text.size() > kMaxPlanText) {
    return absl::ResourceExhaustedError(absl::StrCat("the text has more than ", kMaxPlanText, " bytes"));
  }
  if (NestsTooDeep(text)) return absl::InvalidArgumentError("the text nests too deep for a plan");
  ReadPlans out;
  const Json whole = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!whole.is_discarded()) {
    const bool is_batch = whole.is_object() && whole.contains("schema") && whole["schema"] == "reshard.batch/1";
    if (!is_batch) {
      out.plans.push_back(PlanReader(whole).Run());
      return out;
    }
    if (!whole.contains("plans") || !whole["plans"].is_array()) {
      return absl::InvalidArgumentError("a batch needs \"plans\", a list");
    }
    out.batch = true;
    for (const Json& plan : whole["plans"]) out.plans.push_back(PlanReader(plan).Run());
    return out;
  }
  // One plan a line, as `reshard plan --batch` prints them.
  out.batch = true;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded()) {
      if (out.plans.empty()) return absl::InvalidArgumentError("the text is neither JSON nor lines of JSON");
      out.plans.push_back({absl::InvalidArgumentError("the line is not JSON"), {}, {}});
      continue;
    }
    out.plans.push_back(PlanReader(json).Run());
  }
  if (out.plans.empty()) return absl::InvalidArgumentError("the text holds no plan");
  return out;
}

}  // namespace reshard::check
