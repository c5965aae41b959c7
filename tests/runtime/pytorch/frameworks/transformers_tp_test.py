#!/usr/bin/env python3
"""Models that transformers shards by its own tensor parallelism (`from_pretrained(..., tp_plan="auto")`): plain columns and rows,
and the packed ones of mixtures of experts, which PyTorch itself does not gather. A checkpoint of the hub is loaded into their
tensors, and a trainer's steps arrive there: parameters equal to what transformers loads, logits equal to the trainer's.

Needs transformers beside PyTorch.
"""

import contextlib
import io
import os
import tempfile
import unittest
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
import transformers
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import gloo
import jobs
from tiny_models import VOCABULARY, tiny

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

TP, STEPS = 2, 3
FAMILIES = ["llama", "mixtral", "qwen3_moe", "deepseek_v3", "gemma3_text", "gpt_oss"]


def random(family):
    model = tiny(family).float()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    return model


def served(path):
    mesh = init_device_mesh("cpu", (TP,), mesh_dim_names=("tp",))
    return transformers.AutoModelForCausalLM.from_pretrained(path, tp_plan="auto", device_mesh=mesh, dtype=torch.float32).eval()


def local(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def logits(model, step=0):
    tokens = torch.randint(3, VOCABULARY, (2, 12), generator=torch.Generator().manual_seed(step))
    with torch.no_grad():
        return local(model(input_ids=tokens).logits).clone()


def load(path, recipe):
    """Names that differ from what transformers loads, and how many parameters are sharded."""
    import reshard

    wanted, model = served(path), served(path)
    state = model.state_dict()
    with torch.no_grad():
        for tensor in state.values():
            local(tensor).zero_()
    reshard.load(path, state, recipe=recipe)
    differ = [
        name for (name, a), b in zip(model.state_dict().items(), wanted.state_dict().values()) if not torch.equal(local(a), local(b))
    ]
    return differ, sum(hasattr(tensor, "to_local") for tensor in state.values()), torch.equal(logits(model), logits(wanted))


def train(member, path, family):
    import reshard

    model = random(family)
    for layer in model.model.layers:
        fully_shard(layer, mesh=init_device_mesh("cpu", (2,)))
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    said = []
    with member.join() as joined:
        refit = reshard.Refit(source=model, group=joined)
        for step in range(STEPS):
            tokens = torch.randint(3, VOCABULARY, (2, 12), generator=torch.Generator().manual_seed(100 + step))
            optimizer.zero_grad()
            model.train()(input_ids=tokens, labels=tokens).loss.backward()
            optimizer.step()
            refit()
            said.append(logits(model.eval(), step))
    return said


def serve(member, path, _):
    import reshard

    os.environ["WORLD_SIZE"] = str(TP)  # of its own job, which transformers asks for
    model = served(path)
    said = []
    with member.join() as joined:
        refit = reshard.Refit(target=model, group=joined)
        for step in range(STEPS):
            refit()
            timings = refit.timings()
            said.append((logits(model, step), timings["received_bytes"] == timings["received_bytes_bound"]))
    return said


class TransformersTensorParallelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        gloo.load_library()

    def each(self, check):
        for family in FAMILIES:
            with self.subTest(family=family), tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "hub")
                random(family).save_pretrained(path)
                check(family, path)

    def test_checkpoints_of_the_hub(self):
        self.each(self.check_checkpoint)

    def test_a_trainers_steps(self):
        self.each(self.check_steps)

    def check_checkpoint(self, _, path):
        from reshard.torch.record.command import main as record

        recipe = f"{path}.json"
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(record(["--transformers", path, "-o", recipe]), 0, said.getvalue())
        for differ, sharded, equal in gloo.values(gloo.run_ranks(TP, lambda _rank, _world, *a: load(*a), path, recipe)):
            self.assertEqual(differ, [])
            self.assertGreater(sharded, 0)
            self.assertTrue(equal)

    def check_steps(self, family, path):
        outcomes = gloo.values(jobs.run_jobs([2, TP], lambda member, *a: (serve if member.job else train)(member, *a), path, family))
        wanted = outcomes[0]
        for said in outcomes[2:]:
            for step, (found, at_bound) in enumerate(said):
                torch.testing.assert_close(found, wanted[step], atol=1e-4, rtol=1e-4)
                self.assertTrue(at_bound)
        self.assertGreater((wanted[-1] - wanted[0]).abs().max(), 0.1)


if __name__ == "__main__":
    unittest.main()
