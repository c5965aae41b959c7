#!/usr/bin/env python3
"""reshard.calibrate beside loops by hand in the same run: all-to-alls as nccl-tests times them, of sends and receives
over Gloo, and, in C, over memory that the processes share.

usage: PYTHONPATH=build/full/python build/venv/bin/python tests/bench/calibrate_bench.py [--ranks N] [--size BYTES]

Prints, for each, what calibrate says and what the loop says: the time of an exchange of 8 bytes per peer, and the bandwidth
of one of --size bytes per rank (bytes received over time, the slowest rank's median). The last column is their ratio.
"""
import argparse
import ctypes
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

FEW = 8  # bytes to each peer
BLOCK = 256 << 10  # bytes

# In blocks that stay in the cache, each rank writes what it sends to shared memory, says so, takes what the others have
# written for it, and says so. A rank's flags have a cache line each.
LOOP = """
#include <stdint.h>
#include <string.h>
static void meet(volatile int64_t* flags, int rank, int ranks, int64_t turn) {
  __atomic_store_n(&flags[8 * rank], turn, __ATOMIC_RELEASE);
  for (int peer = 0; peer < ranks; ++peer)
    while (__atomic_load_n(&flags[8 * peer], __ATOMIC_ACQUIRE) < turn) __builtin_ia32_pause();
}
int64_t exchange(char* memory, int rank, int ranks, const char* mine, char* theirs, int64_t to_each, int64_t block,
                 int64_t turn) {
  volatile int64_t* flags = (volatile int64_t*)memory;
  char* cells = memory + 4096;  // by sender, then receiver
  for (int64_t begin = 0; begin < to_each; begin += block) {
    const int64_t n = to_each - begin < block ? to_each - begin : block;
    ++turn;
    for (int peer = 0; peer < ranks; ++peer)
      if (peer != rank) memcpy(cells + (rank * ranks + peer) * block, mine + peer * to_each + begin, n);
    meet(flags, rank, ranks, turn);
    for (int peer = 0; peer < ranks; ++peer)
      memcpy(theirs + peer * to_each + begin,
             peer == rank ? mine + peer * to_each + begin : cells + (peer * ranks + rank) * block, n);
    meet(flags + 8 * ranks, rank, ranks, turn);
  }
  return turn;
}
"""


def median(once, repeat=20):
    for _ in range(3):
        once()
    times = []
    for _ in range(repeat):
        dist.barrier()
        begin = time.perf_counter()
        once()
        times.append(time.perf_counter() - begin)
    slowest = torch.tensor(statistics.median(times), dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return slowest.item()


def gloo_loop(rank, ranks, to_each, _):
    mine, theirs = torch.zeros(ranks, to_each, dtype=torch.uint8), torch.empty(ranks, to_each, dtype=torch.uint8)

    def once():
        waits = [dist.irecv(theirs[peer], peer) for peer in range(ranks) if peer != rank]
        waits += [dist.isend(mine[peer], peer) for peer in range(ranks) if peer != rank]
        theirs[rank].copy_(mine[rank])
        for wait in waits:
            wait.wait()

    return median(once)


def memory_loop(rank, ranks, to_each, path):
    block = min(to_each, BLOCK)
    size = 4096 + ranks * ranks * block
    if rank == 0:
        with open(path, "wb") as file:
            file.truncate(size)
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-x", "c", "-", "-o", f"{path}.so"], input=LOOP, text=True, check=True)
    dist.barrier()
    exchange = ctypes.CDLL(f"{path}.so").exchange
    exchange.restype = ctypes.c_int64
    with open(path, "r+b") as file:
        memory = mmap.mmap(file.fileno(), size)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    mine, theirs = (torch.zeros(ranks, to_each, dtype=torch.uint8) for _ in range(2))
    turn = [0]

    def once():
        turn[0] = exchange(ctypes.c_void_p(start), rank, ranks, ctypes.c_void_p(mine.data_ptr()),
                           ctypes.c_void_p(theirs.data_ptr()), ctypes.c_int64(to_each), ctypes.c_int64(block),
                           ctypes.c_int64(turn[0]))

    return median(once)


def run(rank, ranks, meeting, size, over):
    os.environ["RESHARD_SHARED_MEMORY"] = "1" if over == "shared memory" else "0"
    dist.init_process_group("gloo", rank=rank, world_size=ranks, init_method=f"file://{meeting}")
    torch.set_num_threads(1)
    import reshard

    to_each = size // ranks
    path = f"{meeting}.memory"
    for _ in range(3):
        loops = [(gloo_loop if over == "Gloo" else memory_loop)(rank, ranks, n, path) for n in (FEW, to_each)]
        level = reshard.calibrate(size=size)["levels"][0]
        if rank == 0:
            short = level["latency_us"] * ranks  # as topology.h has it: one per peer, and one until the last has come
            print(f"{over}: {FEW} bytes per peer: calibrate {short:.1f} us, loop {loops[0] * 1e6:.1f} us, {short / (loops[0] * 1e6):.2f}")
            rate = to_each * (ranks - 1) / loops[1] / 1e9
            print(f"{over}: {size} bytes: calibrate {level['gb_per_s']:.2f} GB/s, loop {rate:.2f} GB/s, {level['gb_per_s'] / rate:.2f}", flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--size", type=int, default=64 << 20)
    given = parser.parse_args()
    for over in ("Gloo", "shared memory"):
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            multiprocessing.spawn(run, (given.ranks, f"{folder}/meeting", given.size, over), given.ranks)


if __name__ == "__main__":
    sys.exit(main())
