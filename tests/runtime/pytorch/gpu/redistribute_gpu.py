#!/usr/bin/env python3
"""Tensors on a GPU through torch.ops.reshard, several ranks on one GPU, element by element against reference.py.

    redistribute_gpu.py --ranks 2|4|8 --transport c10d|nccl [--groups nccl|both|each] [--pairs N] [--seed S]

--groups nccl makes process groups whose only backend is NCCL, both those of "cpu:gloo,cuda:nccl"; each: one after the
other. The last line is "PASS checks=N wrong=0", or "FAIL ..."; without a GPU nothing is checked and the exit code is 77,
which CTest reports as skipped.

Every rank is a process that takes the GPU for one of another host (NCCL_HOSTID), so NCCL goes through sockets: values,
streams and errors are real, times are not.
"""

import argparse
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[1]))

import torch

TIMEOUT_MS = {"values": 60000, "errors": 5000}  # RESHARD_TIMEOUT_MS
LIMIT = {"values": 120, "errors": 75}  # seconds that the processes have
SHOWN = 10
LONGEST = 500  # characters of a failure


def rank_environment(rank, arguments, part):
    return dict(
        os.environ,
        CUDA_VISIBLE_DEVICES=os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0],
        NCCL_HOSTID=f"vhost{rank}",
        NCCL_SOCKET_IFNAME="lo",
        NCCL_SOCKET_FAMILY="AF_INET",
        NCCL_NET="Socket",
        NCCL_NET_PLUGIN="none",
        NCCL_IB_DISABLE="1",
        NCCL_MNNVL_ENABLE="0",
        NCCL_NVLS_ENABLE="0",
        NCCL_RAS_ENABLE="0",
        NCCL_MAX_CTAS="2",
        NCCL_DEBUG=os.environ.get("NCCL_DEBUG", "WARN"),
        GLOO_SOCKET_IFNAME="lo",
        # Lost ranks are this library's to find, not a reason to end the process.
        TORCH_NCCL_ASYNC_ERROR_HANDLING="0",
        TORCH_NCCL_ENABLE_MONITORING="0",
        TORCH_CPP_LOG_LEVEL="ERROR",
        OMP_NUM_THREADS="1",
        PYTHONDONTWRITEBYTECODE="1",
        RESHARD_CUDA_TRANSPORT=arguments.transport,
        RESHARD_TIMEOUT_MS=str(TIMEOUT_MS[part]),
    )


# ---- In a rank.


class Found:
    def __init__(self, rank):
        self.rank, self.checks, self.wrong = rank, 0, []

    def check(self, what, right, why=""):
        self.checks += 1
        if not right:
            self.wrong.append(" ".join(f"rank {self.rank}, {what}: {why}".split())[:LONGEST])

    def equal(self, what, got, wanted):
        same = got.shape == wanted.shape and got.dtype == wanted.dtype and torch.equal(got.cpu(), wanted.cpu())
        self.check(what, same, "" if same else f"{got} instead of {wanted}")


def on_gpu(x):
    """The tensor with its strides, gaps and offset."""
    storage = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage())
    return storage.view(torch.uint8).cuda().view(x.dtype).as_strided(x.shape, x.stride(), x.storage_offset())


def golden_problems(world):
    """Every golden case: the largest axes of a mesh halved until it fits, large dimensions cut, stated local sizes
    left out. Yields None for what then makes no sense any more."""
    from problems import Problem

    path = next(p / "tests/golden/cases.json" for p in HERE.parents if (p / "tests/golden/cases.json").exists())

    def fit(mesh):
        axes = [[name, int(size)] for name, size in re.findall(r"(\w+):(\d+)", mesh.split("@")[0])]
        devices = 1
        for _, size in axes:
            devices *= size
        while devices > world:
            largest = max(axes, key=lambda axis: axis[1])
            if largest[1] % 2:
                return None
            largest[1] //= 2
            devices //= 2
        return "{" + ",".join(f"{name}:{size}" for name, size in axes) + "}" + mesh[len(mesh.split("@")[0]) :]

    def cut(layout):
        layout = re.sub(r"\b\d+<", "<", layout)
        return re.sub(r"\b\d{3,}\b", lambda m: str(max(8, int(m[0]) // 64)), layout)

    for case in json.loads(path.read_text()):
        try:
            mesh, to_mesh = fit(case["mesh"]), fit(case["to_mesh"]) if case.get("to_mesh") else None
            problem = Problem(mesh, cut(case["from"]), cut(case["to"]), to_mesh, torch.bfloat16, len(case["name"]))
            source, target = problem.layouts()
            fits = max(source.mesh.devices + target.mesh.devices) < world
        except Exception:
            fits = False
        yield problem if fits else None


def check_problems(found, groups, group, seed):
    """groups: lists of problems that move together."""
    from problems import bytes_of, rearranged
    from redistribute_test import difference, local_input

    for number, problems in enumerate(groups):
        rng = random.Random(f"{seed} {found.rank} {number}")
        layouts = [p.layouts() for p in problems]
        inputs = [on_gpu(rearranged(rng, local_input(p, s, found.rank))) for p, (s, _) in zip(problems, layouts)]
        before = [bytes_of(x.cpu()).clone() for x in inputs]
        p = problems[0]
        if len(problems) == 1:
            outputs = [torch.ops.reshard.redistribute(inputs[0], p.mesh, p.source, p.target, group, p.target_mesh)]
        else:
            sources, targets = [q.source for q in problems], [q.target for q in problems]
            outputs = torch.ops.reshard.redistribute_batch(inputs, p.mesh, sources, targets, group)
        for problem, (source, target), x, out, bits in zip(problems, layouts, inputs, outputs, before):
            wrong = difference(problem, source, target, found.rank, out.cpu())
            found.check(problem, not wrong, wrong)
            found.check(f"{problem}, the input", torch.equal(bytes_of(x.cpu()), bits), "changed")
            found.check(f"{problem}, the output", out.is_cuda and out.is_contiguous(), f"{out.device} {out.stride()}")


def rows_and_columns(rank, world, scale=1, wide=64):
    """This rank's rows, and columns, of one tensor; and the layouts."""
    whole = scale * torch.arange(world * 4 * world * wide, dtype=torch.float32).view(world * 4, world * wide)
    mesh, n, m = f"{{X:{world}}}", world * 4, world * wide
    rows, columns = whole.chunk(world, 0)[rank].contiguous(), whole.chunk(world, 1)[rank].contiguous()
    return rows, columns, (mesh, f"[<X>{n}, {m}]", f"[{n}, <X>{m}]")


def check_streams(found, rank, world, group):
    """Nobody synchronizes between what writes the input, the call, what reads the result, and what writes again."""
    rows, columns, layouts = rows_and_columns(rank, world, wide=1024)
    values = rows.cuda()
    for name, stream in (("current", torch.cuda.current_stream()), ("side", torch.cuda.Stream())):
        x = torch.full_like(values, -1)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(100_000_000)
            x.copy_(values)
            y = torch.ops.reshard.redistribute(x, *layouts, group)
            x.fill_(-2)
            z = y * 2
            del y
            # Takes the memory that has just been freed.
            torch.full_like(z, -3)
        stream.synchronize()
        found.equal(f"work before and after on the {name} stream", z, columns * 2)
    x = values
    there_and_back = (layouts[0], layouts[2], layouts[1])
    for _ in range(10):
        x = torch.ops.reshard.redistribute(torch.ops.reshard.redistribute(x, *layouts, group), *there_and_back, group)
    found.equal("there and back ten times", x, rows)


def check_graphs(found, rank, world, group):
    """More tensors than one launch has room for addresses, captured in every mode, and replayed with other values."""
    rows, columns, (mesh, source, target) = rows_and_columns(rank, world)
    count = 300
    inputs = [rows.cuda() for _ in range(count)]

    def move():
        return torch.ops.reshard.redistribute_batch(inputs, mesh, [source] * count, [target] * count, group)

    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        move()  # once before: then the tables are on the device
    torch.cuda.synchronize()
    for scale, mode in enumerate(("global", "thread_local", "relaxed"), start=2):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode=mode):
            outputs = move()
        for x in inputs:
            x.copy_(scale * rows)
        torch.cuda.synchronize()
        graph.replay()
        torch.cuda.synchronize()
        for k in (0, count // 2, count - 1):
            found.equal(f"tensor {k} of a graph captured in mode {mode}", outputs[k], scale * columns)


def check_gradients(found, rank, world, group):
    rows, _, layouts = rows_and_columns(rank, world)
    weights, weight_columns, _ = rows_and_columns(rank, world, scale=3)
    x = rows.cuda().requires_grad_()
    torch.ops.reshard.redistribute(x, *layouts, group).backward(weight_columns.cuda())
    found.equal("the gradient of a swap of shards", x.grad, weights)
    x = torch.ones(4, device="cuda", requires_grad=True)
    gathered = torch.ops.reshard.all_gather(x, 0, group)
    (gathered * (rank + 1)).sum().backward()
    found.equal("the gradient of an all-gather", x.grad, torch.full((4,), world * (world + 1) / 2))
    x = torch.full((8,), float(rank), device="cuda", requires_grad=True)
    y = torch.ops.reshard.all_reduce(x, "sum", group)
    found.equal("an all-reduce", y.detach(), torch.full((8,), world * (world - 1) / 2))
    y.sum().backward()
    found.equal("the gradient of an all-reduce", x.grad, torch.full((8,), float(world)))


def check_all_to_all_v(found, rank, world, group):
    """Rank r gives j + 1 elements to rank j."""
    counts = torch.arange(1, world + 1)
    starts = torch.cumsum(counts, 0) - counts
    src = torch.arange(int(counts.sum()), dtype=torch.float32) + 1000 * rank
    wanted = torch.cat([1000 * r + starts[rank] + torch.arange(rank + 1) for r in range(world)]).float()
    places = torch.arange(world) * (rank + 1)
    for device in ("cpu", "cuda"):
        metadata = torch.stack([counts, starts, torch.zeros_like(counts), places]).to(device)
        dst = torch.zeros(world * (rank + 1), device="cuda")
        torch.ops.reshard.all_to_all_v(src.cuda(), dst, metadata, False, True, group)
        found.equal(f"all_to_all_v, metadata on {device}", dst, wanted)
        found.equal("its receive counts", metadata[2].cpu(), torch.full((world,), rank + 1))


def check_mixed_devices(found, rank, world, group):
    """An error before anything moves, the same on all ranks."""
    rows, _, (mesh, source, target) = rows_and_columns(rank, world)
    try:
        torch.ops.reshard.redistribute_batch([rows.cuda(), rows], mesh, [source] * 2, [target] * 2, group)
        found.check("tensors on two devices", False, "no error")
    except Exception as error:
        found.check("tensors on two devices", "one device" in str(error) or "rank" in str(error), error)


def values(found, rank, world, arguments):
    import torch.distributed as dist
    from problems import random_mesh, random_problem

    group = dist.group.WORLD.group_name
    golden = list(golden_problems(world))
    fitting = [p for p in golden if p is not None]
    if rank == 0:
        print(f"seed={arguments.seed}; {len(fitting)} of {len(golden)} golden cases fit {world} ranks", flush=True)
    check_problems(found, [[p] for p in fitting], group, arguments.seed)
    rng = random.Random(f"{arguments.seed} pairs {world}")
    check_problems(found, [[random_problem(rng, world)] for _ in range(arguments.pairs)], group, arguments.seed)
    batches = []
    for _ in range(8):
        where = random_mesh(rng, world)
        batches.append([random_problem(rng, world, where) for _ in range(rng.randint(2, 9))])
    check_problems(found, batches, group, arguments.seed)
    check_streams(found, rank, world, group)
    check_graphs(found, rank, world, group)
    check_gradients(found, rank, world, group)
    check_all_to_all_v(found, rank, world, group)
    if agrees_on_host(arguments):
        check_mixed_devices(found, rank, world, group)


def agrees_on_host(arguments):
    return arguments.transport == "c10d" and arguments.groups == "both"


def first_error(function, seconds):
    """What a call that is made again and again says in the end, '' if nothing."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            function()
            torch.cuda.synchronize()
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        time.sleep(0.05)
    return ""


def errors(found, rank, world, arguments):
    import torch.distributed as dist

    rows, columns, layouts = rows_and_columns(rank, world)
    x = rows.cuda()
    groups = [dist.new_group(list(range(world))) for _ in range(2)]
    first, second = (g.group_name for g in groups)

    def swap(group, tensor=x):
        return torch.ops.reshard.redistribute(tensor, *layouts, group)

    for group in (first, second):
        found.equal("before", swap(group), columns)
    dist.barrier()
    culprit = world - 1
    timeout = 3 * TIMEOUT_MS["errors"] / 1000
    if rank == culprit:
        try:
            swap(first, torch.ones(3, 3, device="cuda"))
            found.check("a wrong shape", False, "no error")
        except Exception as error:
            found.check("a wrong shape", "[3, 3]" in str(error), error)
    else:
        if agrees_on_host(arguments):
            try:
                swap(first)
                said = ""
            except Exception as error:
                said = str(error)
        else:
            said = first_error(lambda: swap(first), timeout)
        found.check("another rank's wrong shape", f"rank {culprit}" in said, said or "no error")
    if agrees_on_host(arguments):
        found.equal("afterwards", swap(first), columns)
    else:
        said = first_error(lambda: swap(first), timeout)
        found.check("a call after an error", f"rank {culprit}" in said, said or "no error")
    # Another group goes on, until a rank is killed.
    found.equal("another group", swap(second), columns)
    torch.cuda.synchronize()
    if rank == culprit:
        report(found)
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    said = first_error(lambda: swap(second), timeout)
    found.check("a killed rank", f"rank {culprit}" in said, said or "no error")
    found.check("the time until then", time.monotonic() - begin < timeout, f"{time.monotonic() - begin:.1f} s")
    begin = time.monotonic()
    said = first_error(lambda: swap(second), timeout)
    found.check("a call after that", said and time.monotonic() - begin < 2, said or "no error")


def report(found):
    print("FOUND " + json.dumps({"checks": found.checks, "wrong": found.wrong}), flush=True)


def live(arguments):
    import torch.distributed as dist

    import gloo

    gloo.load_library()
    torch.cuda.set_device(0)
    backend = "nccl" if arguments.groups == "nccl" else "cpu:gloo,cuda:nccl"
    found = Found(arguments.rank)
    try:
        dist.init_process_group(
            backend, init_method=f"file://{arguments.store}", rank=arguments.rank, world_size=arguments.ranks
        )
        {"values": values, "errors": errors}[arguments.part](found, arguments.rank, arguments.ranks, arguments)
    except BaseException as error:
        found.check("the end", False, f"{type(error).__name__}: {error}")
    report(found)
    os._exit(0)  # what is left of lost groups may hang


# ---- The parent.


def run_part(part, groups, arguments):
    """Returns (checks, failures) of all ranks. Leaves no process behind."""
    with tempfile.TemporaryDirectory(prefix="reshard-gpu-") as folder:
        command = [sys.executable, str(HERE), "--part", part, "--groups", groups, "--store", f"{folder}/store"]
        command += ["--ranks", str(arguments.ranks), "--transport", arguments.transport]
        command += ["--pairs", str(arguments.pairs), "--seed", str(arguments.seed)]
        logs = [pathlib.Path(folder, f"rank{r}.log") for r in range(arguments.ranks)]
        processes = []
        try:
            for rank, log in enumerate(logs):
                with log.open("w") as out:
                    environment = rank_environment(rank, arguments, part)
                    rank_command = command + ["--rank", str(rank)]
                    processes.append(subprocess.Popen(rank_command, env=environment, stdout=out, stderr=out))
            deadline = time.monotonic() + LIMIT[part]
            while any(p.poll() is None for p in processes) and time.monotonic() < deadline:
                time.sleep(0.1)
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
            for process in processes:
                process.wait()
        checks, wrong = 0, []
        for rank, (log, process) in enumerate(zip(logs, processes)):
            lines = log.read_text(errors="replace").splitlines()
            reports = [json.loads(line[6:]) for line in lines if line.startswith("FOUND ")]
            for line in lines:
                if line.startswith("seed="):
                    print(line)
            if not reports:
                tail = " / ".join(lines[-5:])
                wrong.append(f"rank {rank} ended without a word, exit code {process.returncode}: {tail}"[:LONGEST])
                continue
            checks += reports[-1]["checks"]
            wrong += reports[-1]["wrong"]
        return checks, [f"{part}, groups {groups}: {text}" for text in wrong]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--transport", choices=("c10d", "nccl"), default="c10d")
    parser.add_argument("--groups", choices=("nccl", "both", "each"), default="each")
    parser.add_argument("--pairs", type=int)
    parser.add_argument("--seed", type=int, default=20260101)
    parser.add_argument("--part", choices=("values", "errors"), help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.pairs is None:
        arguments.pairs = 800 // arguments.ranks  # a collective takes milliseconds, and more with every rank
    if not torch.cuda.is_available():
        print("test skipped: tensors on a GPU: there is no GPU that PyTorch can use here")
        return 77
    if arguments.rank is not None:
        return live(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # by way of run_part, which ends the ranks
    checks, wrong = 0, []
    for groups in ("nccl", "both") if arguments.groups == "each" else (arguments.groups,):
        for part in ("values", "errors"):
            more, failures = run_part(part, groups, arguments)
            checks += more
            wrong += failures
    for text in wrong[:SHOWN]:
        print(text)
    print(f"{'FAIL' if wrong or checks == 0 else 'PASS'} checks={checks} wrong={len(wrong)}")
    return 1 if wrong or checks == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
