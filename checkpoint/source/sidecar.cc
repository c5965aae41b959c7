#include "checkpoint/source/sidecar.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/io/show.h"
#include "json/document.h"
#include "reshard/planner/version.h"
#include "status/macros.h"
#include "status/no_throw.h"

namespace reshard::source {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSchema = "reshard.sidecar/1";

std::string Dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

absl::Status Bad(absl::string_view what) { return absl::InvalidArgumentError(what); }

absl::StatusOr<std::string> TextOf(const json::Value& content, const char* name) {
  const std::optional<json::Value> text = content.Find(name);
  if (!text || !text->is_string()) return Bad(absl::StrCat("\"", name, "\" is missing or not a string"));
  return *text->Text();
}

// An entry of a list, read from left to right. After the first value that is not of the requested kind all values are
// empty, and why() says what was wrong.
class Entry {
 public:
  explicit Entry(const json::Value& value) : value_(value) {
    if (!value.is_array()) why_ = "not a list";
  }

  bool ok() const { return why_.empty(); }
  const std::string& why() const { return why_; }
  bool more() const { return ok() && next_ < value_.size(); }
  std::string Text() {
    return Take<std::string>("not a string", [](const json::Value& v) { return v.Text(); });
  }
  int64_t Count() {
    return Take<int64_t>("a position is not a whole number from 0 to 2^63 - 1",
                         [](const json::Value& v) { return v.Count(); });
  }
  hash::ContentHash Hash() {
    hash::ContentHash hash;
    const std::string text = Text();
    if (ok() && !hash::ContentHash::FromText(text, &hash)) why_ = "a bad hash";
    return hash;
  }

 private:
  template <typename T, typename Get>
  T Take(absl::string_view otherwise, const Get& get) {
    if (!ok()) return T();
    const std::optional<T> value = more() ? get(value_.at(next_++)) : std::nullopt;
    if (!value) why_ = std::string(otherwise);
    return value.value_or(T());
  }

  const json::Value value_;
  size_t next_ = 0;
  std::string why_;
};

// Calls read(entry) for every entry of the list `name`. Messages call an entry `one`.
template <typename F>
absl::Status ReadList(const json::Value& content, const char* name, const char* one, const F& read) {
  const std::optional<json::Value> list = content.Find(name);
  if (!list || !list->is_array()) return Bad(absl::StrCat("\"", name, "\" is missing or not a list"));
  for (size_t i = 0; i < list->size(); ++i) {
    Entry entry(list->at(i));
    read(entry);
    if (!entry.ok()) return Bad(absl::StrCat(one, " ", i, ": ", entry.why()));
  }
  return absl::OkStatus();
}

constexpr std::string_view kPart = "part", kPrefix = "prefix";

absl::StatusOr<Sidecar::Made> ReadMade(const json::Value& value) {
  Sidecar::Made made;
  const std::optional<json::Value> weights_only = value.is_object() ? value.Find("weights_only") : std::nullopt;
  const std::optional<bool> flag = weights_only ? weights_only->Bool() : std::nullopt;
  if (!flag) return Bad("\"made\" does not say whether it is weights only");
  made.weights_only = *flag;
  bool places_are_known = true;
  RETURN_IF_ERROR(ReadList(value, "taken_off", "wrapper", [&](Entry& entry) {
    std::string text = entry.Text();
    const std::string place = entry.Text();
    places_are_known = places_are_known && (place == kPart || place == kPrefix);
    const auto where = place == kPart ? Wrapper::Position::kPart : Wrapper::Position::kPrefix;
    made.taken_off.push_back({std::move(text), where, 0});
  }));
  if (!places_are_known) return Bad("something was taken off at an unknown place");
  return made;
}

absl::StatusOr<Sidecar> Read(const json::Value& content) {
  ASSIGN_OR_RETURN(const std::string schema, TextOf(content, "schema"));
  if (schema != kSchema) return Bad("another schema");
  Sidecar sidecar;
  ASSIGN_OR_RETURN(sidecar.job, TextOf(content, "job"));
  ASSIGN_OR_RETURN(sidecar.mesh, TextOf(content, "mesh"));
  // Braced initializers are evaluated from left to right.
  RETURN_IF_ERROR(ReadList(content, "headers", "header", [&](Entry& entry) {
    std::string file = entry.Text();
    sidecar.headers.emplace_back(std::move(file), entry.Hash());
  }));
  RETURN_IF_ERROR(ReadList(content, "tensors", "tensor", [&](Entry& entry) {
    sidecar.tensors.push_back({entry.Text(), entry.Text(), entry.more() ? entry.Text() : sidecar.mesh});
  }));
  RETURN_IF_ERROR(ReadList(content, "chunks", "chunk", [&](Entry& entry) {
    sidecar.chunks.push_back({entry.Text(), entry.Count(), entry.Count(), entry.Hash()});
  }));
  if (const std::optional<json::Value> made = content.Find("made")) {
    ASSIGN_OR_RETURN(sidecar.made, ReadMade(*made));
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
  if (made) {
    Json& of_made = content["made"] = {{"weights_only", made->weights_only}, {"taken_off", Json::array()}};
    for (const Wrapper& wrapper : made->taken_off) {
      of_made["taken_off"].push_back(
          Json::array({wrapper.text, wrapper.place == Wrapper::Position::kPart ? kPart : kPrefix}));
    }
  }
  const std::string text = Dump(content);
  return absl::StrCat("{\"content\":", text, ",\"hash\":\"", hash::ContentHash::Of(text).ToText(), "\"}\n");
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
  hash::ContentHash hash;
  if (rest.substr(0, kMiddle.size()) != kMiddle ||
      !hash::ContentHash::FromText(rest.substr(kMiddle.size(), kHash), &hash)) {
    return refuse("not of the form that this library writes");
  }
  if (hash != hash::ContentHash::Of(content)) return refuse("its content does not have the hash that it says");
  const absl::StatusOr<Sidecar> sidecar = status::NoThrow("reading the sidecar", [&]() -> absl::StatusOr<Sidecar> {
    ASSIGN_OR_RETURN(const json::Document parsed, json::Document::Parse(content));
    return Read(parsed.root());
  });
  if (sidecar.ok() || absl::IsResourceExhausted(sidecar.status())) return sidecar;
  return refuse(io::Shown(std::string(sidecar.status().message())));  // it quotes what was read
}

}  // namespace reshard::source
