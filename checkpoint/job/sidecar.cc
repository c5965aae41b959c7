#include "checkpoint/job/sidecar.h"

#include <limits>
#include <new>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "checkpoint/io/show.h"
#include "reshard/planner/version.h"

namespace reshard {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kSchema = "reshard.sidecar/1";

std::string Dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

ContentHash HashAt(const Json& json) {
  ContentHash hash;
  if (!ContentHash::FromText(json.get_ref<const std::string&>(), &hash)) throw std::invalid_argument("a bad hash");
  return hash;
}

int64_t NumberAt(const Json& json) {
  if (!json.is_number_integer() || json < 0 || json > std::numeric_limits<int64_t>::max()) {
    throw std::invalid_argument("a position is no whole number from 0 to 2^63 - 1");
  }
  return json.get<int64_t>();
}

Sidecar Read(const Json& content) {
  if (content.at("schema") != kSchema) throw std::invalid_argument("another schema");
  Sidecar sidecar;
  sidecar.job = content.at("job").get<std::string>();
  sidecar.mesh = content.at("mesh").get<std::string>();
  for (const Json& header : content.at("headers")) {
    sidecar.headers.emplace_back(header.at(0).get<std::string>(), HashAt(header.at(1)));
  }
  for (const Json& tensor : content.at("tensors")) {
    sidecar.tensors.push_back({tensor.at(0).get<std::string>(), tensor.at(1).get<std::string>(),
                               tensor.size() > 2 ? tensor.at(2).get<std::string>() : sidecar.mesh});
  }
  for (const Json& chunk : content.at("chunks")) {
    sidecar.chunks.push_back(
        {chunk.at(0).get<std::string>(), NumberAt(chunk.at(1)), NumberAt(chunk.at(2)), HashAt(chunk.at(3))});
  }
  return sidecar;
}

}  // namespace

std::string Sidecar::ToJson() const {
  Json content = {{"schema", kSchema}, {"reshard_version", Version()}, {"job", job}, {"mesh", mesh}};
  Json& header_list = content["headers"] = Json::array();
  for (const auto& [file, hash] : headers) header_list.push_back(Json::array({file, hash.ToText()}));
  Json& tensor_list = content["tensors"] = Json::array();
  for (const Tensor& tensor : tensors) {
    tensor_list.push_back(Json::array({tensor.name, tensor.layout}));
    if (tensor.mesh != mesh) tensor_list.back().push_back(tensor.mesh);
  }
  Json& chunk_list = content["chunks"] = Json::array();
  for (const Chunk& chunk : chunks) {
    chunk_list.push_back(Json::array({chunk.file, chunk.at, chunk.length, chunk.hash.ToText()}));
  }
  const std::string text = Dump(content);
  return absl::StrCat("{\"content\":", text, ",\"hash\":\"", ContentHash::Of(text).ToText(), "\"}\n");
}

absl::StatusOr<Sidecar> Sidecar::Parse(std::string_view json) {
  const auto refuse = [](std::string_view reason) {
    return absl::DataLossError(absl::StrCat(std::string(kSidecarName), " is damaged: ", std::string(reason)));
  };
  // The hash is of the text as it is written, so the content is found as text.
  constexpr std::string_view kHead = "{\"content\":";
  constexpr std::string_view kMiddle = ",\"hash\":\"";
  constexpr std::string_view kTail = "\"}\n";
  constexpr size_t kHash = 32;
  const size_t frame = kHead.size() + kMiddle.size() + kHash + kTail.size();
  if (json.size() < frame || json.substr(0, kHead.size()) != kHead || !json.ends_with(kTail)) {
    return refuse("not of the form that this library writes");
  }
  const std::string_view content = json.substr(kHead.size(), json.size() - frame);
  const std::string_view rest = json.substr(kHead.size() + content.size());
  ContentHash hash;
  if (rest.substr(0, kMiddle.size()) != kMiddle || !ContentHash::FromText(rest.substr(kMiddle.size(), kHash), &hash)) {
    return refuse("not of the form that this library writes");
  }
  if (hash != ContentHash::Of(content)) return refuse("its content does not have the hash that it says");
  try {
    return Read(Json::parse(content));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat(std::string(kSidecarName), ": out of memory while reading it"));
  } catch (const std::exception& error) {
    return refuse(Shown(error.what()));  // it repeats what it has read
  }
}

}  // namespace reshard
