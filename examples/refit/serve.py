"""The job that serves: two ranks with tensor parallelism. As in engines, each rank has its heads of q, k and v in one
tensor, and all experts in one, gate and up side by side.

    torchrun --standalone --nproc-per-node 2 serve.py STORE
"""
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, zeros
from torch.nn import functional as F

import reshard
from model import EXPERTS, GROUPS, HEAD, HEADS, HIDDEN, LAYERS, VOCABULARY, WIDTH, attend, shares

TP = 2
RECIPE = {
    "schema": "reshard.recipe/1",
    "tensors": [
        # The first halves of q, k and v, then the second halves: what each rank holds is contiguous.
        {"to": "{p*}.qkv", "from": {"interleave": ["{p*}.q.weight", "{p*}.k.weight", "{p*}.v.weight"], "blocks": TP}},
        {"to": "{p*}.gate_up", "from": {"stack": {"interleave": ["{p*}.experts.{e}.gate.weight", "{p*}.experts.{e}.up.weight"],
                                                  "blocks": TP}, "over": "e"}},
        {"to": "{p*}.down", "from": {"stack": "{p*}.experts.{e}.down.weight", "over": "e"}},
    ],
    "keep": ["*"],
}

mesh = init_device_mesh("cpu", (TP,), mesh_dim_names=("tp",))


def sharded(dim, *shape):
    return zeros(*shape, device_mesh=mesh, placements=[Shard(dim)])


weights = {"embedding.weight": torch.zeros(VOCABULARY, WIDTH), "norm.weight": torch.zeros(WIDTH), "head.weight": sharded(0, VOCABULARY, WIDTH)}
for i in range(LAYERS):
    weights |= {f"layers.{i}.{name}": tensor for name, tensor in {
        "attention_norm.weight": torch.zeros(WIDTH), "expert_norm.weight": torch.zeros(WIDTH), "router.weight": torch.zeros(EXPERTS, WIDTH),
        "qkv": sharded(0, (HEADS + 2 * GROUPS) * HEAD, WIDTH), "o.weight": sharded(1, WIDTH, HEADS * HEAD),
        "gate_up": sharded(1, EXPERTS, 2 * HIDDEN, WIDTH), "down": sharded(2, EXPERTS, WIDTH, HIDDEN)}.items()}
local = {name: tensor if type(tensor) is torch.Tensor else tensor.to_local() for name, tensor in weights.items()}


def summed(x):
    dist.all_reduce(x)
    return x


def logits_of(tokens):
    x = local["embedding.weight"][tokens]
    for i in range(LAYERS):
        w = {name.removeprefix(f"layers.{i}."): tensor for name, tensor in local.items()}
        y = F.rms_norm(x, (WIDTH,), w["attention_norm.weight"])
        q, k, v = F.linear(y, w["qkv"]).split([HEADS * HEAD // TP, GROUPS * HEAD // TP, GROUPS * HEAD // TP], -1)
        x = x + summed(F.linear(attend(q, k, v), w["o.weight"]))
        y = F.rms_norm(x, (WIDTH,), w["expert_norm.weight"])
        share = shares(F.linear(y, w["router.weight"]))
        gate, up = torch.einsum("bsw,ehw->bseh", y, w["gate_up"]).chunk(2, -1)
        x = x + summed(torch.einsum("bseh,ewh,bse->bsw", F.silu(gate) * up, w["down"], share))
    columns = F.linear(F.rms_norm(x, (WIDTH,), local["norm.weight"]), local["head.weight"])
    parts = [torch.empty_like(columns) for _ in range(TP)]
    dist.all_gather(parts, columns)
    return torch.cat(parts, -1)


store = dist.FileStore(sys.argv[1])
with reshard.join(store, rank=4 + dist.get_rank(), world=6) as joined:
    refit = reshard.Refit(target=weights, recipe=RECIPE, group=joined)
    if dist.get_rank() == 0:
        print(refit.explain())
    for step in range(1, 6):
        refit()
        tokens = torch.randint(VOCABULARY, (4, 16), generator=torch.Generator().manual_seed(step))
        logits = logits_of(tokens)
        wanted = torch.frombuffer(bytearray(store.get(f"logits of {joined.generation}.{step}")), dtype=torch.float32)
        torch.testing.assert_close(logits.flatten(), wanted, atol=1e-5, rtol=1e-5)
        if dist.get_rank() == 0:
            timings = refit.timings()
            print(f"step {step}: equal logits; received {timings['received_bytes']} bytes, bound {timings['received_bytes_bound']}")
dist.destroy_process_group()
