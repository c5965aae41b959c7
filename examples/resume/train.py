"""Trains a small model with FSDP2 on any number of ranks, and continues from a checkpoint of any other number.

    torchrun --nproc-per-node 4 train.py --save step-5
    torchrun --nproc-per-node 3 train.py --load step-5

Each step prints its loss, which does not depend on the number of ranks: all see the same batch.
"""
import argparse
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import reshard

parser = argparse.ArgumentParser()
parser.add_argument("--save", help="a checkpoint to write at the end")
parser.add_argument("--load", help="a checkpoint to begin with")
parser.add_argument("--steps", type=int, default=5)
arguments = parser.parse_args()

mesh = init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),), mesh_dim_names=("dp",))
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.Tanh(), torch.nn.Linear(50, 7))
for module in (model[0], model[2], model):
    fully_shard(module, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

step = 0
if arguments.load:
    weights, state = get_state_dict(model, optimizer)
    job = {"model": weights, "optim": state, "step": 0}
    reshard.load(arguments.load, job)  # 50 rows over 4 ranks become 50 rows over 3, whoever wrote them
    set_state_dict(model, optimizer, model_state_dict=job["model"], optim_state_dict=job["optim"])
    step = job["step"]

for step in range(step + 1, step + 1 + arguments.steps):
    torch.manual_seed(100 + step)
    batch = torch.randn(64, 20)
    loss = torch.nn.functional.cross_entropy(model(batch), batch[:, :7].argmax(1))  # what it is to learn
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if dist.get_rank() == 0:
        print(f"step {step:2}: loss {loss.item():.5f}")

if arguments.save:
    weights, state = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optim": state, "step": step}, checkpoint_id=arguments.save)
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)  # threads of Gloo that FSDP2 has started outlive the interpreter: see Troubleshooting
