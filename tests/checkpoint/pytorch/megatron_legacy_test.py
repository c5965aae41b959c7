#!/usr/bin/env python3
"""Checkpoints of Megatron's legacy format, of GPTs of Megatron-core in every kind of model parallelism: what is read of them is
what Megatron's own distributed checkpoints hold, and what a single rank would have saved.

usage: megatron_legacy_test.py RESHARD SOURCE
"""
import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import warnings

warnings.filterwarnings("ignore")
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from safetensors.torch import load_file

RESHARD, SOURCE = sys.argv[1:3]
sys.path.append(f"{SOURCE}/tests/runtime/pytorch/frameworks")
from megatron_on_cpu import without_a_gpu

RANKS = 4
HIDDEN, FFN, HEADS, GROUPS, VOCABULARY = 32, 48, 8, 4, 96
LLAMA = {"normalization": "RMSNorm", "add_bias_linear": False, "gated_linear_unit": True, "activation_func": torch.nn.functional.silu}
EXPERTS = {"num_moe_experts": 4, "moe_router_topk": 2, "moe_shared_expert_intermediate_size": 16}

# Name: ranks along each axis, chunks of a stage, layers, whether the embedding is the output layer, and the model.
CASES = {
    "tensor": (4, 1, 1, 1, 2, False, LLAMA),
    "pipeline": (1, 4, 1, 1, 4, True, LLAMA),
    "both": (2, 2, 1, 1, 4, True, LLAMA),
    "interleaved": (1, 2, 1, 2, 8, False, LLAMA),
    "gpt2": (2, 2, 1, 1, 2, True, {"normalization": "LayerNorm", "activation_func": torch.nn.functional.gelu}),
    "experts": (2, 1, 2, 1, 2, False, LLAMA | EXPERTS),
    "experts of one tensor rank": (1, 2, 2, 1, 4, False, LLAMA | EXPERTS),
    "alone": (1, 1, 1, 1, 2, False, LLAMA),
}


def gpt(layers, tied, options, tp, pp, ep, chunks):
    """This rank's chunks of the model."""
    from megatron.core import parallel_state
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer import TransformerConfig

    if parallel_state.model_parallel_is_initialized():
        parallel_state.destroy_model_parallel()
    parallel_state.initialize_model_parallel(
        tp, pp, virtual_pipeline_model_parallel_size=chunks if chunks > 1 else None, expert_model_parallel_size=ep)
    config = TransformerConfig(
        num_layers=layers, hidden_size=HIDDEN, ffn_hidden_size=FFN, num_attention_heads=HEADS, num_query_groups=GROUPS,
        use_cpu_initialization=True, gradient_accumulation_fusion=False, masked_softmax_fusion=False, apply_rope_fusion=False,
        bias_dropout_fusion=False, tensor_model_parallel_size=tp, pipeline_model_parallel_size=pp, expert_model_parallel_size=ep,
        virtual_pipeline_model_parallel_size=chunks if chunks > 1 else None, pipeline_dtype=torch.float32,
        sequence_parallel=tp > 1 and ep > 1, **options)
    config.sequence_parallel = False  # the norms for CPUs refuse it; parameters are the same
    spec = get_gpt_layer_local_spec(options.get("num_moe_experts"), normalization=options["normalization"])
    models = []
    for chunk in range(chunks):
        of_chunk = {"vp_stage": chunk} if chunks > 1 else {}
        first = parallel_state.is_pipeline_first_stage(ignore_virtual=False, **of_chunk)
        last = parallel_state.is_pipeline_last_stage(ignore_virtual=False, **of_chunk)
        models.append(GPTModel(
            config, spec, vocab_size=VOCABULARY, max_sequence_length=64, pre_process=first, post_process=last,
            position_embedding_type="rope", share_embeddings_and_output_weights=tied, **of_chunk))
    return models


def directory_of_rank(tp, pp, ep):
    from megatron.core import parallel_state

    name = f"mp_rank_{parallel_state.get_tensor_model_parallel_rank():02d}"
    if pp > 1:
        name += f"_{parallel_state.get_pipeline_model_parallel_rank():03d}"
    if ep > 1:
        name += f"_{parallel_state.get_expert_model_parallel_rank():03d}"
    return name


def write(rank, folder):
    """As Megatron's training saves: for each case the model in one piece (whole), by dist_checkpointing (torch_dist), and by the
    ranks of the case (legacy)."""
    from megatron.core import dist_checkpointing, parallel_state

    without_a_gpu()
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=RANKS)
    for name, (tp, pp, ep, chunks, layers, tied, options) in CASES.items():
        case = pathlib.Path(folder, name)
        if rank == 0:
            (case / "torch_dist").mkdir(parents=True)
        dist.barrier()
        [whole] = gpt(layers, tied, options, 1, 1, 1, 1)
        torch.manual_seed(5)
        with torch.no_grad():
            for parameter in whole.parameters():
                parameter.copy_(torch.randn(parameter.shape))
        state = {key: value for key, value in whole.state_dict().items() if isinstance(value, torch.Tensor)}
        if rank == 0:
            torch.save(state, case / "whole.pt")
        dist_checkpointing.save(whole.sharded_state_dict(), str(case / "torch_dist"))

        models = gpt(layers, tied, options, tp, pp, ep, chunks)
        keys = ["model"] if chunks == 1 else [f"model{chunk}" for chunk in range(chunks)]
        wanted = {key: model.sharded_state_dict(prefix="") for key, model in zip(keys, models)}
        loaded = dist_checkpointing.load(wanted, str(case / "torch_dist"))
        for key, model in zip(keys, models):
            model.load_state_dict(loaded[key])
        arguments = argparse.Namespace(
            tensor_model_parallel_size=tp, pipeline_model_parallel_size=pp, expert_model_parallel_size=ep, num_layers=layers,
            swiglu="gated_linear_unit" in options, untie_embeddings_and_output_weights=not tied, params_dtype=torch.float32,
            rank=rank)
        saved = {
            "args": arguments, "checkpoint_version": 3.0, "iteration": 100,
            "optimizer": {"optimizer": {"state": {0: {"exp_avg": torch.zeros(3)}}, "param_groups": []}},
            "opt_param_scheduler": {"num_steps": 100}, "rng_state": [{"torch_rng_state": torch.get_rng_state()}],
            **{key: model.state_dict_for_save_checkpoint() for key, model in zip(keys, models)}}
        path = case / "legacy/iter_0000100" / directory_of_rank(tp, pp, ep)
        if parallel_state.get_data_parallel_rank() == 0 or ep > 1:
            path.mkdir(parents=True, exist_ok=True)
            if parallel_state.get_expert_data_parallel_rank() == 0:
                torch.save(saved, path / "model_optim_rng.pt")
        dist.barrier()
        (case / "legacy/latest_checkpointed_iteration.txt").write_text("100")
        dist.barrier()
    dist.destroy_process_group()


def reshard(*words, code=0):
    done = subprocess.run([RESHARD, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done.stdout if code == 0 else done.stderr


class LegacyTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        multiprocessing.spawn(write, (cls.folder.name,), RANKS)

    def test_is_what_one_rank_would_have(self):
        for name in CASES:
            with self.subTest(name):
                case = pathlib.Path(self.folder.name, name)
                reshard("convert", case / "legacy", case / "joined", "--to", "safetensors", "--weights-only", "--verify")
                [file] = (case / "joined").glob("*.safetensors")
                joined, whole = load_file(file), torch.load(case / "whole.pt", weights_only=True)
                self.assertEqual(sorted(joined), sorted(whole))
                for key, value in whole.items():
                    self.assertTrue(torch.equal(joined[key], value), key)


    def recipe(self, names):
        path = pathlib.Path(self.folder.name, f"{names}.json")
        command = [sys.executable, f"{SOURCE}/examples/recipes/llama_to_megatron.py", "--heads", str(HEADS), "--groups", str(GROUPS), "--names", names]
        path.write_bytes(subprocess.run(command, capture_output=True, check=True).stdout)
        return path

    def to_hugging_face(self, source, names):
        result = source.with_name(source.name + " as a model")
        reshard("convert", source, result, "--to", "hf", "--weights-only", "--no-side-files", "--recipe", self.recipe(names), "--invert", "--overwrite")
        return result

    def edited(self, name, edit):
        """A copy of a case's checkpoint, with what edit(saved, mp_rank_...) makes of each rank's file."""
        copy = pathlib.Path(self.folder.name, "edited")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(pathlib.Path(self.folder.name, name, "legacy/iter_0000100"), copy)
        for path in sorted(copy.glob("*/*.pt")):
            saved = torch.load(path, weights_only=False)
            edit(saved, path.parent.name)
            torch.save(saved, path)
        return copy

    def test_is_the_model_that_torch_dist_gives(self):
        for name in ("both", "interleaved"):
            case = pathlib.Path(self.folder.name, name)
            expected = self.to_hugging_face(case / "torch_dist", "torch_dist")
            self.assertIn("equal", reshard("verify", self.to_hugging_face(case / "legacy", "local"), expected, "--ignore-sidecar"))

            def before_the_core(saved, _):
                for key in [key for key in saved if key.startswith("model")]:
                    encoder, language = {}, {"encoder": {}}
                    for place, value in saved[key].items():
                        for new, old in (("input_layernorm", "input_norm"), ("pre_mlp_layernorm", "post_attention_norm"),
                                         ("linear_qkv", "query_key_value"), ("linear_proj", "dense"), ("linear_fc1", "dense_h_to_4h"),
                                         ("linear_fc2", "dense_4h_to_h"), ("final_layernorm", "final_norm")):
                            place = place.replace(new, old)
                        if place.startswith("decoder."):
                            encoder[place.removeprefix("decoder.")] = value
                        else:
                            *folders, last = place.split(".")
                            at = language
                            for folder in folders:
                                at = at.setdefault(folder, {})
                            at[last] = value
                    saved[key] = {"language_model": language | {"encoder": encoder}}

            older = self.to_hugging_face(self.edited(name, before_the_core), "lm")
            self.assertIn("equal", reshard("verify", older, expected, "--ignore-sidecar"))

    def test_paths(self):
        case = pathlib.Path(self.folder.name, "both/legacy")
        said = reshard("fingerprint", case, "--weights-only").split()[0]
        for path in ("iter_0000100", "iter_0000100/mp_rank_01_000/model_optim_rng.pt"):
            self.assertEqual(reshard("fingerprint", case / path, "--weights-only").split()[0], said)
        alone = pathlib.Path(self.folder.name, "alone/legacy/iter_0000100/mp_rank_00/model_optim_rng.pt")
        self.assertIn("  decoder.final_layernorm.weight", reshard("inspect", alone))  # below "model": the file as it is
        self.assertIn("optimizer", reshard("inspect", case))

    def test_without_arguments(self):
        said = reshard("fingerprint", pathlib.Path(self.folder.name, "tensor/legacy"), "--weights-only", "--exclude", "*fc1*")

        def bare(saved, _):
            del saved["args"]

        found = reshard("fingerprint", self.edited("tensor", bare), "--weights-only", "--exclude", "*fc1*")
        self.assertEqual(found.split()[0], said.split()[0])  # gate and up are two only by the arguments

    def test_what_is_wrong(self):
        def with_arguments(**arguments):
            return lambda saved, _: saved["args"].__dict__.update(arguments)

        def with_tensor(name, tensor, where=""):
            def edit(saved, rank):
                if where in rank:
                    saved["model"][name] = tensor
            return edit

        fc1 = "decoder.layers.0.mlp.linear_fc1.weight"
        for name, edit, words in (
            ("both", with_arguments(num_layers=5), "the files have 4 layers, and args.num_layers is 5"),
            ("both", with_arguments(pipeline_model_parallel_size=3), "stage 2 and expert-parallel rank 0 is missing"),
            ("both", with_arguments(tensor_model_parallel_size=1), "is of no rank of the job"),
            ("both", with_arguments(pipeline_model_parallel_size=1), "which is not what the numbers in mp_rank_... say"),
            ("both", with_arguments(tensor_model_parallel_size=0), "args.tensor_model_parallel_size is 0"),
            ("both", lambda saved, _: saved.update(checkpoint_version=1.0), "a version before 2"),
            ("both", with_tensor("decoder.odd.weight", torch.zeros(2)), 'how tensor-parallel ranks cut "decoder.odd.weight"'),
            ("both", with_tensor(fc1, torch.zeros(3, HIDDEN)), "has 3 rows, which are not gate and as much up"),
            ("both", with_tensor(fc1, torch.zeros(2, HIDDEN), "mp_rank_01_000"), "is torch.float32 [2, 32], that of the first rank"),
            ("both", with_tensor("output_layer.bias", torch.zeros(2), "mp_rank_00_000"), "1 of 2 tensor-parallel ranks have"),
            ("both", with_tensor("embedding.position_embeddings.weight", torch.zeros(2)), "more than one stage has it"),
            ("both", with_tensor(f"decoder.layers.{2**63 - 1}.mlp.linear_fc2.weight", torch.zeros(2, 2), "mp_rank_01_000"), "of a layer or an expert"),
            ("both", with_tensor("odd.layers.0.weight", torch.zeros(2), "mp_rank_01_000"), 'how tensor-parallel ranks cut "odd.layers.0'),
            ("experts", with_tensor("decoder.layers.0.mlp.experts.weight1", torch.zeros(2, 2)), "have all their experts together"),
            ("experts", with_arguments(expert_tensor_parallel_size=1), "experts over 1 tensor-parallel ranks"),
            ("alone", lambda saved, _: saved.pop("model"), 'there is no "model"'),
        ):
            with self.subTest(words):
                found = reshard("inspect", self.edited(name, edit), code=4)
                self.assertIn(words, found)
        copy = self.edited("both", lambda *_: None)
        shutil.rmtree(copy / "mp_rank_01_001")
        self.assertIn("the file of tensor-parallel rank 1, stage 1 and expert-parallel rank 0 is missing", reshard("inspect", copy, code=4))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
