"""The job that trains: FSDP2 over tensor parallelism, on four ranks.

    torchrun --standalone --nproc-per-node 4 train.py STORE
"""
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import reshard
from model import EXPERTS, VOCABULARY, Transformer

mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
torch.manual_seed(1)
model = Transformer()
plan = {name: ColwiseParallel() for name in ("q", "k", "v")} | {"o": RowwiseParallel()}
for e in range(EXPERTS):
    plan |= {f"experts.{e}.gate": ColwiseParallel(), f"experts.{e}.up": ColwiseParallel(), f"experts.{e}.down": RowwiseParallel()}
for layer in model.layers:
    parallelize_module(layer, mesh["tp"], plan)
    fully_shard(layer, mesh=mesh["dp"])
fully_shard(model, mesh=mesh["dp"])
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

store = dist.FileStore(sys.argv[1])
with reshard.join(store, rank=dist.get_rank(), world=6) as joined:
    refit = reshard.Refit(source=model, group=joined)
    for step in range(1, 6):
        tokens = torch.randint(VOCABULARY, (4, 16), generator=torch.Generator().manual_seed(step))
        logits = model(tokens)
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        refit()
        with torch.no_grad():
            logits = model(tokens)  # what the servers must get, too
        if dist.get_rank() == 0:
            store.set(f"logits of {joined.generation}.{step}", logits.numpy().tobytes())
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)  # threads of Gloo that FSDP2 has started outlive the interpreter: see Troubleshooting
