#include "reshard/checkpoint/model.h"

#include <memory>
#include <unordered_set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/show.h"
#include "checkpoint/model/scheme.h"
#include "json/document.h"
#include "reshard/checkpoint/catalog.h"
#include "status/macros.h"
#include "status/no_throw.h"

namespace reshard {
namespace {

constexpr int64_t kLongestJson = int64_t{256} << 20;

absl::StatusOr<std::vector<int64_t>> ReadShape(const json::Value& value) {
  std::vector<int64_t> shape;
  if (!value.is_array()) return absl::InvalidArgumentError("the shape is not a list");
  for (size_t i = 0; i < value.size(); ++i) {
    const std::optional<int64_t> size = value.at(i).Count();
    if (!size) return absl::InvalidArgumentError(absl::StrCat(value.at(i).Shown(), " is not a size"));
    shape.push_back(*size);
  }
  return shape;
}

// {"name": .., "shape": [..], "dtype": ..}
absl::StatusOr<ModelTensor> ReadTensor(const json::Value& value, DType dtype) {
  const auto member = [&](const char* key) { return value.Find(key); };
  const std::optional<std::string> name = member("name") ? member("name")->Text() : std::nullopt;
  if (!name) return absl::InvalidArgumentError("there is no name");
  if (!member("shape")) return absl::InvalidArgumentError(absl::StrCat(io::Shown(*name), ": there is no shape"));
  ModelTensor tensor{*name, dtype, {}};
  absl::StatusOr<std::vector<int64_t>> shape = ReadShape(*member("shape"));
  if (!shape.ok()) return absl::InvalidArgumentError(absl::StrCat(io::Shown(*name), ": ", shape.status().message()));
  tensor.shape = *std::move(shape);
  if (const auto said = member("dtype"); said && !said->is_null()) {
    const std::optional<std::string> text = said->Text();
    const std::optional<DType> known = text ? FindDType(*text) : std::nullopt;
    if (!known) {
      return absl::InvalidArgumentError(
          absl::StrCat(io::Shown(*name), ": ", said->Shown(), " is not a dtype: ", KnownDTypes()));
    }
    tensor.dtype = *known;
  }
  return tensor;
}

absl::StatusOr<std::vector<ModelTensor>> ParseTensors(std::string_view text, DType dtype) {
  ASSIGN_OR_RETURN(const json::Document document, json::Document::Parse(text));
  const json::Value root = document.root();
  std::vector<ModelTensor> tensors;
  if (const auto listed = root.Find("tensors"); listed && listed->is_array()) {
    for (size_t i = 0; i < listed->size(); ++i) {
      absl::StatusOr<ModelTensor> tensor = ReadTensor(listed->at(i), dtype);
      if (!tensor.ok())
        return absl::InvalidArgumentError(absl::StrCat("tensors[", i, "]: ", tensor.status().message()));
      tensors.push_back(*std::move(tensor));
    }
    return tensors;
  }
  if (!root.is_object()) return absl::InvalidArgumentError("not an object of names and shapes");
  for (const std::string& name : root.Keys()) {
    absl::StatusOr<std::vector<int64_t>> shape = ReadShape(*root.Find(name));
    if (!shape.ok()) return absl::InvalidArgumentError(absl::StrCat(io::Shown(name), ": ", shape.status().message()));
    tensors.push_back({name, dtype, *std::move(shape)});
  }
  return tensors;
}

absl::StatusOr<std::vector<ModelTensor>> TensorsOf(const Catalog& catalog) {
  std::vector<ModelTensor> tensors;
  for (const Catalog::Tensor& tensor : catalog.tensors()) {
    if (!tensor.dtype) {
      return absl::UnimplementedError(
          absl::StrCat(io::Shown(tensor.name), ": the dtype ", io::Shown(tensor.stored_dtype), " is not known"));
    }
    tensors.push_back({std::string(tensor.name), *tensor.dtype, {tensor.shape.begin(), tensor.shape.end()}});
  }
  return tensors;
}

bool IsListOfTensors(const std::string& path) {
  return absl::EndsWith(path, ".json") && !absl::EndsWith(path, ".index.json");
}

absl::Status CheckModel(const std::vector<ModelTensor>& tensors) {
  if (tensors.empty()) return absl::InvalidArgumentError("there are no tensors");
  std::unordered_set<std::string_view> names;
  for (const ModelTensor& tensor : tensors) {
    if (!names.insert(tensor.name).second) {
      return absl::InvalidArgumentError(absl::StrCat(io::Shown(tensor.name), " appears twice"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ModelTensor>> Read(const std::string& path, DType dtype) {
  absl::StatusOr<std::vector<ModelTensor>> tensors;
  if (IsListOfTensors(path)) {
    ASSIGN_OR_RETURN(const std::unique_ptr<io::ReadFile> file, io::ReadFile::Open(path));
    ASSIGN_OR_RETURN(const std::string text, file->ReadAll(kLongestJson));
    tensors = ParseModel(text, dtype);
  } else {
    ASSIGN_OR_RETURN(const Catalog catalog, ReadCatalog(path));
    tensors = TensorsOf(catalog);
    if (tensors.ok()) RETURN_IF_ERROR(CheckModel(*tensors));
  }
  if (tensors.ok()) return tensors;
  return absl::Status(tensors.status().code(), absl::StrCat(io::Shown(path), ": ", tensors.status().message()));
}

}  // namespace

absl::StatusOr<std::vector<ModelTensor>> ReadModel(const std::string& path, DType dtype) {
  return status::NoThrow("reading a model", [&] { return Read(path, dtype); });
}

absl::StatusOr<std::vector<ModelTensor>> ParseModel(std::string_view json, DType dtype) {
  ASSIGN_OR_RETURN(std::vector<ModelTensor> tensors, ParseTensors(json, dtype));
  RETURN_IF_ERROR(CheckModel(tensors));
  return tensors;
}

absl::StatusOr<ModelLayout> ModelLayout::Parse(std::string_view text, const Mesh& mesh,
                                               absl::Span<const ModelTensor> model) {
  if (model::Scheme::IsScheme(text)) {
    ASSIGN_OR_RETURN(model::Scheme scheme, model::Scheme::Parse(text, mesh, model));
    ModelLayout layout;
    layout.scheme_ = std::make_shared<const model::Scheme>(std::move(scheme));
    return layout;
  }
  ASSIGN_OR_RETURN(LayoutRules rules, LayoutRules::ForAll(mesh, text));
  return Of(std::move(rules));
}

ModelLayout ModelLayout::Of(LayoutRules rules) {
  ModelLayout layout;
  layout.rules_ = std::make_shared<const LayoutRules>(std::move(rules));
  return layout;
}

absl::StatusOr<Layout> ModelLayout::LayoutFor(const ModelTensor& tensor) const {
  if (rules_ != nullptr) return rules_->LayoutFor(tensor.name, tensor.shape);
  absl::StatusOr<Layout> layout = scheme_->LayoutFor(tensor);
  if (layout.ok()) return layout;
  return absl::Status(layout.status().code(),
                      absl::StrCat("tensor ", io::Shown(tensor.name), ": ", layout.status().message()));
}

absl::StatusOr<std::vector<Problem>> ModelProblems(absl::Span<const ModelTensor> model, const ModelLayout& source,
                                                   const ModelLayout& target) {
  std::vector<Problem> problems;
  problems.reserve(model.size());
  for (const ModelTensor& tensor : model) {
    ASSIGN_OR_RETURN(const Layout from, source.LayoutFor(tensor));
    ASSIGN_OR_RETURN(const Layout to, target.LayoutFor(tensor));
    problems.push_back({from, to, tensor.dtype});
  }
  return problems;
}

}  // namespace reshard
