#include "checkpoint/pytorch/stored_checkpoint.h"

#include <ATen/Functions.h>
#include <torch/library.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/formats/torch_save/torch_dtype.h"
#include "reshard/checkpoint/error.h"
#include "reshard/checkpoint/recipe.h"
#include "reshard/checkpoint/store.h"
#include "reshard/checkpoint/store_calls.h"
#include "runtime/pytorch/tensors.h"
#include "status/macros.h"
#include "status/no_throw.h"

namespace reshard::pytorch {
namespace {

constexpr int64_t kThisProcess = -1;  // these calls are outside any group

std::string Dump(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

absl::StatusOr<StoredCheckpoint> Open(const std::string& path, bool check, bool ignore_sidecar,
                                      const std::string& recipe) {
  StoredOptions options;
  options.check = check;
  options.ignore_sidecar = ignore_sidecar;
  if (!recipe.empty()) {
    ASSIGN_OR_RETURN(options.recipe, Recipe::Parse(recipe));
  }
  return StoredCheckpoint::Open(path, options);
}

std::string DTypeText(const Catalog::Tensor& tensor) {
  if (!tensor.dtype) return std::string(tensor.stored_dtype);
  return "torch." + std::string(torch_save::TorchName(*tensor.dtype));
}

nlohmann::json PathJson(const std::vector<Catalog::PathStep>& path) {
  nlohmann::json steps = nlohmann::json::array();
  for (const Catalog::PathStep& step : path) {
    std::visit([&](const auto& value) { steps.push_back(value); }, step);
  }
  return steps;
}

}  // namespace

at::Tensor BytesTensor(std::string_view text) {
  at::Tensor bytes = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::copy(text.begin(), text.end(), static_cast<char*>(bytes.mutable_data_ptr()));
  return bytes;
}

std::string FileErrorJson(const absl::Status& status) {
  const char* const kind = absl::IsNotFound(status) ? "missing" : absl::IsAlreadyExists(status) ? "existing" : "file";
  return Dump({{"error", kind}, {"message", std::string(status.message())}});  // paths may be any bytes
}

std::string ThrowOrTell(const absl::Status& status) {
  if (status.ok()) return "";
  if (KindOf(status) != CheckpointError::kSystem) Throw(status, kThisProcess);
  return FileErrorJson(status);
}

TorchStoredCheckpoint::TorchStoredCheckpoint(const std::string& path, bool check, bool ignore_sidecar,
                                             const std::string& recipe) {
  absl::StatusOr<StoredCheckpoint> stored = Open(path, check, ignore_sidecar, recipe);
  error_ = ThrowOrTell(stored.status());
  if (stored.ok()) stored_.emplace(*std::move(stored));
}

std::tuple<std::string, at::Tensor> TorchStoredCheckpoint::Describe() const {
  const Catalog& catalog = stored().catalog();
  nlohmann::json tensors = nlohmann::json::array(), items = nlohmann::json::array();
  nlohmann::json paths = nlohmann::json::object();
  std::vector<int64_t> boxes;
  const auto add_path = [&](std::string_view name) {
    if (const auto* path = catalog.PathOf(name)) paths[std::string(name)] = PathJson(*path);
  };
  for (const Catalog::Tensor& tensor : catalog.tensors()) {
    // A tensor that a recipe makes has no chunks: it is read as one.
    const int64_t chunks = std::max<int64_t>(1, tensor.num_chunks);
    tensors.push_back({std::string(tensor.name), DTypeText(tensor),
                       std::vector<int64_t>(tensor.shape.begin(), tensor.shape.end()), tensor.requires_grad, chunks});
    for (int64_t i = 0; i < tensor.num_chunks; ++i) {
      const Catalog::Chunk chunk = catalog.chunk(tensor, i);
      boxes.insert(boxes.end(), chunk.offset.begin(), chunk.offset.end());
      boxes.insert(boxes.end(), chunk.size.begin(), chunk.size.end());
    }
    if (tensor.num_chunks == 0) {
      boxes.insert(boxes.end(), tensor.shape.size(), 0);
      boxes.insert(boxes.end(), tensor.shape.begin(), tensor.shape.end());
    }
    add_path(tensor.name);
  }
  for (const Catalog::ByteItem& item : catalog.byte_items()) {
    items.push_back({std::string(item.name), item.place.length});
    add_path(item.name);
  }
  at::Tensor numbers = at::empty({static_cast<int64_t>(boxes.size())}, at::kLong);
  std::copy(boxes.begin(), boxes.end(), numbers.mutable_data_ptr<int64_t>());
  return {Dump({{"tensors", std::move(tensors)}, {"items", std::move(items)}, {"paths", std::move(paths)}}), numbers};
}

std::tuple<std::vector<std::string>, std::vector<at::Tensor>> TorchStoredCheckpoint::Attributes() const {
  std::vector<std::string> names;
  std::vector<at::Tensor> pickles;
  for (const Catalog::Attribute& attribute : stored().catalog().attributes()) {
    if (attribute.pickle.empty()) continue;
    names.push_back(attribute.name);
    pickles.push_back(BytesTensor(attribute.pickle));
  }
  return {std::move(names), std::move(pickles)};
}

std::string TorchStoredCheckpoint::Read(const std::vector<at::Tensor>& outs, const std::vector<int64_t>& tensors,
                                        const std::vector<int64_t>& offsets, int64_t threads) {
  const auto read = [&]() -> absl::Status {
    std::vector<BoxRead> boxes;
    size_t next = 0;
    for (size_t i = 0; i < outs.size(); ++i) {
      RETURN_IF_ERROR(CheckTensor(outs[i], at::kCPU));
      const auto dims = static_cast<size_t>(outs[i].dim());
      if (tensors.size() != outs.size() || offsets.size() - next < dims) {
        return absl::InvalidArgumentError("tensors, offsets and destinations differ in number");
      }
      boxes.push_back({tensors[i],
                       Dims(offsets.begin() + static_cast<std::ptrdiff_t>(next),
                            offsets.begin() + static_cast<std::ptrdiff_t>(next + dims)),
                       MutableViewOf(outs[i])});
      next += dims;
    }
    return stored().Read(boxes, static_cast<int>(std::clamp<int64_t>(threads, 0, 64)));
  };
  return ThrowOrTell(status::NoThrow("reading a checkpoint", read));
}

std::tuple<at::Tensor, std::string> TorchStoredCheckpoint::ReadItem(int64_t item) {
  const absl::StatusOr<std::string> bytes = stored().ReadItem(item);
  return {BytesTensor(bytes.ok() ? std::string_view(*bytes) : std::string_view()), ThrowOrTell(bytes.status())};
}

TORCH_LIBRARY_FRAGMENT(reshard, library) {
  // Registers the stores of the Python package (reshard.stores); the table must stay where it is.
  library.def("_use_stores(int table) -> ()", [](int64_t table) {
    RegisterStore("", MakeStore(*reinterpret_cast<const reshard_store_calls*>(table)));
  });
  library.class_<TorchStoredCheckpoint>("StoredCheckpoint")
      .def(::torch::init<const std::string&, bool, bool, const std::string&>())
      .def("error", [](const c10::intrusive_ptr<TorchStoredCheckpoint>& self) { return self->error(); })
      .def("describe", &TorchStoredCheckpoint::Describe)
      .def("attributes", &TorchStoredCheckpoint::Attributes)
      .def("read", &TorchStoredCheckpoint::Read)
      .def("load", &TorchStoredCheckpoint::Load)
      .def("read_item", &TorchStoredCheckpoint::ReadItem)
      .def("bytes_read", &TorchStoredCheckpoint::BytesRead);
}

}  // namespace reshard::pytorch
