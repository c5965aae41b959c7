"""Results of `reshard convert` in the frameworks that wrote the sources: each loads them as they are, and finds what it
finds in the source, bit for bit.

Run by CTest with a Python that has them: frameworks_test.py RESHARD FIXTURES
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import warnings

import torch
import torch.distributed as dist

COMMAND, FIXTURES = sys.argv.pop(1), pathlib.Path(sys.argv.pop(1))
ROWS = ["--mesh", "{x:3}", "--layout", "[<x>, ...]"]

warnings.filterwarnings("ignore")


def leaves(value, path=""):
    """The leaves of nested containers, by path."""
    if isinstance(value, dict):
        return {k: v for key, one in value.items() for k, v in leaves(one, f"{path}.{key}").items()}
    if isinstance(value, (list, tuple)):
        return {k: v for key, one in enumerate(value) for k, v in leaves(one, f"{path}.{key}").items()}
    return {path: value}


def same(one, other):
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


class FrameworksTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="reshard-frameworks-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def run_it(self, *words):
        done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False, timeout=300)
        self.assertEqual(0, done.returncode, f"{words}\n{done.stdout}\n{done.stderr}")

    def convert(self, source, name, *flags):
        self.run_it(COMMAND, "convert", source, self.folder / name, "--verify", *flags)
        return self.folder / name

    def assert_same(self, one, other):
        one, other = leaves(one), leaves(other)
        self.assertEqual(one.keys(), other.keys())
        self.assertTrue(one)
        for key, value in one.items():
            self.assertTrue(same(value, other[key]), key)

    def test_megatron(self):
        import megatron.core.dist_checkpointing as checkpointing

        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        self.addCleanup(dist.destroy_process_group)

        def load(path):
            asked = checkpointing.load_tensors_metadata(str(path))
            return checkpointing.load(dict(asked), str(path)), checkpointing.load_common_state_dict(str(path))

        source = FIXTURES / "megatron_plans"
        self.assert_same(load(source), load(self.convert(source, "result", *ROWS)))

    def test_lightning(self):
        source = shutil.copytree(FIXTURES / "lightning", self.folder / "source")
        files = []
        for path in (source, self.convert(source, "result", *ROWS)):
            files.append(f"{path}.one")
            self.run_it(sys.executable, "-m", "lightning.fabric.utilities.consolidate_checkpoint", path, "--output_file", files[-1])
        self.assert_same(*(torch.load(file, weights_only=False) for file in files))

    def test_accelerate(self):
        import safetensors.torch

        source = FIXTURES / "accelerate"
        merged = []
        for number, path in enumerate((source, self.convert(source, "result", *ROWS))):
            merged.append(self.folder / f"merged{number}")
            self.run_it(pathlib.Path(sys.executable).parent / "accelerate", "merge-weights", path, merged[-1])
        # What it merges is what `--to hf` writes.
        recipe = pathlib.Path(__file__).parents[3] / "examples/recipes/training_to_hf.json"
        merged.append(self.convert(source, "hf", "--to", "hf", "--recipe", recipe))
        tensors = [safetensors.torch.load_file(path / "model.safetensors") for path in merged]
        self.assert_same(tensors[0], tensors[1])
        self.assert_same(tensors[0], tensors[2])

    def test_torchtitan(self):
        from torchtitan.components.checkpoint import CheckpointManager
        from torchtitan.components.lr_scheduler import LRSchedulersContainer
        from torchtitan.components.optimizer import OptimizersContainer
        from torchtitan.config.job_config import Checkpoint

        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        self.addCleanup(dist.destroy_process_group)

        class Counter:
            step = 0

            def state_dict(self):
                return {"step": torch.tensor(self.step)}

            def load_state_dict(self, state):
                self.step = int(state["step"])

        class Job:
            def __init__(self, folder, seed):
                torch.manual_seed(seed)
                self.model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Linear(6, 2))
                self.optimizer = OptimizersContainer([self.model], torch.optim.AdamW, {"lr": 0.1})
                self.schedule = LRSchedulersContainer(self.optimizer, lambda step: 1 / (1 + step))
                self.counter = Counter()
                self.checkpoints = CheckpointManager(
                    dataloader=None, model_parts=[self.model], optimizers=self.optimizer, lr_schedulers=self.schedule,
                    states={"train_state": self.counter}, sd_adapter=None, base_folder=str(folder),
                    checkpoint_config=Checkpoint(enable=True, folder="checkpoint", interval=1))

            def step(self):
                self.model(torch.randn(5, 4)).sum().backward()
                self.optimizer.step()
                self.schedule.step()
                self.counter.step += 1

            def state(self):
                parts = (self.model, self.optimizer, self.schedule, self.counter)
                return [part.state_dict() for part in parts]

        first = Job(self.folder / "first", 1)
        for _ in range(3):
            first.step()
        first.checkpoints.save(3)
        (self.folder / "second/checkpoint").mkdir(parents=True)
        self.convert(self.folder / "first/checkpoint/step-3", "second/checkpoint/step-3", *ROWS)
        second = Job(self.folder / "second", 2)
        self.assertTrue(second.checkpoints.load(step=-1))
        self.assert_same(first.state(), second.state())

    def test_transformers(self):
        import transformers

        torch.manual_seed(3)
        config = transformers.LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                                          num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True)
        model = transformers.LlamaForCausalLM(config)
        source = self.folder / "source"
        model.save_pretrained(source)
        result = self.convert(self.convert(source, "dcp", *ROWS), "result", "--to", "hf")
        self.assertTrue((result / "generation_config.json").exists())
        loaded = transformers.AutoModelForCausalLM.from_pretrained(result)
        self.assert_same(model.state_dict(), loaded.state_dict())
        words = torch.arange(8)[None]
        self.assertTrue(torch.equal(model(words).logits, loaded(words).logits))


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    unittest.main()
