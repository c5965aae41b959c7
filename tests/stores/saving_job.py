"""Jobs of three ranks that save into a store, or load; run by saves_test.py, one after the other.

    saving_job.py PACKAGES

Reads lines, each a JSON list: how ("save", "save_async", "writer" or "load"), URL, seed, environment. Answers each with
two: the ranks' process numbers when they have started, and when all have ended how many failed, and what they said.
"""
import json
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, sys.argv[1])
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import reshard
import reshard.stores.by_obstore  # these here, and not once per rank
import reshard.torch

RANKS = 3


def state_of(seed):
    """The same on every rank, and the whole tensors."""
    generator = torch.Generator().manual_seed(seed)
    return {f"layers.{i}.w": torch.randn(96, 64, generator=generator) for i in range(4)} | {
        "bias": torch.randn(7, generator=generator).bfloat16(),
    }


def run(rank, store, how, url, seed):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    mesh = init_device_mesh("cpu", (RANKS,))
    whole = state_of(seed)
    tensors = {name: distribute_tensor(tensor, mesh, [Shard(0) if tensor.dim() == 2 else Replicate()]) for name, tensor in whole.items()}
    state = {"model": tensors, "step": seed}
    if how == "save":
        reshard.save(url, state, overwrite=True)
    elif how == "save_async":
        pending = reshard.save_async(url, state, overwrite=True)
        for tensor in tensors.values():
            tensor.to_local().zero_()  # what the job does next
        pending.wait()
    elif how == "writer":
        dcp.save(state, storage_writer=reshard.dcp.StorageWriter(url))
    elif how == "load":
        target = {"model": {name: distribute_tensor(torch.zeros_like(tensor), mesh, [Replicate()]) for name, tensor in whole.items()}, "step": 0}
        reshard.load(url, target)
        assert target["step"] == seed, target["step"]
        for name, tensor in target["model"].items():
            assert torch.equal(tensor.to_local(), whole[name]), name
        # PyTorch's own readers, of objects that have been copied into a directory.
        plain = {"model": {name: torch.zeros_like(tensor) for name, tensor in whole.items()}, "step": 0}
        dcp.load(plain, checkpoint_id=os.environ["COPY_OF_IT"])
        assert all(torch.equal(plain["model"][name], whole[name]) for name in whole) and plain["step"] == seed
    dist.barrier()
    dist.destroy_process_group()


def main():
    torch.set_num_threads(1)
    for line in sys.stdin:
        how, url, seed, environment = json.loads(line)
        with tempfile.TemporaryDirectory() as folder:
            ranks = []
            for rank in range(RANKS):
                pid = os.fork()
                if pid == 0:
                    code = 1
                    os.environ |= environment
                    try:
                        run(rank, f"{folder}/store", how, url, seed)
                        code = 0
                    except Exception as error:
                        with open(f"{folder}/rank {rank}", "w", encoding="utf-8") as said:
                            said.write(f"{type(error).__name__}: {error}\n")
                    finally:
                        os._exit(code)
                ranks.append(pid)
            print(json.dumps(ranks), flush=True)
            failed = sum(os.waitpid(pid, 0)[1] != 0 for pid in ranks)
            said = "".join(f"{path.name}: {path.read_text()}" for path in sorted(pathlib.Path(folder).glob("rank *")))
            print(json.dumps([failed, said]), flush=True)


main()
