"""Measures the network between the ranks of torchrun, and writes it as a topology.

    torchrun --nproc-per-node 8 -m reshard.calibration --output network.json
"""

import argparse
import json
import os
import sys

import torch
import torch.distributed as dist

from .torch.calibration import calibrate


def main() -> None:
    """See the module docstring."""
    parser = argparse.ArgumentParser(prog="torchrun ... -m reshard.calibration", description=__doc__)
    parser.add_argument("--output", metavar="FILE", help="write the topology to this file")
    parser.add_argument("--nodes", metavar="NxD", help="nodes and ranks of each (default: the hosts of the ranks)")
    parser.add_argument("--size", default="64MiB", metavar="BYTES", help="what a rank holds (default 64MiB)")
    parser.add_argument("--repeat", type=int, default=20, metavar="N", help="timed executions (default 20)")
    parser.add_argument("--backend", default="nccl" if torch.cuda.is_available() else "gloo", metavar="NAME")
    given = parser.parse_args()
    nodes = None
    if given.nodes:
        parts = given.nodes.lower().split("x")
        if len(parts) != 2 or not all(part.isdigit() for part in parts):
            parser.error(f"--nodes takes nodes and ranks of each, like 4x8, not {given.nodes}")
        nodes = (int(parts[0]), int(parts[1]))
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    dist.init_process_group("cpu:gloo,cuda:nccl" if given.backend == "nccl" else given.backend)
    try:
        topology = calibrate(nodes=nodes, size=given.size, repeat=given.repeat)
        if dist.get_rank() == 0:
            text = json.dumps(topology)
            print(text)
            if given.output:
                with open(given.output, "w", encoding="utf-8") as file:
                    file.write(text + "\n")
                print(f"reshard: wrote {given.output}; plan with --topology {given.output}", file=sys.stderr)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
