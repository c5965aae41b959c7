#include "tests/property/facts_of_json.h"

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace reshard::testing {

using nlohmann::json;

int64_t ElementBytes(std::string_view dtype) {
  if (dtype == "bool") return 1;
  const size_t digits = dtype.find_first_of("0123456789");
  if (digits == std::string_view::npos) throw std::runtime_error("no element type: " + std::string(dtype));
  return std::stoll(std::string(dtype.substr(digits))) / 8;
}

oracle::PlanFacts FactsOfJson(std::string_view text) {
  const json plan = json::parse(text);
  oracle::PlanFacts facts;
  facts.mesh = plan.at("mesh");
  facts.target_mesh = plan.value("target_mesh", facts.mesh);
  facts.source = plan.at("source");
  facts.target = plan.at("target");
  facts.world = plan.at("world");
  facts.element_bytes = ElementBytes(plan.at("dtype").get<std::string>());
  const json& options = plan.at("options");
  facts.objective = options.at("objective");
  if (!options.at("memory_limit_bytes").is_null()) facts.memory_limit_bytes = options.at("memory_limit_bytes");
  std::string mesh = facts.mesh;
  for (const json& step : plan.at("steps")) {
    oracle::StepFacts& out = facts.steps.emplace_back();
    out.op = step.at("op");
    out.axes = step.at("axes").get<std::vector<std::string>>();
    out.from_mesh = step.value("from_mesh", mesh);
    out.from = step.at("from");
    out.to_mesh = step.value("to_mesh", mesh);
    out.to = step.at("to");
    if (out.from_mesh != mesh) throw std::runtime_error("a step starts on another mesh than the one before ended on");
    if (step.contains("from_mesh") != (out.from_mesh != out.to_mesh)) {
      throw std::runtime_error("from_mesh and to_mesh belong to steps between meshes");
    }
    mesh = out.to_mesh;
    out.group_size = step.at("group_size");
    out.recv_bytes_max = step.at("recv_bytes_max");
    out.recv_bytes_total = step.at("recv_bytes_total");
    out.send_bytes_max = step.at("send_bytes_max");
    out.local_bytes_before_max = step.at("local_bytes_before_max");
    out.local_bytes_after_max = step.at("local_bytes_after_max");
    out.peers_max = step.at("peers_max");
    out.time_ns = step.at("time_ns");
  }
  for (const json& piece : plan.value("pieces", json::array())) {
    facts.pieces.push_back({piece.at(0), piece.at(1), piece.at(2), piece.at(3).get<std::vector<int64_t>>(),
                            piece.at(4).get<std::vector<int64_t>>()});
  }
  if (plan.contains("chunks")) {
    facts.chunks = plan.at("chunks").at("count");
    facts.chunk_dim = plan.at("chunks").at("dimension");
    facts.chunk_block = plan.at("chunks").at("block");
  }
  const json& totals = plan.at("totals");
  facts.recv_bytes_max = totals.at("recv_bytes_max");
  facts.recv_bytes_total = totals.at("recv_bytes_total");
  facts.intermediate_bytes_max = totals.at("intermediate_bytes_max");
  facts.peak_bytes = totals.at("peak_bytes");
  facts.time_ns = totals.at("time_ns");
  const json& bounds = plan.at("bounds");
  facts.bound_recv_bytes_max = bounds.at("recv_bytes_max");
  facts.bound_recv_bytes_total = bounds.at("recv_bytes_total");
  facts.bound_intermediate_bytes_max = bounds.at("intermediate_bytes_max");
  facts.certificate = plan.at("certificate").at("kind");
  return facts;
}

}  // namespace reshard::testing
