#include "checkpoint/auxiliary_files/config.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "checkpoint/formats/torch_save/torch_dtype.h"
#include "checkpoint/io/files.h"
#include "checkpoint/io/show.h"
#include "checkpoint/recipe/cast.h"
#include "json/document.h"
#include "status/macros.h"
#include "status/view.h"

namespace reshard::auxiliary_files {
namespace {

constexpr std::string_view kName = "config.json";
constexpr int64_t kLongest = int64_t{16} << 20;

// A wide float as transformers writes it, with PyTorch's prefix or without.
std::optional<DType> WideFloatNamed(const std::string& name) {
  const std::optional<DType> dtype = torch_save::DTypeOfTorch(name.starts_with("torch.") ? name : "torch." + name);
  return dtype && recipe::IsWideFloat(*dtype) ? dtype : std::nullopt;
}

// What quantized weights are stored as, beside scales that are wide.
bool IsNarrowFloat(DType dtype) {
  return dtype == DType::kF8E4M3FN || dtype == DType::kF8E5M2 || dtype == DType::kF8E4M3FNUZ ||
         dtype == DType::kF8E5M2FNUZ || dtype == DType::kF4E2M1x2;
}

// The member of the configuration, or of its text part if it is for several kinds of input.
std::optional<json::Value> Member(const json::Value& config, std::string_view name) {
  if (std::optional<json::Value> own = config.Find(name)) return own;
  const std::optional<json::Value> text = config.Find("text_config");
  return text ? text->Find(name) : std::nullopt;
}

bool IsOneOf(std::string_view name, std::initializer_list<std::string_view> ends) {
  return std::any_of(ends.begin(), ends.end(), [&](std::string_view end) {
    return name == end || (name.ends_with(end) && name[name.size() - end.size() - 1] == '.');
  });
}

}  // namespace

std::vector<std::string> Contradictions(std::string_view config, const Catalog& result) {
  const absl::StatusOr<json::Document> document = json::Document::Parse(config);
  if (!document.ok() || !document->root().is_object()) return {};
  const json::Value root = document->root();
  std::vector<std::string> found;

  std::map<DType, int64_t> elements;  // that are floats
  const Catalog::Tensor* embedding = nullptr;
  const Catalog::Tensor* output = nullptr;
  for (const Catalog::Tensor& tensor : result.tensors()) {
    if (tensor.dtype && (recipe::IsWideFloat(*tensor.dtype) || IsNarrowFloat(*tensor.dtype))) {
      elements[*tensor.dtype] += tensor.bytes / SizeOf(*tensor.dtype);
    }
    if (IsOneOf(tensor.name, {"embed_tokens.weight", "wte.weight", "word_embeddings.weight"})) embedding = &tensor;
    if (IsOneOf(tensor.name, {"lm_head.weight"})) output = &tensor;
  }
  std::optional<json::Value> dtype = Member(root, "dtype");
  const std::string_view member = dtype ? "dtype" : "torch_dtype";
  if (!dtype) dtype = Member(root, "torch_dtype");
  const std::optional<DType> said = dtype && dtype->Text() ? WideFloatNamed(*dtype->Text()) : std::nullopt;
  const std::optional<json::Value> quantization = Member(root, "quantization_config");
  if (said && !elements.empty()) {
    const auto most = std::max_element(elements.begin(), elements.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    // The dtype is then that of what is computed, and the quantization says what is stored.
    const bool quantized = IsNarrowFloat(most->first) && quantization;
    if (most->first != *said && !quantized) {
      found.push_back(absl::StrCat(status::View(kName), " says ", status::View(member), " ", *dtype->Text(),
                                   ", most elements are ", status::View(Name(most->first)),
                                   IsNarrowFloat(most->first) ? ", and there is no quantization_config" : ""));
    }
  }
  const std::optional<json::Value> method = quantization ? quantization->Find("quant_method") : std::nullopt;
  if (method && method->Text() == "fp8" &&
      std::none_of(elements.begin(), elements.end(), [](const auto& one) { return IsNarrowFloat(one.first); })) {
    found.push_back(
        absl::StrCat(status::View(kName), " has a quantization_config of fp8, and no tensor is; remove it"));
  }
  const std::optional<json::Value> vocabulary = Member(root, "vocab_size");
  const std::optional<int64_t> words = vocabulary ? vocabulary->Count() : std::nullopt;
  if (words && embedding != nullptr && !embedding->shape.empty() && embedding->shape[0] != *words) {
    found.push_back(absl::StrCat(status::View(kName), " says vocab_size ", *words, ", ", io::Shown(embedding->name),
                                 " has ", embedding->shape[0], " rows"));
  }
  const std::optional<json::Value> tie = Member(root, "tie_word_embeddings");
  const std::optional<bool> tied = tie ? tie->Bool() : std::nullopt;
  if (tied && embedding != nullptr && *tied == (output != nullptr)) {
    found.push_back(absl::StrCat(status::View(kName), " says tie_word_embeddings ", *tied ? "true" : "false",
                                 *tied ? ", and there is a lm_head.weight" : ", and there is no lm_head.weight"));
  }
  return found;
}

absl::StatusOr<std::string> ReadConfig(const std::string& directory, absl::Span<const AuxiliaryFile> files) {
  for (const AuxiliaryFile& file : files) {
    if (file.to != kName || file.bytes > kLongest) continue;
    // Links were looked at when the file was found.
    ASSIGN_OR_RETURN(const std::unique_ptr<io::ReadFile> open,
                     io::ReadFile::Open(io::JoinPath(directory, file.path), /*follow_links=*/true));
    return open->ReadAll(kLongest);
  }
  return std::string();
}

absl::StatusOr<std::vector<std::string>> FindContradictions(const std::string& directory,
                                                            absl::Span<const AuxiliaryFile> files,
                                                            const Catalog& result) {
  ASSIGN_OR_RETURN(const std::string text, ReadConfig(directory, files));
  return Contradictions(text, result);
}

}  // namespace reshard::auxiliary_files
