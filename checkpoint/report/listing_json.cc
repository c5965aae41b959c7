// A listing as JSON: docs/inspect.schema.json.
#include <nlohmann/json.hpp>

#include "reshard/checkpoint/describe.h"
#include "reshard/checkpoint/report.h"

namespace reshard {
namespace {

using OrderedJson = nlohmann::ordered_json;

// JSON cannot represent names that are not UTF-8: invalid bytes become U+FFFD.
std::string Dump(const OrderedJson& json) { return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace); }

OrderedJson Numbers(absl::Span<const int64_t> numbers) {
  OrderedJson list = OrderedJson::array();
  for (const int64_t number : numbers) list.push_back(number);
  return list;
}

OrderedJson Tensor(const Listing& listing, const Catalog::Tensor& tensor, bool with_chunks) {
  const Catalog& catalog = *listing.catalog;
  const RecordedLayout* const recorded = LayoutOf(listing, tensor);
  OrderedJson out;
  out["name"] = tensor.name;
  out["shape"] = Numbers(tensor.shape);
  out["dtype"] = DTypeText(tensor);
  out["bytes"] = catalog.BytesOf(tensor);
  out["num_chunks"] = tensor.num_chunks;
  out["mesh"] = recorded == nullptr ? OrderedJson(nullptr) : OrderedJson(recorded->mesh);
  out["layout"] = recorded == nullptr ? OrderedJson(nullptr) : OrderedJson(recorded->layout);
  if (!with_chunks) return out;
  out["chunks"] = OrderedJson::array();
  for (int64_t i = 0; i < tensor.num_chunks; ++i) {
    const Catalog::Chunk chunk = catalog.chunk(tensor, i);
    out["chunks"].push_back({{"offset", Numbers(chunk.offset)},
                             {"size", Numbers(chunk.size)},
                             {"file", catalog.files()[chunk.place.file].path},
                             {"at", chunk.place.at},
                             {"length", chunk.place.length}});
  }
  return out;
}

}  // namespace

// Tensor by tensor: a tree of all of them would be many times as large as the text.
std::string ListingToJson(const Listing& listing, bool with_chunks) {
  std::string out =
      R"({"schema":"reshard.inspect/1","format":")" + std::string(Name(listing.catalog->format())) + R"(","tensors":[)";
  const char* comma = "";
  for (const Catalog::Tensor* tensor : listing.tensors) {
    out += comma + Dump(Tensor(listing, *tensor, with_chunks));
    comma = ",";
  }
  out += R"(],"byte_items":[)";
  comma = "";
  for (const Catalog::ByteItem* item : listing.byte_items) {
    out += comma + Dump({{"name", item->name}, {"length", item->place.length}});
    comma = ",";
  }
  out += R"(],"attributes":[)";
  comma = "";
  for (const Catalog::Attribute* attribute : listing.attributes) {
    OrderedJson one = {
        {"name", attribute->name}, {"of_files", attribute->of_files}, {"plain", !attribute->pickle.empty()}};
    if (attribute->is_opaque_value()) one["kind"] = attribute->kind;
    out += comma + Dump(one);
    comma = ",";
  }
  out += R"(],"side_files":[)";
  comma = "";
  for (const AuxiliaryFile& file : listing.beside.carried) {
    out += comma + Dump({{"path", file.path}, {"bytes", file.bytes}, {"may_run", file.may_run}});
    comma = ",";
  }
  out += R"(],"left_beside":)" + Dump(listing.beside.left);
  out += R"(,"totals":)" + Dump({{"tensors", listing.totals.tensors},
                                 {"chunks", listing.totals.chunks},
                                 {"bytes", listing.totals.bytes},
                                 {"files", listing.totals.files}});
  return out + "}\n";
}

}  // namespace reshard
