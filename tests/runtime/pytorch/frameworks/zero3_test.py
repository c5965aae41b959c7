#!/usr/bin/env python3
"""A trainer in DeepSpeed itself, under ZeRO 3, whose parameters are refitted into an engine and saved where they are."""

import os
import sys
import tempfile
import unittest

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
os.environ["DS_ACCELERATOR"] = "cpu"

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

import gloo
import jobs

TRAINERS, WORKERS, STEPS = 3, 2, 2
RECIPE = {"schema": "reshard.recipe/1", "keep": ["embed.*", "o.*"], "tensors": [
    {"to": "qkv.weight", "from": {"concatenate": ["q.weight", "k.weight", "v.weight"]}}]}  # fmt: skip


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(11, 6)
        self.q, self.k, self.v = (torch.nn.Linear(6, size, bias=False) for size in (8, 4, 4))
        self.o = torch.nn.Linear(8, 11)

    def forward(self, x):
        x = self.embed(x)
        return self.o(self.q(x) * torch.cat([self.k(x), self.v(x)], -1))


def train(member, folder):
    import deepspeed

    import reshard

    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # which it would compile first, for a minute
    os.environ |= {"RANK": str(member.job_rank), "LOCAL_RANK": str(member.job_rank), "WORLD_SIZE": str(TRAINERS), "LOCAL_SIZE": str(TRAINERS)}
    deepspeed.init_distributed("gloo")
    torch.manual_seed(3)
    model = Model()
    config = {
        "train_micro_batch_size_per_gpu": 4, "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 10},
    }  # fmt: skip
    engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), config=config)
    fragments = reshard.zero3_fragments(engine.module)
    assert set(fragments) == set(dict(Model().named_parameters())), fragments
    assert sum(part.local.numel() for part in fragments.values()) < 90, "a third of 261"
    joined = member.join()
    refit = reshard.Refit(source=fragments, recipe=RECIPE, group=joined)
    for step in range(STEPS):
        torch.manual_seed(10 * step + member.job_rank)
        x, y = torch.randint(0, 11, (2, 4))
        engine.backward(torch.nn.functional.cross_entropy(engine(x), y))
        engine.step()
        refit()
        # What DeepSpeed itself gathers.
        with deepspeed.zero.GatheredParameters(list(engine.module.parameters())):
            whole = {name: parameter.detach().clone() for name, parameter in engine.module.named_parameters()}
        reshard.save(f"{folder}/step{step}", fragments)
        if member.job_rank == 0:
            torch.save(whole, f"{folder}/whole{step}.pt")
        member.store().set(f"step {step} by {member.job_rank}", "")
        member.store().wait([f"compared {step} by {rank}" for rank in range(WORKERS)])
    timings = refit.timings()
    joined.leave()
    return timings["received_bytes"]


def serve(member, folder):
    import reshard

    mesh = DeviceMesh("cpu", torch.arange(WORKERS), mesh_dim_names=("tp",))

    def zeros(*shape):
        local = list(shape)
        local[0] = len(torch.arange(shape[0]).chunk(WORKERS)[member.job_rank])
        return DTensor.from_local(torch.zeros(local), mesh, [Shard(0)], run_check=False, shape=torch.Size(shape), stride=torch.zeros(shape).stride())

    engine = {"embed.weight": zeros(11, 6), "qkv.weight": zeros(16, 6), "o.weight": zeros(11, 8), "o.bias": zeros(11)}
    joined = member.join()
    refit = reshard.Refit(target=engine, group=joined)
    for step in range(STEPS):
        refit()
        member.store().wait([f"step {step} by {rank}" for rank in range(TRAINERS)])
        whole = torch.load(f"{folder}/whole{step}.pt")
        want = {name: whole[name] for name in engine if name in whole} | {"qkv.weight": torch.cat([whole[f"{name}.weight"] for name in "qkv"])}
        for name, tensor in engine.items():
            mine = want[name].chunk(WORKERS)[member.job_rank]
            assert torch.equal(tensor.to_local(), mine), f"step {step}, {name}"
        saved = {name: torch.zeros_like(tensor) for name, tensor in whole.items()}
        reshard.load(f"{folder}/step{step}", saved)
        assert all(torch.equal(saved[name], whole[name]) for name in whole), f"step {step}: what was saved"
        member.store().set(f"compared {step} by {member.job_rank}", "")
    timings = refit.timings()
    assert timings["received_bytes"] == timings["received_bytes_bound"], timings
    joined.leave()
    return timings["received_bytes"]


class Zero3(unittest.TestCase):
    def test_into_an_engine(self):
        with tempfile.TemporaryDirectory() as folder:
            outcomes = jobs.run_jobs([TRAINERS, WORKERS], lambda member: (train if member.job == 0 else serve)(member, folder))
            received = gloo.values(outcomes)
        self.assertEqual(sum(received), 4 * sum(parameter.numel() for parameter in Model().parameters()))

    def test_without_zero(self):
        import reshard

        with self.assertRaisesRegex(reshard.InputError, "no parameters of DeepSpeed's ZeRO 3"):
            reshard.zero3_fragments(Model())


if __name__ == "__main__":
    gloo.load_library()
    unittest.main()
