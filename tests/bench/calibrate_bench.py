#!/usr/bin/env python3
"""reshard.calibrate beside loops by hand in the same run: all-to-alls as nccl-tests times them, of sends and receives
over Gloo (in C++) and MPI (in C), and, in C, over memory that the processes share. There also, as nccl-tests times the calls of NCCL, an
exchange of this library's that is bound once and run again and again, less one that moves nothing.

usage: PYTHONPATH=build/full/python build/venv/bin/python tests/bench/calibrate_bench.py [--ranks N] [--size BYTES]
       [--reshard build/full/bin/reshard]

Prints, for each, what calibrate says and what the loop says: the time of an exchange of 8 bytes per peer, and the bandwidth
of one of --size bytes per rank (bytes received over time, the slowest rank's median). The last column is their ratio.
"""
import argparse
import ctypes
import json
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

# Each rank writes a block for each other into memory that they share, says so, and takes what the others have written.
# Of two cells for each pair of ranks one is written while the other is read; what is taken does not go through the
# cache, as nobody reads it soon. A rank's flags have a cache line each.
LOOP = """
#include <immintrin.h>
#include <stdint.h>
#include <string.h>
static void wait_for(volatile int64_t* flags, int ranks, int64_t turn) {
  for (int peer = 0; peer < ranks; ++peer)
    while (__atomic_load_n(&flags[8 * peer], __ATOMIC_ACQUIRE) < turn) _mm_pause();
}
__attribute__((target("avx2"))) static void take(char* to, const char* from, int64_t n) {
  if (n % 32 != 0 || (uintptr_t)to % 32 != 0) { memcpy(to, from, n); return; }
  for (int64_t i = 0; i < n; i += 32)
    _mm256_stream_si256((__m256i*)(to + i), _mm256_loadu_si256((const __m256i*)(from + i)));
}
int64_t exchange(char* memory, int rank, int ranks, const char* mine, char* theirs, int64_t to_each, int64_t block,
                 int64_t turn, int64_t times) {
  volatile int64_t *written = (volatile int64_t*)memory, *taken = written + 8 * ranks;
  for (; times > 0; --times) for (int64_t begin = 0; begin < to_each; begin += block) {
    const int64_t n = to_each - begin < block ? to_each - begin : block;
    char* cells = memory + 4096 + ++turn % 2 * ranks * ranks * block;  // by sender, then receiver
    wait_for(taken, ranks, turn - 2);
    for (int peer = 0; peer < ranks; ++peer)
      if (peer != rank) memcpy(cells + (rank * ranks + peer) * block, mine + peer * to_each + begin, n);
    __atomic_store_n(&written[8 * rank], turn, __ATOMIC_RELEASE);
    take(theirs + rank * to_each + begin, mine + rank * to_each + begin, n);
    wait_for(written, ranks, turn);
    for (int peer = 0; peer < ranks; ++peer)
      if (peer != rank) take(theirs + peer * to_each + begin, cells + (peer * ranks + rank) * block, n);
    __atomic_store_n(&taken[8 * rank], turn, __ATOMIC_RELEASE);
  }
  return turn;
}
"""

GLOO_LOOP = """
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
extern "C" void exchange(const char* name, int rank, int ranks, int64_t to_each) {
  static const auto group = c10d::resolve_process_group(name);
  static std::vector<at::Tensor> mine, theirs;
  if (mine.empty() || mine[0].numel() != to_each) {
    mine.assign(ranks, at::ones({to_each}, at::kByte));
    theirs.clear();
    for (int peer = 0; peer < ranks; ++peer) theirs.push_back(at::zeros({to_each}, at::kByte));
  }
  std::vector<c10::intrusive_ptr<c10d::Work>> waits;
  std::vector<at::Tensor> one(1);
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer == rank) continue;
    one[0] = theirs[peer];
    waits.push_back(group->recv(one, peer, 0));
    one[0] = mine[peer];
    waits.push_back(group->send(one, peer, 0));
  }
  theirs[rank].copy_(mine[rank]);
  for (const auto& wait : waits) wait->wait();
}
"""

MPI_LOOP = """
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int less(const void* a, const void* b) { return *(const double*)a < *(const double*)b ? -1 : 1; }
static double slowest_median(int rank, int ranks, int to_each) {
  char *mine = calloc(ranks, to_each), *theirs = calloc(ranks, to_each);
  memset(mine, 1, (size_t)ranks * to_each);  // otherwise it is all one page of zeros
  MPI_Request waits[2 * ranks];
  double times[20], median = 0;
  for (int turn = -3; turn < 20; ++turn) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    int n = 0;
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer == rank) continue;
      MPI_Irecv(theirs + (size_t)peer * to_each, to_each, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &waits[n++]);
      MPI_Isend(mine + (size_t)peer * to_each, to_each, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &waits[n++]);
    }
    memcpy(theirs + (size_t)rank * to_each, mine + (size_t)rank * to_each, to_each);
    MPI_Waitall(n, waits, MPI_STATUSES_IGNORE);
    if (turn >= 0) times[turn] = MPI_Wtime() - begin;
  }
  qsort(times, 20, sizeof(double), less);
  MPI_Allreduce(&times[10], &median, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return median;
}
int main(int argc, char** argv) {
  int rank, ranks;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const double few = slowest_median(rank, ranks, atoi(argv[1])), many = slowest_median(rank, ranks, atoi(argv[2]));
  if (rank == 0) printf("%g %g\\n", few, many);
  MPI_Finalize();
}
"""


def median(once, times=1, repeat=20):
    for _ in range(3):
        once()
    taken = []
    for _ in range(repeat):
        dist.barrier()
        begin = time.perf_counter()
        once()
        taken.append((time.perf_counter() - begin) / times)
    slowest = torch.tensor(statistics.median(taken), dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return slowest.item()


def gloo_loop(rank, ranks, to_each, path):
    if rank == 0 and not os.path.exists(f"{path}.so"):
        from torch.utils import cpp_extension

        folders = [f"-I{folder}" for folder in cpp_extension.include_paths()] + [f"-L{folder}" for folder in cpp_extension.library_paths()]
        subprocess.run(["c++", "-std=c++17", "-O2", "-shared", "-fPIC", "-x", "c++", "-", *folders, "-ltorch_cpu", "-lc10", "-o", f"{path}.so"],
                       input=GLOO_LOOP, text=True, check=True)
    dist.barrier()
    exchange = ctypes.CDLL(f"{path}.so").exchange
    name = dist.group.WORLD.group_name.encode()

    def once():
        exchange(name, rank, ranks, ctypes.c_int64(to_each))

    return median(once, repeat=200 if to_each == FEW else 20)


def memory_loop(rank, ranks, to_each, path):
    block = min(to_each, BLOCK)
    size = 4096 + 2 * ranks * ranks * block
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
    mine, theirs = (torch.ones(ranks, to_each, dtype=torch.uint8) for _ in range(2))
    turn = [0]
    times = 1000 if to_each == FEW else 1

    def once():
        turn[0] = exchange(ctypes.c_void_p(start), rank, ranks, ctypes.c_void_p(mine.data_ptr()),
                           ctypes.c_void_p(theirs.data_ptr()), ctypes.c_int64(to_each), ctypes.c_int64(block),
                           ctypes.c_int64(turn[0]), ctypes.c_int64(times))

    return median(once, times)


def bound_loop(ranks):
    """What a bound exchange of FEW bytes per peer takes longer than one in which nothing leaves a rank, in seconds."""
    import reshard

    mesh, rows = f"{{a:{ranks}}}", f"[<a>{ranks}, {ranks * FEW}]"

    def taken(target, shape):
        mine, theirs = torch.ones(1, ranks * FEW, dtype=torch.uint8), torch.empty(shape, dtype=torch.uint8)
        call = reshard.bind([mine], [theirs], mesh, [rows], [target])
        return median(lambda: [call.run() for _ in range(100)], 100, repeat=200)

    return taken(f"[{ranks}, <a>{ranks * FEW}]", (ranks, FEW)) - taken(rows, (1, ranks * FEW))


def compare_few(over, ranks, level, few):
    short = level["latency_us"] * ranks  # as topology.h has it: one per peer, and one until the last has come
    print(f"{over}: {FEW} bytes per peer: calibrate {short:.2f} us, loop {few * 1e6:.2f} us, {short / (few * 1e6):.2f}", flush=True)


def compare(over, ranks, size, level, loops):
    few, many = loops  # seconds
    compare_few(over, ranks, level, few)
    rate = size // ranks * (ranks - 1) / many / 1e9
    print(f"{over}: {size} bytes: calibrate {level['gb_per_s']:.2f} GB/s, loop {rate:.2f} GB/s, {level['gb_per_s'] / rate:.2f}", flush=True)


def over_mpi(reshard, ranks, size):
    """Messages of MPI itself: the command would otherwise share memory."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        subprocess.run(["mpicc", "-O2", "-x", "c", "-", "-o", f"{folder}/loop"], input=MPI_LOOP, text=True, check=True)
        environment = {**os.environ, "RESHARD_SHARED_MEMORY": "0"}
        program = ["mpirun", "--allow-run-as-root", "-n", str(ranks)]
        for _ in range(3):
            outputs = [subprocess.run([*program, *command], env=environment, check=True, capture_output=True).stdout
                       for command in ([f"{folder}/loop", str(FEW), str(size // ranks)], [reshard, "calibrate", "--json", "--size", str(size)])]
            compare("MPI", ranks, size, json.loads(outputs[1])["levels"][0], [float(text) for text in outputs[0].split()])


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
            compare(over, ranks, size, level, loops)
        if over == "shared memory":
            few = bound_loop(ranks)
            if rank == 0:
                compare_few(f"{over}, bound", ranks, level, few)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--size", type=int, default=64 << 20)
    parser.add_argument("--reshard", default="build/full/bin/reshard", help="the command, built with MPI")
    given = parser.parse_args()
    over_mpi(given.reshard, given.ranks, given.size)
    for over in ("Gloo", "shared memory"):
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            multiprocessing.spawn(run, (given.ranks, f"{folder}/meeting", given.size, over), given.ranks)


if __name__ == "__main__":
    sys.exit(main())
