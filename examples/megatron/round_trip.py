#!/usr/bin/env python3
"""A GPT of Megatron-core becomes a Llama of transformers and a GPT again: the same logits each time.

usage: round_trip.py [--tied] [--reshard COMMAND]      (Megatron-core 0.13.1 and transformers; no GPU)
"""
import argparse
import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile
import types
import warnings

warnings.filterwarnings("ignore")
import torch
import torch.distributed as dist
import transformers
from megatron.core import dist_checkpointing, parallel_state, tensor_parallel
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.transformer import TransformerConfig

RECIPE = pathlib.Path(__file__).resolve().parent.parent / "recipes/llama_to_megatron.py"
LAYERS, HIDDEN, FFN, HEADS, GROUPS, VOCABULARY, PADDED = 2, 32, 48, 8, 2, 80, 96


def without_a_gpu():
    """Replaces the CUDA calls that Megatron makes although these models are on the CPU."""
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.current_device = lambda: "cpu"
    tensor_parallel.get_cuda_rng_tracker = lambda: types.SimpleNamespace(fork=contextlib.nullcontext)


def gpt(tied):
    config = TransformerConfig(
        num_layers=LAYERS, hidden_size=HIDDEN, ffn_hidden_size=FFN, num_attention_heads=HEADS, num_query_groups=GROUPS,
        normalization="RMSNorm", layernorm_epsilon=1e-6, add_bias_linear=False, gated_linear_unit=True,
        activation_func=torch.nn.functional.silu, attention_dropout=0.0, hidden_dropout=0.0, use_cpu_initialization=True,
        gradient_accumulation_fusion=False, masked_softmax_fusion=False, apply_rope_fusion=False)
    return GPTModel(config, get_gpt_layer_local_spec(normalization="RMSNorm"), vocab_size=PADDED, max_sequence_length=64,
                    position_embedding_type="rope", share_embeddings_and_output_weights=tied).eval()


def logits_of(model, words):
    length = words.shape[1]
    mask = torch.ones(length, length, dtype=torch.bool).triu(1)[None, None]
    with torch.no_grad():
        return model(words, torch.arange(length)[None], mask)[..., :VOCABULARY]


def main(arguments, folder):
    def reshard(*words):
        subprocess.run([arguments.reshard, *map(str, words)], check=True, stdout=subprocess.DEVNULL)

    words = torch.arange(24).reshape(2, 12)
    model = gpt(arguments.tied)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.2)
    trained = logits_of(model, words)
    (folder / "iter_0000100").mkdir()
    dist_checkpointing.save(model.sharded_state_dict(), str(folder / "iter_0000100"))

    with open(folder / "recipe.json", "w", encoding="utf-8") as file:
        subprocess.run([sys.executable, RECIPE, "--heads", str(HEADS), "--groups", str(GROUPS), "--vocabulary", str(VOCABULARY),
                        "--padded-vocabulary", str(PADDED)], stdout=file, check=True)
    reshard("convert", folder / "iter_0000100", folder / "llama", "--to", "hf", "--weights-only", "--no-side-files",
            "--recipe", folder / "recipe.json", "--invert", "--verify")
    # A Megatron checkpoint has no configuration that transformers can read.
    transformers.LlamaConfig(
        architectures=["LlamaForCausalLM"], vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=FFN, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=GROUPS, rms_norm_eps=1e-6,
        tie_word_embeddings=arguments.tied).save_pretrained(folder / "llama")
    llama = transformers.AutoModelForCausalLM.from_pretrained(folder / "llama", attn_implementation="eager").eval()
    with torch.no_grad():
        apart = (llama(words).logits - trained).abs().max().item()
    print(f"Megatron and transformers: logits up to {trained.abs().max().item():.2f} differ by {apart:.0e} at most")
    assert apart < 1e-5

    # And back, for two pipeline stages of two tensor-parallel ranks, into a model that has not seen these weights.
    reshard("convert", folder / "llama", folder / "iter_0000000", "--no-side-files", "--recipe", folder / "recipe.json",
            "--mesh", "{pp:2,tp:2}", "--layout", "[<pp>, <tp>, ...]", "--verify")
    # What Megatron's loader looks for besides the tensors.
    kinds = {"sharded_backend": "torch_dist", "sharded_backend_version": 1, "common_backend": "torch", "common_backend_version": 1}
    (folder / "iter_0000000/metadata.json").write_text(json.dumps(kinds))
    torch.save({}, folder / "iter_0000000/common.pt")
    again = gpt(arguments.tied)
    # It has no _extra_state: that is state of Transformer Engine, which Hugging Face models do not have.
    loaded = dist_checkpointing.load(again.sharded_state_dict(), str(folder / "iter_0000000"), strict="ignore_all")
    again.load_state_dict(loaded, strict=False)
    assert torch.equal(logits_of(again, words), trained)
    print("Megatron again: equal logits")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tied", action="store_true", help="one tensor for the embedding and the output layer")
    parser.add_argument("--reshard", default="reshard")
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    without_a_gpu()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    parallel_state.initialize_model_parallel()
    with tempfile.TemporaryDirectory() as directory:
        main(parser.parse_args(), pathlib.Path(directory))
    dist.destroy_process_group()
