#!/usr/bin/env python3
"""An object store with 50 ms per request and 5 MB/s per connection (tests/stores/shaped_store.py): conversions against
plain concurrent requests of the same bytes, and loads into another layout against PyTorch's reader, in one run.

usage: stores_bench.py PACKAGES [--repeat N]

Needs obstore, and for the second half PyTorch and s3fs. PACKAGES is the folder with the Python package.
"""
import argparse
import concurrent.futures
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MIB = 1 << 20
RANKS = 2


def served(port):
    os.environ.update(
        AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}", AWS_ACCESS_KEY_ID="key", AWS_SECRET_ACCESS_KEY="secret",
        AWS_DEFAULT_REGION="us-east-1", FSSPEC_S3_ENDPOINT_URL=f"http://127.0.0.1:{port}",
    )  # fmt: skip


def plain(bucket, connections=32, total=256 * MIB):
    """Seconds for uploads, and for reads, of the same bytes."""
    import obstore

    part = total // connections
    data = os.urandom(part)
    with concurrent.futures.ThreadPoolExecutor(connections) as pool:
        begin = time.perf_counter()
        list(pool.map(lambda i: obstore.put(bucket, f"plain/{i}", data, use_multipart=False), range(connections)))
        between = time.perf_counter()
        list(pool.map(lambda i: len(obstore.get_range(bucket, f"plain/{i}", start=0, end=part)), range(connections)))
    return between - begin, time.perf_counter() - between


def load_on_ranks(what, url, packages):
    """Seconds of the slowest rank for one load."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    children = [
        subprocess.Popen(
            [sys.executable, __file__, packages, "--rank", str(rank), "--what", what, "--url", url], stdout=subprocess.PIPE, text=True,
            env=os.environ | {"RANK": str(rank), "WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)},
        )
        for rank in range(RANKS)
    ]  # fmt: skip
    times = []
    for child in children:
        out, _ = child.communicate(timeout=600)
        assert child.returncode == 0, what
        times.append(float(out.split()[-1]))
    return max(times)


def rank_loads(what, url):
    import torch
    import torch.distributed as dist
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (RANKS,))
    state = {f"layer.{i}": distribute_tensor(torch.zeros(2048, 2048), mesh, [Shard(1)]) for i in range(16)}
    dist.barrier()
    begin = time.perf_counter()
    if what == "reshard":
        import reshard

        reshard.load(url, state)
    else:
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader

        dcp.load(state, storage_reader=FsspecReader(url))
    dist.barrier()
    seconds = time.perf_counter() - begin
    assert all(value.to_local()[0, 0] == float(name.split(".")[1]) for name, value in state.items()), what
    print(seconds, flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("packages")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--rank", type=int)
    parser.add_argument("--what")
    parser.add_argument("--url")
    arguments = parser.parse_args()
    sys.path.insert(0, arguments.packages)
    if arguments.rank is not None:
        return rank_loads(arguments.what, arguments.url)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen([sys.executable, ROOT / "tests/stores/shaped_store.py", str(port)], stdout=subprocess.PIPE)
    try:
        assert server.stdout.readline() == b"ready\n"
        served(port)
        import obstore
        import torch
        from obstore.store import from_url

        import reshard

        bucket = from_url("s3://bucket", endpoint=os.environ["AWS_ENDPOINT_URL"], client_options={"allow_http": True})
        with tempfile.TemporaryDirectory() as scratch:
            import safetensors.torch

            whole = {f"layer.{i}": torch.full((2048, 2048), float(i)) for i in range(16)}
            safetensors.torch.save_file(whole, f"{scratch}/model.safetensors")
            reshard.convert(f"{scratch}/model.safetensors", f"{scratch}/dcp", mesh="{dp:8}", layout="[<dp>, ...]")
            for path in pathlib.Path(f"{scratch}/dcp").iterdir():
                obstore.put(bucket, f"dcp/{path.name}", path.read_bytes(), max_concurrency=32)
            obstore.put(bucket, "hf/model.safetensors", pathlib.Path(f"{scratch}/model.safetensors").read_bytes(), max_concurrency=32)
        rows = []
        for number in range(arguments.repeat):
            up, down = plain(bucket)
            times = {}
            for name, source, terms in (
                ("safetensors to DCP", "hf", dict(mesh="{dp:8}", layout="[..., <dp>]")),
                ("safetensors to DCP, 64 MiB objects", "hf", dict(mesh="{dp:8}", layout="[..., <dp>]", file_size="64MiB")),
                ("DCP to Hugging Face", "dcp", dict(to="hf")),
            ):
                begin = time.perf_counter()
                done = reshard.convert(f"s3://bucket/{source}", f"s3://bucket/to/{number}/{name.replace(' ', '_')}", **terms)
                times[name] = time.perf_counter() - begin
                assert done["read_bytes"] < 1.25 * done.bytes, done["read_bytes"]
            loads = {what: load_on_ranks(what, "s3://bucket/dcp", arguments.packages) for what in ("reshard", "FsspecReader")}
            rows.append((up, down, times, loads))
        plainly = statistics.median(up + down for up, down, _, _ in rows)
        print(f"256 MiB up and down in 32 plain requests: {plainly:.2f} s")
        for name in rows[0][2]:
            ratio = statistics.median((up + down) / times[name] for up, down, times, _ in rows)
            print(f"{name}: {statistics.median(times[name] for _, _, times, _ in rows):.2f} s, {100 * ratio:.0f} % of the rate of the plain requests")
        loads = [(row[3]["FsspecReader"], row[3]["reshard"]) for row in rows]
        print(
            f"load on {RANKS} ranks, columns of what was cut by rows: {statistics.median(ours for _, ours in loads):.2f} s, "
            f"FsspecReader {statistics.median(theirs for theirs, _ in loads):.2f} s, {statistics.median(theirs / ours for theirs, ours in loads):.1f} times as long"
        )
    finally:
        server.kill()


if __name__ == "__main__":
    main()
