#include "checkpoint/auxiliary_files/kinds.h"

#include <algorithm>
#include <iterator>

#include "absl/types/span.h"
#include "reshard/checkpoint/pattern.h"

namespace reshard::auxiliary_files {
namespace {

// Megatron-core (without the two "is not a distributed checkpoint"), Megatron Bridge, Lightning.
constexpr std::string_view kBesideDcp[] = {
    "common.pt", "metadata.json", "run_config.yaml", "train_state.pt", "modelopt_run_config.yaml", "meta.pt"};

// transformers, tokenizers, sentencepiece, diffusers of one part, Mistral's own names; source of models that bring it.
constexpr std::string_view kBesideAll[] = {
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tokenizer.model",
    "tokenizer.model.v*",
    "*.tiktoken",
    "tekken.json",
    "params.json",
    "spiece.model",
    "sentencepiece.bpe.model",
    "sentencepiece.model",
    "chat_template.json",
    "chat_template.jinja",
    "additional_chat_templates/*.jinja",
    "preprocessor_config.json",
    "processor_config.json",
    "image_processor_config.json",
    "video_preprocessor_config.json",
    "feature_extractor_config.json",
    "quantize_config.json",
    "quantization_config.json",
    "hf_quant_config.json",
    "adapter_config.json",
    "configuration_*.py",
    "modeling_*.py",
    "tokenization_*.py",
    "processing_*.py",
    "image_processing_*.py",
    "huggingface/*",  // verl keeps all of the above there
    "fsdp_config.json",
};

constexpr std::string_view kDirectories[] = {"additional_chat_templates/", "huggingface/"};

constexpr std::string_view kTensors[] = {
    "*.safetensors",
    "*.safetensors.index.json",
    "*.distcp",
    "*.metadata",
    "*.metadata.tmp",
    "reshard.listing.json",
    "pytorch_model*.bin",
    "*.bin.index.json",
    "*.pth",
    "*.gguf",
    "*.h5",
    "*.msgpack",
    "*.onnx",
    "*.npz",
    "*.ckpt",
    "*_optim_states.pt",
    "*_model_states.pt",
    "model_world_size_*_rank_*.pt",
    "optim_world_size_*_rank_*.pt",
    "reshard.json",
};

constexpr std::string_view kMayRun[] = {"*.pt", "*.pth", "*.bin", "*.pkl", "*.pickle", "*.ckpt", "*.py"};

}  // namespace

bool IsLookedFor(std::string_view path, bool beside_dcp) {
  const size_t slash = path.rfind('/');
  const std::string_view directory = path.substr(0, slash == path.npos ? 0 : slash + 1);
  if (!directory.empty() && !IsLookedInto(directory)) return false;
  return MatchesAny(kBesideAll, path) || (beside_dcp && MatchesAny(kBesideDcp, path));
}

bool IsLookedInto(std::string_view directory) {
  return std::find(std::begin(kDirectories), std::end(kDirectories), directory) != std::end(kDirectories);
}

bool HasTensors(std::string_view path) { return MatchesAny(kTensors, path.substr(path.rfind('/') + 1)); }

bool MayRun(std::string_view path) { return MatchesAny(kMayRun, path); }

}  // namespace reshard::auxiliary_files
