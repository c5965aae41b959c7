#include "checkpoint/formats/dcp/read_metadata.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/formats/dcp/pickle_fields.h"
#include "checkpoint/formats/pickle/machine.h"
#include "checkpoint/formats/pickle/opaque.h"
#include "checkpoint/formats/pickle/plain_data.h"
#include "checkpoint/formats/torch_save/torch_dtype.h"
#include "checkpoint/io/show.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard::dcp {
namespace {

using Value = pickle::Pickle::Value;
using Kind = pickle::Pickle::Kind;

// What PyTorch writes takes the reader a fifth of a step per byte of pickle. Each step may take some bytes of
// memory, so the more are allowed, the more memory a small file can ask for.
constexpr int64_t kStepsPerByte = 4;

class MetadataReader {
 public:
  MetadataReader(const pickle::Pickle& pickle, int64_t bytes, catalog::CatalogBuilder* builder)
      : pickle_(pickle),
        fields_(pickle, bytes * kStepsPerByte),
        most_numbers_(static_cast<size_t>(bytes) / sizeof(int64_t)),
        most_attribute_bytes_(static_cast<size_t>(bytes)),
        builder_(builder) {}

  absl::Status Read() {
    FieldNames<3> names = {{"state_dict_metadata", "planner_data", "storage_data"}};
    std::array<Value, 3> found;
    if (!fields_.Read(pickle_.root(), &names, &found) || !IsDict(found[0]) || !IsDict(found[2])) {
      return Bad("is not the Metadata of a distributed checkpoint, but ",
                 io::Shown(pickle::KindOfOpaque(pickle_, pickle_.root())));
    }
    RETURN_IF_ERROR(ReadItems(found[0]));
    RETURN_IF_ERROR(ReadPlaces(found[2]));
    RETURN_IF_ERROR(Add());
    if (IsDict(found[1])) {
      RETURN_IF_ERROR(AddPaths(found[1]));
    }
    return AddAttributes();
  }

 private:
  // An entry of state_dict_metadata.
  struct Item {
    Value name = 0;
    bool is_tensor = false;
    bool requires_grad = false;
    std::string stored_dtype;  // "torch.float32"
    Value shape = 0;
    size_t first_chunk = 0;
    size_t num_chunks = 0;
    Value info = 0;  // of a byte item
  };
  struct Chunk {
    Value offset = 0;
    Value size = 0;
    Value info = 0;  // the _StorageInfo
  };

  template <typename... Text>
  absl::Status Bad(const Text&... text) const {
    if (fields_.spent()) {
      return absl::ResourceExhaustedError(
          "the metadata shares values so often that reading it would take far more "
          "than its bytes");
    }
    return absl::DataLossError(absl::StrCat("the metadata ", text...));
  }
  // Counts the work of finding a text in a table: a few bytes of pickle can ask for a long one again and again.
  bool SpendText(Value text) { return fields_.Spend(1 + static_cast<int64_t>(pickle_.Text(text).size() / 16)); }
  bool IsDict(Value v) const { return v != 0 && pickle_.kind(v) == Kind::kDict; }
  std::string ShownText(Value v) const { return io::Shown(pickle_.Text(v)); }

  absl::Status ReadItems(Value dict) {
    absl::Status status;
    pickle_.ForEachItem(dict, [&](Value name, Value item) {
      status = ReadItem(name, item);
      return status.ok();
    });
    return status;
  }

  absl::Status ReadItem(Value name, Value value) {
    if (!fields_.Spend(1)) return Bad();
    if (!fields_.IsString(name)) return Bad("has an item whose name is not text");
    if (!items_by_name_.emplace(pickle_.Text(name), items_.size()).second) {
      return Bad("has the item ", ShownText(name), " twice");
    }
    if (pickle_.kind(value) != Kind::kObject) return Bad("has no description of ", ShownText(name));
    Item item;
    item.name = name;
    std::array<Value, 3> found;
    if (fields_.Read(value, &tensor_names_, &found) && found[1] != 0 && found[2] != 0) {
      item.is_tensor = true;
      item.shape = found[1];
      RETURN_IF_ERROR(ReadProperties(found[0], &item));
      RETURN_IF_ERROR(ReadChunks(found[2], &item));
    } else if (!pickle_.IsObjectOf(value, pickle::Known::kBytesStorageMetadata)) {
      if (pickle_.known(pickle_.Class(value)) == pickle::Known::kTensorStorageMetadata || fields_.spent()) {
        return Bad("has no shape or no chunks of ", ShownText(name));
      }
      return absl::UnimplementedError(absl::StrCat(ShownText(name), " is neither a tensor nor bytes, but of class ",
                                                   io::Shown(pickle_.Name(pickle_.Class(value)))));
    }
    items_.push_back(std::move(item));
    return absl::OkStatus();
  }

  // The state is (dtype, layout, requires_grad, ...), in old files a dict.
  absl::Status ReadProperties(Value properties, Item* item) {
    Value dtype = 0;
    Value layout = 0;
    Value requires_grad = 0;
    const std::optional<Value> state =
        properties != 0 && pickle_.kind(properties) == Kind::kObject ? pickle_.State(properties) : std::nullopt;
    if (state && pickle_.kind(*state) == Kind::kTuple && pickle_.Tuple(*state).size() >= 3) {
      dtype = pickle_.Tuple(*state)[0];
      layout = pickle_.Tuple(*state)[1];
      requires_grad = pickle_.Tuple(*state)[2];
    } else if (properties != 0 && pickle_.kind(properties) == Kind::kObject) {
      std::array<Value, 3> found;
      fields_.Read(properties, &property_names_, &found);
      dtype = found[0];
      requires_grad = found[1];
      layout = found[2];
    }
    if (dtype == 0 || pickle_.kind(dtype) != Kind::kName) return Bad("has no dtype of ", ShownText(item->name));
    constexpr size_t kLongest = 64;
    if (pickle_.Module(dtype).size() + pickle_.Name(dtype).size() > kLongest) {
      return Bad("has a dtype of ", ShownText(item->name), " with too long a name");
    }
    item->stored_dtype = absl::StrCat(status::View(pickle_.Module(dtype)), ".", status::View(pickle_.Name(dtype)));
    if (!torch_save::LooksLikeTorchDType(item->stored_dtype)) {
      return Bad("has a dtype of ", ShownText(item->name), " that is not one: ", io::Shown(item->stored_dtype));
    }
    // No dtype of this library then: its elements are not all that there is to it.
    const std::string_view sparse = SparseLayout(layout);
    if (!sparse.empty()) absl::StrAppend(&item->stored_dtype, " in the layout ", status::View(sparse));
    item->requires_grad = requires_grad != 0 && pickle_.IsTrue(requires_grad);
    return absl::OkStatus();
  }

  // "torch.sparse_coo" of _get_layout("torch.sparse_coo"); empty for the strided layout, or where none is said.
  std::string_view SparseLayout(Value layout) const {
    if (layout == 0 || pickle_.kind(layout) != Kind::kObject) return {};
    const absl::Span<const Value> given = pickle_.Tuple(pickle_.Arguments(layout));
    if (given.size() != 1 || pickle_.kind(given[0]) != Kind::kString) return {};
    const std::string_view name = pickle_.Text(given[0]);
    constexpr size_t kLongest = 64;
    return name.starts_with("torch.") && name != "torch.strided" ? name.substr(0, kLongest) : std::string_view();
  }

  absl::Status ReadChunks(Value list, Item* item) {
    if (pickle_.kind(list) != Kind::kList) return Bad("has no list of the chunks of ", ShownText(item->name));
    item->first_chunk = chunks_.size();
    const bool all = pickle_.ForEach(list, [&](Value chunk) {
      std::array<Value, 2> found;
      if (!fields_.Read(chunk, &chunk_names_, &found) || found[0] == 0 || found[1] == 0) return false;
      chunks_.push_back({found[0], found[1], 0});
      return true;
    });
    if (!all) return Bad("has a chunk of ", ShownText(item->name), " without offsets or sizes");
    item->num_chunks = chunks_.size() - item->first_chunk;
    return absl::OkStatus();
  }

  struct Key {
    Item* item = nullptr;  // null: of nothing that the checkpoint has
    Value offset = 0;      // 0: none
    int64_t index = -1;
  };
  absl::Status ReadKey(Value key, Key* out) {
    std::array<Value, 3> found;
    if (!fields_.Read(key, &index_names_, &found) || !fields_.IsString(found[0])) {
      return Bad("has a location without saying of what");
    }
    const int64_t* cached = items_by_value_.Find(found[0]);
    if (cached == nullptr) {
      if (!SpendText(found[0])) return Bad();
      const auto by_name = items_by_name_.find(pickle_.Text(found[0]));
      const int64_t item = by_name == items_by_name_.end() ? -1 : static_cast<int64_t>(by_name->second);
      cached = &items_by_value_.Keep(found[0], item);
    }
    out->item = *cached < 0 ? nullptr : &items_[*cached];
    if (found[1] != 0 && pickle_.kind(found[1]) != Kind::kNone) out->offset = found[1];
    if (found[2] != 0) out->index = pickle_.Int(found[2]).value_or(-1);
    return absl::OkStatus();
  }

  // A place that storage_data has for some chunk of an item.
  struct Offered {
    Value offset = 0;  // 0: none
    Value info = 0;
    int64_t index = -1;
  };

  // Gives each chunk its place. Tensor by tensor, though storage_data lists places rank by rank: then what is known of
  // the chunks of one tensor stays in the cache.
  absl::Status ReadPlaces(Value dict) {
    std::vector<std::vector<Offered>> offered(items_.size());
    absl::Status status;
    pickle_.ForEachItem(dict, [&](Value key_value, Value info) {
      Key key;
      status = ReadKey(key_value, &key);
      if (!status.ok()) return false;
      if (key.item == nullptr) return true;  // PyTorch does not ask for it either
      if (key.item->is_tensor) {
        std::vector<Offered>& of_item = offered[key.item - items_.data()];
        if (of_item.empty()) of_item.reserve(key.item->num_chunks);
        of_item.push_back({key.offset, info, key.index});
      } else {
        key.item->info = info;
      }
      return true;
    });
    for (size_t i = 0; status.ok() && i < items_.size(); ++i) {
      if (!TakeByIndex(items_[i], offered[i])) status = TakeByOffset(items_[i], offered[i]);
    }
    return status;
  }

  // Places chunks by the index that PyTorch writes beside the offset. False if that is not enough: index and offset do
  // not agree, or a chunk has no place.
  bool TakeByIndex(const Item& item, absl::Span<const Offered> offered) {
    for (const Offered& one : offered) {
      if (one.index < 0 || one.index >= static_cast<int64_t>(item.num_chunks) || one.offset == 0) return false;
      Chunk& chunk = chunks_[item.first_chunk + static_cast<size_t>(one.index)];
      if (!SameInts(chunk.offset, one.offset)) return false;
      chunk.info = one.info;
    }
    for (size_t i = 0; i < item.num_chunks; ++i) {
      if (chunks_[item.first_chunk + i].info == 0) return false;
    }
    return true;
  }

  bool SameInts(Value a, Value b) {
    return a == b || fields_.SameTuple(a, b) ||
           (fields_.Ints(a, &left_) && fields_.Ints(b, &right_) && left_ == right_);
  }

  // Places chunks by name and offset alone, as PyTorch compares them.
  absl::Status TakeByOffset(const Item& item, absl::Span<const Offered> offered) {
    absl::flat_hash_map<std::vector<int64_t>, Value> places;
    places.reserve(offered.size());
    for (const Offered& one : offered) {
      if (one.offset == 0) {  // a tensor of one chunk needs none
        if (item.num_chunks == 1) chunks_[item.first_chunk].info = one.info;
        continue;
      }
      if (!fields_.Ints(one.offset, &left_)) return Bad("has a place of ", ShownText(item.name), " at no offset");
      places[left_] = one.info;
    }
    for (size_t i = 0; i < item.num_chunks; ++i) {
      Chunk& chunk = chunks_[item.first_chunk + i];
      if (!fields_.Ints(chunk.offset, &left_)) return BadBox(item);
      if (const auto found = places.find(left_); found != places.end()) chunk.info = found->second;
    }
    return absl::OkStatus();
  }

  absl::Status BadBox(const Item& item) const {
    return Bad("has a chunk of ", ShownText(item.name), " that is not a box");
  }

  absl::Status Add() {
    size_t numbers = 0;
    for (const Item& item : items_) {
      if (item.is_tensor && pickle_.kind(item.shape) == Kind::kTuple) {
        numbers += 2 * pickle_.Tuple(item.shape).size() * item.num_chunks;
      }
    }
    builder_->ReserveChunks(chunks_.size(), std::min(numbers, most_numbers_));
    for (const Item& item : items_) {
      RETURN_IF_ERROR(item.is_tensor ? AddTensor(item) : AddBytes(item));
    }
    return absl::OkStatus();
  }

  absl::Status AddTensor(const Item& item) {
    if (!fields_.Ints(item.shape, &left_)) return Bad("has a shape of ", ShownText(item.name), " that is not one");
    absl::Status added = builder_->AddTensor(pickle_.Text(item.name), item.stored_dtype,
                                             torch_save::DTypeOfTorch(item.stored_dtype), left_, item.requires_grad);
    for (size_t i = 0; added.ok() && i < item.num_chunks; ++i) {
      const Chunk& chunk = chunks_[item.first_chunk + i];
      constexpr size_t kAhead = 16;
      if (i + kAhead < item.num_chunks) pickle_.Prefetch(chunks_[item.first_chunk + i + kAhead].info);
      if (!fields_.Ints(chunk.offset, &left_) || !fields_.Ints(chunk.size, &right_)) return BadBox(item);
      if (chunk.info == 0) {
        // Nobody needs the place of a chunk without elements.
        if (std::find(right_.begin(), right_.end(), 0) != right_.end()) continue;
        return Bad("has no place for the chunk of ", ShownText(item.name), " at ", io::Shown(left_));
      }
      Catalog::FileRange place;
      added = ReadPlace(item, chunk.info, &place);
      if (added.ok()) added = builder_->AddChunk(left_, right_, place);
    }
    return added;
  }

  absl::Status AddBytes(const Item& item) {
    if (item.info == 0) return Bad("has no place for ", ShownText(item.name));
    Catalog::FileRange place;
    RETURN_IF_ERROR(ReadPlace(item, item.info, &place));
    return builder_->AddByteItem(pickle_.Text(item.name), place);
  }

  absl::Status ReadPlace(const Item& item, Value info, Catalog::FileRange* place) {
    std::array<Value, 4> found;
    fields_.Read(info, &info_names_, &found);
    const std::optional<int64_t> at = found[1] == 0 ? std::nullopt : pickle_.Int(found[1]);
    const std::optional<int64_t> length = found[2] == 0 ? std::nullopt : pickle_.Int(found[2]);
    if (fields_.spent() || !fields_.IsString(found[0]) || !at || !length) {
      return Bad("has a place of ", ShownText(item.name), " without file, offset and length");
    }
    if (found[3] != 0 && pickle_.kind(found[3]) != Kind::kNone) {
      absl::Status encoded;
      if (pickle_.kind(found[3]) != Kind::kList && pickle_.kind(found[3]) != Kind::kTuple) {
        return Bad("has transforms of ", ShownText(item.name), " that are not a list");
      }
      pickle_.ForEach(found[3], [&](Value encoding) {
        encoded = absl::UnimplementedError(
            absl::StrCat(ShownText(item.name), " was encoded by ",
                         pickle_.kind(encoding) == Kind::kString ? ShownText(encoding) : "an extension",
                         "; only streams that are not encoded can be read"));
        return false;
      });
      if (!encoded.ok()) return encoded;
    }
    const int32_t* file = files_.Find(found[0]);
    if (file == nullptr) {
      if (!SpendText(found[0])) return Bad();
      ASSIGN_OR_RETURN(const int32_t added, builder_->AddFile(pickle_.Text(found[0])));
      file = &files_.Keep(found[0], added);
    }
    *place = {*file, *at, *length};
    return absl::OkStatus();
  }

  // {flat name: (key or index, ...)}. Extensions put other things there; those are not paths.
  absl::Status AddPaths(Value dict) {
    const bool all = pickle_.ForEachItem(dict, [&](Value name, Value path) {
      if (!fields_.Spend(1)) return false;
      const Kind kind = pickle_.kind(path);
      if (!fields_.IsString(name) || (kind != Kind::kTuple && kind != Kind::kList)) return true;
      std::vector<Catalog::PathStep> steps;
      bool is_path = true;
      pickle_.ForEach(path, [&](Value step) {
        if (fields_.IsString(step)) {
          const std::string_view text = pickle_.Text(step);
          is_path = fields_.Spend(1 + static_cast<int64_t>(text.size()));
          if (is_path) steps.emplace_back(std::string(text));
        } else {
          const std::optional<int64_t> index = pickle_.Int(step);
          is_path = index.has_value() && fields_.Spend(1);
          if (is_path) steps.emplace_back(*index);
        }
        return is_path;
      });
      if (is_path && SpendText(name)) builder_->AddPath(pickle_.Text(name), std::move(steps));
      return !fields_.spent();
    });
    return all ? absl::OkStatus() : Bad();
  }

  // What is not read here, and not written anew either.
  absl::Status AddAttributes() {
    constexpr std::string_view kWritten[] = {"state_dict_metadata", "planner_data", "storage_data", "storage_meta",
                                             "version"};
    constexpr size_t kMost = 64;  // a name that is set again and again counts each time
    size_t count = 0;
    const bool all = pickle_.ForEachItem(pickle_.root(), [&](Value name, Value value) {
      if (!fields_.IsString(name)) return true;
      const std::string_view text = pickle_.Text(name);
      if (std::find(std::begin(kWritten), std::end(kWritten), text) != std::end(kWritten)) return true;
      if (pickle_.kind(value) == Kind::kNone) return true;
      if (++count > kMost || !SpendText(name)) return false;
      Catalog::Attribute attribute = {std::string(text), "", text == "all_local_plans", ""};
      if (!attribute.of_files) {
        attribute.pickle = pickle::PlainData(pickle_, value, most_attribute_bytes_).value_or("");
        if (!fields_.Spend(static_cast<int64_t>(attribute.pickle.size()))) return false;
      }
      builder_->AddAttribute(std::move(attribute));
      return true;
    });
    return all ? absl::OkStatus() : Bad("has more than ", kMost, " attributes");
  }

  const pickle::Pickle& pickle_;
  PickleFields fields_;
  const size_t most_numbers_;          // of offsets and sizes, that memory is taken for before they are seen
  const size_t most_attribute_bytes_;  // of each
  catalog::CatalogBuilder* builder_;
  std::vector<Item> items_;
  std::vector<Chunk> chunks_;
  absl::flat_hash_map<std::string_view, size_t> items_by_name_;
  ValueCache<int64_t> items_by_value_;
  ValueCache<int32_t> files_;
  std::vector<int64_t> left_;
  std::vector<int64_t> right_;
  FieldNames<3> tensor_names_ = {{"properties", "size", "chunks"}};
  FieldNames<3> property_names_ = {{"dtype", "requires_grad", "layout"}};
  FieldNames<2> chunk_names_ = {{"offsets", "sizes"}};
  FieldNames<3> index_names_ = {{"fqn", "offset", "index"}};
  FieldNames<4> info_names_ = {{"relative_path", "offset", "length", "transform_descriptors"}};
};

}  // namespace

absl::Status ReadMetadata(const io::ReadFile& file, const CatalogLimits& limits, catalog::CatalogBuilder* builder) {
  const absl::StatusOr<pickle::Pickle> pickle = pickle::Pickle::Read(file, limits);
  if (!pickle.ok()) return pickle.status();
  return MetadataReader(*pickle, file.bytes(), builder).Read();
}

}  // namespace reshard::dcp
