// Conversions, comparisons and fingerprints as JSON: docs/checkpoint.schema.json, docs/verify.schema.json,
// docs/fingerprint.schema.json.
#include <nlohmann/json.hpp>

#include "reshard/checkpoint/report.h"

namespace reshard {

namespace {

nlohmann::ordered_json ListOf(const std::vector<Wrapper>& wrappers) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Wrapper& wrapper : wrappers) {
    const bool is_part = wrapper.place == Wrapper::Position::kPart;
    list.push_back({{"text", wrapper.text}, {"place", is_part ? "part" : "prefix"}, {"names", wrapper.names}});
  }
  return list;
}

}  // namespace

std::string ConversionToJson(const ConvertSummary& summary, const ConversionTerms& terms) {
  const bool dry_run = terms.dry_run;
  nlohmann::ordered_json json = {
      {"schema", "reshard.checkpoint/1"}, {"dry_run", dry_run},
      {"tensors", summary.tensors},       {"byte_items", summary.byte_items},
      {"pieces", summary.pieces},         {"bytes", summary.bytes},
      {"files", summary.files},           {"disk_bytes", summary.disk_bytes},
      {"free_bytes", summary.free_bytes}, {"memory_bytes", summary.memory_bytes},
      {"workers", terms.workers},         {"worker_id", terms.worker},
      {"own_pieces", summary.own_pieces}, {"own_bytes", summary.own_bytes},
  };
  if (!dry_run) {
    json["peak_resident_bytes"] = terms.peak_resident_bytes;
    json["read_bytes"] = summary.read_bytes;
    json["kept_bytes"] = summary.kept_bytes;
    json["seconds"] = summary.seconds;
    json["was_complete"] = summary.was_complete;
    json["committed"] = summary.committed;
    json["verified"] = terms.verified && summary.committed;
  }
  json["left_out"] = summary.left_out;
  json["left_out_items"] = summary.left_out_items;
  json["not_selected"] = nlohmann::ordered_json::array();
  for (const LeftOut& one : summary.not_selected) {
    json["not_selected"].push_back(
        {{"container", one.container}, {"tensors", one.tensors}, {"values", one.values}, {"bytes", one.bytes}});
  }
  json["dropped_attributes"] = summary.dropped_attributes;
  nlohmann::ordered_json& side_files = json["side_files"] = nlohmann::ordered_json::array();
  for (const AuxiliaryFile& file : summary.side_files) {
    side_files.push_back({{"path", file.path}, {"to", file.to}, {"bytes", file.bytes}, {"may_run", file.may_run}});
  }
  json["left_beside"] = summary.left_beside;
  json["partly_used"] = summary.partly_used;
  json["cast_unscaled"] = summary.cast_unscaled;
  json["left_quantized"] = summary.left_quantized;
  json["contradictions"] = summary.contradictions;
  json["taken_off"] = ListOf(summary.taken_off);
  json["warnings"] = summary.warnings;
  if (dry_run) {
    nlohmann::ordered_json& planned = json["planned"] = nlohmann::ordered_json::array();
    for (const PlannedTensor& tensor : summary.planned) {
      planned.push_back({{"name", tensor.name},
                         {"from", tensor.from},
                         {"dtype", std::string(Name(tensor.dtype))},
                         {"shape", tensor.shape},
                         {"bytes", tensor.bytes}});
      if (!tensor.layout.empty()) planned.back()["layout"] = tensor.layout;
    }
  }
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string ComparisonToJson(const VerifyReport& report) {
  nlohmann::ordered_json json = {{"schema", "reshard.verify/1"},    {"equal", report.differences.empty()},
                                 {"tensors", report.tensors},       {"byte_items", report.byte_items},
                                 {"side_files", report.side_files}, {"bytes", report.bytes}};
  json["as_made"] = {{"weights_only", report.as_made_weights_only}, {"taken_off", ListOf(report.taken_off)}};
  nlohmann::ordered_json& list = json["differences"] = nlohmann::ordered_json::array();
  for (const VerifyReport::Difference& difference : report.differences) {
    list.push_back({{"name", difference.name}, {"what", difference.what}});
  }
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

// Tensor by tensor, as a listing.
std::string FingerprintToJson(const CheckpointFingerprint& taken) {
  const auto dump = [](const nlohmann::ordered_json& json) {
    return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  std::string out = R"({"schema":"reshard.fingerprint/1","fingerprint":")" + ToString(taken.fingerprint) +
                    R"(","bytes":)" + std::to_string(taken.bytes) + R"(,"tensors":[)";
  const char* comma = "";
  for (const CheckpointFingerprint::Tensor& tensor : taken.tensors) {
    out += comma + dump({{"name", tensor.name},
                         {"dtype", std::string(Name(tensor.dtype))},
                         {"shape", tensor.shape},
                         {"fingerprint", ToString(tensor.fingerprint)}});
    comma = ",";
  }
  return out + "]}\n";
}

}  // namespace reshard
