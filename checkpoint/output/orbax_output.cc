#include "checkpoint/output/orbax_output.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "checkpoint/catalog/boxes.h"
#include "checkpoint/formats/listing/format.h"
#include "checkpoint/formats/orbax/format.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/show.h"
#include "reshard/layout/checked.h"
#include "reshard/layout/shard_map.h"
#include "reshard/layout/text.h"
#include "status/macros.h"
#include "status/no_throw.h"
#include "status/view.h"

namespace reshard::output {
namespace {

using Json = nlohmann::ordered_json;

// As tensorstore's driver for Zarr 2 calls them.
struct ZarrDType {
  DType dtype;
  const char* name;
};
constexpr ZarrDType kDTypes[] = {
    {DType::kBool, "|b1"},
    {DType::kI8, "|i1"},
    {DType::kI16, "<i2"},
    {DType::kI32, "<i4"},
    {DType::kI64, "<i8"},
    {DType::kU8, "|u1"},
    {DType::kU16, "<u2"},
    {DType::kU32, "<u4"},
    {DType::kU64, "<u8"},
    {DType::kF16, "<f2"},
    {DType::kBF16, "bfloat16"},
    {DType::kF32, "<f4"},
    {DType::kF64, "<f8"},
    {DType::kF8E4M3FN, "float8_e4m3fn"},
    {DType::kF8E5M2, "float8_e5m2"},
    {DType::kF8E4M3FNUZ, "float8_e4m3fnuz"},
    {DType::kF8E5M2FNUZ, "float8_e5m2fnuz"},
    {DType::kC64, "<c8"},
    {DType::kC128, "<c16"},
};

const char* ZarrName(const std::optional<DType>& dtype) {
  const auto found = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                  [&](const ZarrDType& one) { return dtype && one.dtype == *dtype; });
  return found == std::end(kDTypes) ? nullptr : found->name;
}

// What the result itself has beside the arrays, and what Orbax would take for something else.
bool IsTaken(std::string_view key) {
  return orbax::IsHeader(key) || key == "manifest.ocdbt" || key == "d" || key == "array_metadatas" ||
         key == "_sharding" || key == "_strings.json" || key.starts_with("ocdbt.process_") || key == "reshard.json";
}

std::vector<std::string> KeysOf(std::string_view name) { return absl::StrSplit(status::View(name), '.'); }

// As Python writes a tuple of texts: ('params', 'kernel').
std::string PythonTuple(const std::vector<std::string>& keys) {
  std::string out = "(";
  for (const std::string& key : keys) {
    const char quote = key.find('\'') == std::string::npos ? '\'' : '"';
    absl::StrAppend(&out, out.size() == 1 ? "" : " ", std::string(1, quote), key, std::string(1, quote), ",");
  }
  if (keys.size() > 1) out.pop_back();
  return out + ")";
}

// The largest divisor of `n` that is at most `most`; 1 at least.
int64_t LargestDivisor(int64_t n, int64_t most) {
  int64_t best = 1;
  for (int64_t i = 1; i <= n / i; ++i) {
    if (n % i != 0) continue;
    if (i <= most) best = std::max(best, i);
    if (n / i <= most) best = std::max(best, n / i);
  }
  return best;
}

class OrbaxOutput final : public OutputFormat {
 public:
  OrbaxOutput(const std::optional<LayoutRules>& rules, int64_t chunk_bytes, const ObjectTerms& objects)
      : rules_(rules), chunk_bytes_(chunk_bytes), objects_(objects) {}

  absl::Status Plan(OutputPlan* plan) override {
    if (!objects_.tag.empty()) {
      return absl::UnimplementedError(
          "the objects of an Orbax checkpoint have given names, so that none in a store can be replaced at once: write "
          "elsewhere, or remove it first");
    }
    const Catalog& source = plan->source();
    for (const Catalog::ByteItem& item : source.byte_items()) plan->LeaveOutItem(item.name);
    for (const Catalog::Attribute& attribute : source.attributes()) {
      if (!attribute.of_files) plan->LeaveOut(attribute.Label(), "Orbax has no place for it");
    }
    std::set<std::string_view> names;
    for (const Catalog::Tensor& tensor : source.tensors()) names.insert(tensor.name);
    for (size_t t = 0; t < source.tensors().size(); ++t) {
      const Catalog::Tensor& tensor = source.tensors()[t];
      std::string wrong = WrongWith(tensor, names);
      if (wrong.empty()) {
        ASSIGN_OR_RETURN(wrong, AddTensor(plan, static_cast<int64_t>(t)));
      }
      if (!wrong.empty()) plan->Refuse(tensor.name, wrong);
    }
    return absl::OkStatus();
  }

  // The last one says that the result is complete.
  absl::StatusOr<std::vector<NamedBytes>> Headers(const OutputPlan& plan, const std::string&) const override {
    return status::NoThrow("writing what an Orbax checkpoint says of itself",
                           [&]() -> absl::StatusOr<std::vector<NamedBytes>> {
                             std::vector<NamedBytes> out = arrays_;
                             out.emplace_back(listing::kFileName, ListingOf(plan));
                             out.emplace_back(orbax::kTreeName, Tree());
                             out.emplace_back(orbax::kCheckpointName, Checkpoint());
                             out.emplace_back(orbax::kCommitName, "Checkpoint commit was successful\n");
                             return out;
                           });
  }

  std::vector<std::string> HeadersBeforeLast() const override {
    std::vector<std::string> names;
    for (const NamedBytes& array : arrays_) names.push_back(array.first);
    for (const std::string_view name : {listing::kFileName, orbax::kTreeName, orbax::kCheckpointName}) {
      names.emplace_back(name);
    }
    return names;
  }

  // There is one per array, and this library's readers do not use it.
  bool IsHashed(std::string_view header) const override { return !header.ends_with(orbax::kArraySuffix); }

 private:
  struct Array {
    std::string tuple;
    Json metadata;
  };

  // Why the format cannot hold it; empty where it can.
  static std::string WrongWith(const Catalog::Tensor& tensor, const std::set<std::string_view>& names) {
    if (ZarrName(tensor.dtype) == nullptr) {
      return absl::StrCat("elements of type ", status::View(tensor.stored_dtype), ", which Zarr does not have");
    }
    const std::vector<std::string> keys = KeysOf(tensor.name);
    if (tensor.name.find('/') != std::string_view::npos || !io::CheckRelativePath(tensor.name).ok() ||
        tensor.name.size() > kLongestName) {
      return absl::StrCat("its name cannot be that of a folder of at most ", kLongestName, " bytes");
    }
    if (std::find(keys.begin(), keys.end(), "") != keys.end()) return "a key of its name is empty";
    if (IsTaken(tensor.name)) return "Orbax has a file of that name";
    for (size_t dot = tensor.name.find('.'); dot != std::string_view::npos; dot = tensor.name.find('.', dot + 1)) {
      if (const auto above = names.find(tensor.name.substr(0, dot)); above != names.end()) {
        return absl::StrCat(io::Shown(*above), " is a tensor, and in a tree cannot have others below it");
      }
    }
    try {
      Json(std::string(tensor.name)).dump();
    } catch (const nlohmann::json::exception&) {
      return "its name is not UTF-8";
    }
    return "";
  }

  // Returns why it cannot be cut; empty where it can.
  absl::StatusOr<std::string> AddTensor(OutputPlan* plan, int64_t index) {
    const Catalog::Tensor& tensor = plan->source().tensors()[index];
    const int64_t element = SizeOf(*tensor.dtype);
    std::vector<int64_t> shard(tensor.shape.begin(), tensor.shape.end());
    if (rules_) {
      ASSIGN_OR_RETURN(const Layout layout, rules_->LayoutFor(tensor.name, shard));
      ASSIGN_OR_RETURN(const std::string uneven, SetShard(layout, &shard));
      if (!uneven.empty()) return uneven;
      plan->SetLayout(index, layout);
    }
    const std::vector<int64_t> chunk = ChunkShape(tensor.shape, shard, element, chunk_bytes_);
    AddArray(tensor, chunk);
    if (tensor.bytes > 0) {
      AddChunks(plan, index, chunk, element);
    } else {
      AddChunk(plan, index, {std::vector<int64_t>(shard.size(), 0), {tensor.shape.begin(), tensor.shape.end()}, 0},
               std::vector<int64_t>(shard.size(), 0), 0);
    }
    return "";
  }

  // The shape that all shards have. Returns why they have none.
  static absl::StatusOr<std::string> SetShard(const Layout& layout, std::vector<int64_t>* shard) {
    ASSIGN_OR_RETURN(const ShardMap map, ShardMap::Create(layout));
    for (int d = 0; d < map.rank(); ++d) {
      const DimShards& dim = map.dim(d);
      for (int64_t row = 0; row < dim.num_rows(); ++row) {
        const bool is_box = dim.first[row + 1] - dim.first[row] == 1 && dim.length[row] == dim.length[0] &&
                            dim.intervals[dim.first[row]].begin % dim.length[0] == 0;
        if (is_box || dim.size == 0) continue;
        return absl::StrCat("chunks of Zarr are equal boxes, into which ", ToString(layout), " does not cut it");
      }
      (*shard)[d] = dim.length[0];
    }
    return "";
  }

  void AddArray(const Catalog::Tensor& tensor, const std::vector<int64_t>& chunk) {
    const std::vector<int64_t> shape(tensor.shape.begin(), tensor.shape.end());
    const Json array{{"chunks", chunk},
                     {"compressor", nullptr},
                     {"dimension_separator", "."},
                     {"dtype", ZarrName(tensor.dtype)},
                     {"fill_value", nullptr},
                     {"filters", nullptr},
                     {"order", "C"},
                     {"shape", shape},
                     {"zarr_format", 2}};
    arrays_.emplace_back(absl::StrCat(status::View(tensor.name), status::View(orbax::kArraySuffix)), array.dump());
    const std::vector<std::string> keys = KeysOf(tensor.name);
    constexpr int kKeyOfDict = 2;
    Json path = Json::array();
    for (const std::string& key : keys) path.push_back({{"key", key}, {"key_type", kKeyOfDict}});
    tree_.emplace_back(
        PythonTuple(keys),
        Json{{"key_metadata", std::move(path)},
             {"value_metadata", {{"value_type", "np.ndarray"}, {"skip_deserialize", false}, {"write_shape", chunk}}}});
  }

  // Chunk `number`, in a file of its own, in one piece or several.
  void AddChunk(OutputPlan* plan, int64_t index, const catalog::StoredBox& box, const std::vector<int64_t>& number,
                int64_t file_bytes) const {
    const std::string_view tensor = plan->source().tensors()[index].name;
    const std::string name = number.empty() ? "0" : absl::StrJoin(number, ".");
    const int32_t file = plan->AddFile({absl::StrCat(status::View(tensor), "/", name), file_bytes, ""});
    plan->AddDense(index, file, 0, box, objects_.bytes > 0 ? objects_.batch_bytes : catalog::kLargestBox);
  }

  void AddChunks(OutputPlan* plan, int64_t index, const std::vector<int64_t>& chunk, int64_t element) const {
    const Catalog::Tensor& tensor = plan->source().tensors()[index];
    const size_t rank = chunk.size();
    int64_t file_bytes = element;
    for (const int64_t size : chunk) file_bytes *= size;
    std::vector<int64_t> number(rank, 0);
    while (true) {
      catalog::StoredBox box{std::vector<int64_t>(rank), std::vector<int64_t>(rank), 0};
      for (size_t d = 0; d < rank; ++d) {
        box.offset[d] = number[d] * chunk[d];
        box.size[d] = std::min(chunk[d], tensor.shape[d] - box.offset[d]);
      }
      AddChunk(plan, index, box, number, file_bytes);
      size_t d = rank;
      while (d > 0 && ++number[d - 1] * chunk[d - 1] >= tensor.shape[d - 1]) number[--d] = 0;
      if (d == 0) return;
    }
  }

  static std::string ListingOf(const OutputPlan& plan) {
    const Catalog& source = plan.source();
    std::vector<Json> chunks(source.tensors().size(), Json::array());
    for (const OutputPlan::OutputPiece& piece : plan.pieces()) {
      const auto numbers = [](absl::Span<const int64_t> span) {
        return std::vector<int64_t>(span.begin(), span.end());
      };
      chunks[piece.tensor].push_back({{"offset", numbers(plan.offset(piece))},
                                      {"shape", numbers(plan.size(piece))},
                                      {"file", plan.files()[piece.place.file].name},
                                      {"at", piece.place.at}});
    }
    Json tensors = Json::array();
    for (size_t t = 0; t < chunks.size(); ++t) {
      const Catalog::Tensor& tensor = source.tensors()[t];
      tensors.push_back({{"name", tensor.name},
                         {"dtype", Name(*tensor.dtype)},
                         {"shape", std::vector<int64_t>(tensor.shape.begin(), tensor.shape.end())},
                         {"chunks", std::move(chunks[t])}});
    }
    return Json{{"reshard_listing", 1}, {"tensors", std::move(tensors)}}.dump() + "\n";
  }

  std::string Tree() const {
    // As text: an ordered object looks through all members for each new one.
    std::string tree;
    for (const auto& [tuple, metadata] : tree_) {
      absl::StrAppend(&tree, tree.empty() ? "" : ",", Json(tuple).dump(), ":", metadata.dump());
    }
    return absl::StrCat("{\"tree_metadata\":{", tree,
                        "},\"use_ocdbt\":false,\"use_zarr3\":false,\"store_array_data_equal_to_fill_value\":true,"
                        "\"custom_metadata\":null}\n");
  }

  static std::string Checkpoint() {
    return Json{{"item_handlers", "orbax.checkpoint._src.handlers.pytree_checkpoint_handler.PyTreeCheckpointHandler"},
                {"metrics", Json::object()},
                {"performance_metrics", Json::object()},
                {"init_timestamp_nsecs", nullptr},
                {"commit_timestamp_nsecs", nullptr},
                {"custom_metadata", Json::object()}}
               .dump() +
           "\n";
  }

  static constexpr size_t kLongestName = 255;

  const std::optional<LayoutRules> rules_;
  const int64_t chunk_bytes_;
  const ObjectTerms objects_;
  std::vector<NamedBytes> arrays_;                  // what each says of itself
  std::vector<std::pair<std::string, Json>> tree_;  // by the tuple of its keys
};

}  // namespace

std::vector<int64_t> ChunkShape(absl::Span<const int64_t> shape, absl::Span<const int64_t> shard, int64_t element_bytes,
                                int64_t most) {
  std::vector<int64_t> chunk(shard.begin(), shard.end());
  for (int64_t& size : chunk) size = std::max<int64_t>(size, 1);  // a tensor without elements has chunks, too
  int64_t bytes = element_bytes;
  for (const int64_t size : chunk) bytes = CheckedMul(bytes, size).value_or(std::numeric_limits<int64_t>::max());
  for (size_t d = 0; d < chunk.size() && bytes > most; ++d) {
    const int64_t row = CeilDiv(bytes, chunk[d]), fits = std::max<int64_t>(1, most / row);
    const int64_t even = LargestDivisor(chunk[d], fits);
    // Whole tensors need not be cut evenly where even chunks would be less than half as large, as of 128,259 rows.
    const bool may_be_uneven = std::equal(shape.begin(), shape.end(), shard.begin());
    chunk[d] = may_be_uneven && even < fits - even ? fits : even;
    bytes = row * chunk[d];
  }
  return chunk;
}

std::unique_ptr<OutputFormat> MakeOrbaxOutput(const std::optional<LayoutRules>& rules, int64_t chunk_bytes,
                                              const ObjectTerms& objects) {
  return std::make_unique<OrbaxOutput>(rules, chunk_bytes, objects);
}

}  // namespace reshard::output
