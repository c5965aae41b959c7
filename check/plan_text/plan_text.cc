#include "check/plan_text/plan_text.h"

#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "check/plan_text/reader.h"
#include "reshard/layout/mesh.h"

namespace reshard::plan_text {
namespace {

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
  out.nic_bytes_max = in.Count("nic_bytes_max", /*required=*/false);
  out.recv_bytes_total = in.Count("recv_bytes_total");
  return out;
}

class PlanReader {
 public:
  explicit PlanReader(json::Value json) : json_(json) {}

  ReadPlan Run() {
    if (!json_.is_object()) return Refused("a plan is a JSON object");
    if (json_.Find("error") && !json_.Find("steps")) {
      SetName();
      return Refused("the planner answered with an error: there is no plan");
    }
    const auto schema = json_.Find("schema");
    plan().strict = schema.has_value();
    if (schema && schema->Text() != "reshard.plan/1") {
      return Refused(absl::StrCat("\"schema\" is ", schema->Shown(), "; reshard.plan/1 can be judged"));
    }
    for (const char* key : {"mesh", "source", "target", "dtype"}) {
      const auto value = json_.Find(key);
      if (value && value->is_string()) continue;
      if (value && value->is_null() && json_.Find(std::string(key) + "_hash")) {
        return Refused(absl::StrCat("\"", key, "\" is not a layout but a hash; there is nothing to derive from"));
      }
      return Refused(absl::StrCat("\"", key, "\" is missing or not a string"));
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
    if (!ReadShape(in)) return Refused("\"shape\" is missing or not a list of sizes");
    if (const auto options = in.Object("options", true)) ReadOptions(*options);
    if (!ReadSteps(in)) return std::move(out_);
    if (const auto chunks = in.Object("chunks", false)) ReadChunks(*chunks);
    if (const auto totals = in.Object("totals", true)) ReadTotals(*totals);
    if (const auto bounds = in.Object("bounds", true)) ReadBounds(*bounds);
    if (const auto certificate = in.Object("certificate", true)) ReadCertificate(*certificate);
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
    if (const auto id = json_.Find("id")) plan().name = id->Shown();
  }

  bool ReadShape(Reader& in) {
    const auto shape = in.Get("shape");
    if (!shape || !shape->is_array()) return false;
    for (size_t d = 0; d < shape->size(); ++d) {
      const Figure n = shape->at(d).Count();
      if (!n) return false;
      plan().shape.push_back(*n);
    }
    return true;
  }

  void ReadOptions(json::Value json) {
    Reader in(json, "options", plan().strict, out_.findings);
    if (const auto objective = in.Text("objective", true)) {
      const bool known = *objective == "time" || *objective == "bytes" || *objective == "steps";
      if (!known) in.Find("objective", *objective, "it should be time, bytes or steps");
    }
    plan().ops = in.Texts("ops", true);
    if (const auto boxes = in.Get("boxes")) {
      plan().boxes = boxes->Bool().value_or(false);
      if (!boxes->Bool()) in.Find("boxes", boxes->Shown(), "it should be true or false");
    }
    if (const auto overlap = in.Get("overlap")) {
      if (!overlap->Bool()) in.Find("overlap", overlap->Shown(), "it should be true or false");
      plan().overlap = overlap->Bool().value_or(true);
    }
    const auto limit = in.Get("memory_limit_bytes", true);
    if (limit && !limit->is_null()) plan().memory_limit_bytes = in.Count("memory_limit_bytes");
    if (const auto topology = in.Object("topology", true)) ReadTopology(*topology);
    in.Rest();
  }

  // Anything odd leaves the flat network, and is a finding.
  void ReadTopology(json::Value json) {
    Reader in(json, "options.topology", plan().strict, out_.findings);
    in.Text("name", true);
    const auto list = in.List("levels", true);
    in.Rest();
    if (!list) return;
    constexpr size_t kMostLevels = 16;
    std::vector<Level> levels;
    for (size_t i = 0; i < list->size() && i < kMostLevels; ++i) {
      const json::Value entry = list->at(i);
      const auto number = [&](const char* key) {
        const auto value = entry.Find(key);
        return value ? value->Number().value_or(-1) : -1.0;
      };
      const auto count = [&](const char* key) {
        const auto value = entry.Find(key);
        return value && !value->is_null() ? value->Count().value_or(-1) : 0;
      };
      if (!entry.is_object()) break;
      Reader keys(entry, in.Where("levels", i), plan().strict, out_.findings);
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
      in.Find("levels", list->Shown(),
              "it should list 1 to 16 levels of devices (nested, null on the last), gb_per_s and latency_us");
      return;
    }
    plan().links.levels = std::move(levels);
  }

  bool ReadSteps(Reader& in) {
    const auto steps = in.Get("steps", true);
    const auto refuse = [&](const std::string& reason) {
      out_.status = absl::InvalidArgumentError(reason);
      return false;
    };
    if (!steps || !steps->is_array()) return refuse("\"steps\" is missing or not a list");
    constexpr size_t kMostSteps = 1000;
    if (steps->size() > kMostSteps) return refuse(absl::StrCat("more than ", kMostSteps, " steps"));
    for (size_t s = 0; s < steps->size(); ++s) {
      const json::Value json = steps->at(s);
      if (!json.is_object()) return refuse(absl::StrCat("steps[", s, "] is not an object"));
      for (const char* key : {"op", "from", "to"}) {
        const auto value = json.Find(key);
        if (!value || !value->is_string()) {
          return refuse(absl::StrCat("steps[", s, "].", key, " is missing or not a string"));
        }
      }
      ReadStep(json, s);
    }
    return true;
  }

  void ReadStep(json::Value json, size_t s) {
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
    step.levels = in.Objects<LevelText>("levels", false, ReadLevel);
    in.Rest();
  }

  void ReadChunks(json::Value json) {
    Reader in(json, "chunks", true, out_.findings);
    const auto count = in.Count("count", true, 2);
    const auto dimension = in.Count("dimension");
    const auto block = in.Count("block", true, 1);
    if (count && dimension && block) plan().chunks = ChunksText{*count, *dimension, *block};
    in.Rest();
  }

  void ReadTotals(json::Value json) {
    Reader in(json, "totals", plan().strict, out_.findings);
    plan().recv_bytes_max = in.Count("recv_bytes_max");
    plan().recv_bytes_total = in.Count("recv_bytes_total");
    plan().intermediate_bytes_max = in.Count("intermediate_bytes_max");
    plan().peak_bytes = in.Count("peak_bytes");
    plan().time_ns = in.Count("time_ns");
    plan().levels = in.Objects<LevelText>("levels", false, ReadLevel);
    in.Rest();
  }

  void ReadBounds(json::Value json) {
    Reader in(json, "bounds", plan().strict, out_.findings);
    plan().bound_recv_bytes_max = in.Count("recv_bytes_max");
    plan().bound_recv_bytes_total = in.Count("recv_bytes_total");
    plan().bound_intermediate_bytes_max = in.Count("intermediate_bytes_max");
    plan().bound_levels = in.Objects<LevelBoundText>("levels", false, ReadLevelBound);
    in.Rest();
  }

  void ReadCertificate(json::Value json) {
    Reader in(json, "certificate", plan().strict, out_.findings);
    plan().certificate = in.Text("kind", true);
    in.Text("detail", true);
    in.Rest();
  }

  void ReadAlternatives(Reader& in) {
    in.Objects<int>("alternatives", true, [](Reader& entry) {
      entry.Texts("ops", true);
      entry.Count("recv_bytes_max");
      entry.Count("intermediate_bytes_max");
      entry.Count("time_ns");
      entry.Count("chunks", false, 2);
      entry.Text("rejected_because", true);
      return 0;
    });
  }

  void ReadPieces(Reader& in) {
    const auto list = in.List("pieces", false);
    if (!list) return;
    plan().pieces.emplace();
    for (size_t i = 0; i < list->size(); ++i) {
      const json::Value json = list->at(i);
      PieceText piece;
      bool fits = json.is_array() && json.size() == 5;
      const auto take = [&](json::Value value, int64_t& into) {
        const Figure n = value.Count();
        fits = fits && n;
        into = n.value_or(0);
      };
      // As many as the layouts have dimensions, which are fewer than the tensor's where some are flattened.
      const size_t rank = fits && json.at(3).is_array() ? json.at(3).size() : 0;
      fits = fits && rank <= plan().shape.size();
      const auto take_all = [&](json::Value values, size_t first) {
        fits = fits && values.is_array() && values.size() == rank;
        for (size_t d = 0; fits && d < rank; ++d) take(values.at(d), piece.sizes[first + d]);
      };
      if (fits) {
        piece.sizes.resize(2 * rank);
        take(json.at(0), piece.step);
        take(json.at(1), piece.sender);
        take(json.at(2), piece.receiver);
        take_all(json.at(3), 0);
        take_all(json.at(4), rank);
      }
      if (!fits) {
        out_.findings.push_back({absl::StrCat("pieces[", i, "]"), json.Shown(), "",
                                 "it should be [step, sender, receiver, [offset...], [size...]]"});
        plan().pieces.reset();
        return;
      }
      plan().pieces->push_back(std::move(piece));
    }
  }

  const json::Value json_;
  ReadPlan out_;
};

}  // namespace

ReadPlan ReadOne(json::Value json) { return PlanReader(json).Run(); }

}  // namespace reshard::plan_text
