#!/usr/bin/env python3
"""What a conversion between stores asks of them, counted, and what that makes of 10 TB on 64 hosts.

usage: many_hosts_bench.py PACKAGES

A store in this process, which has safetensors files of 1 GiB without their bytes, counts the requests of conversions of 1 and
3 GiB into objects of 1 GiB, by one worker and by four. What a further object asks for, and a further worker, follows.
Then hosts take objects one after the other, as workers do, in a simulation: each host has its network, requests their
latency, and the store a rate of requests that all hosts share.
"""
import collections
import heapq
import itertools
import json
import math
import sys
import threading
import time

sys.path.insert(0, sys.argv[1])
import reshard
from reshard import stores

MIB, GIB = 1 << 20, 1 << 30
ROWS, COLUMNS, TENSORS = 2048, 4096, 32  # f32: 32 MiB each, 1 GiB per file
HOSTS, BYTES = 64, 10 * 10**12
GBITS, LATENCY = 100, 0.03  # of a host's network, and of a request: seconds
CPU_GB = 8.0  # that a host converts per second, of cores and memory: see docs/figures.md
READS, WRITES = 5500, 3500  # requests per second that S3 promises for one prefix
PRICE_READ, PRICE_WRITE = 0.4, 5.0  # dollars per million, as of 2026
AHEAD = 32  # requests that a worker has under way


def header(file):
    names = {f"layers.{file}.w{t}": t for t in range(TENSORS)}
    size = ROWS * COLUMNS * 4
    text = json.dumps({n: {"dtype": "F32", "shape": [ROWS, COLUMNS], "data_offsets": [t * size, (t + 1) * size]} for n, t in names.items()})
    text += " " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text.encode()


_numbers = itertools.count()


class Counting:
    """Files without their bytes, below `source`; everything else is kept, without the bytes of large objects."""

    def __init__(self, files):
        self.source = f"counted://source{next(_numbers)}"  # a URL has one content
        self.heads = [header(file) for file in range(files)]
        self.names = [f"model-{file + 1:05}-of-{files:05}.safetensors" for file in range(files)]
        self.kept, self.lock, self.counts = {}, threading.Lock(), collections.Counter()
        index = {"weight_map": {f"layers.{f}.w{t}": self.names[f] for f in range(files) for t in range(TENSORS)}}
        self.keep(f"{self.source}/model.safetensors.index.json", json.dumps(index).encode())

    def count(self, what, number=1):
        with self.lock:
            self.counts[what] += number

    def keep(self, url, data, length=None):
        with self.lock:
            self.kept[url] = (data, len(data) if length is None else length, len(self.kept))
        return stores.Found(self.kept[url][1], str(hash(self.kept[url][2])))

    def _find(self, url):
        folder, _, name = url.rpartition("/")
        if folder == self.source and name in self.names:
            return stores.Found(len(self.heads[0]) + TENSORS * ROWS * COLUMNS * 4, "1")
        if url not in self.kept:
            raise stores.StoreError("not_found", url)
        return stores.Found(self.kept[url][1], str(hash(self.kept[url][2])))

    def _fill(self, url, at, out):
        folder, _, name = url.rpartition("/")
        if folder == self.source and name in self.names:
            head = self.heads[self.names.index(name)]
            part = head[at : at + len(out)]
            out[: len(part)] = part
        else:
            out[:] = self.kept[url][0][at : at + len(out)]

    def find(self, url):
        self.count("read")
        return self._find(url)

    def find_and_read(self, url, first):
        self.count("read")
        found = self._find(url)
        self._fill(url, 0, first[: found.bytes])
        return found

    def read(self, url, found, at, out):
        self.count("read")
        self.count("bytes read", len(out))
        self._fill(url, at, out)

    def list(self, url):
        self.count("write")  # that is what lists cost
        below = [key[len(url) + 1 :] for key in self.kept if key.startswith(url + "/")]
        if url == self.source:
            below += self.names
        if not below:
            raise stores.StoreError("not_found", url)
        files = [stores.Entry(name, self._find(f"{url}/{name}")) for name in below if "/" not in name]
        return files + [stores.Entry(name, None) for name in {name.split("/")[0] for name in below if "/" in name}]

    def put(self, url, data, create):
        self.count("write")
        if create and url in self.kept:
            raise stores.StoreError("exists", url)
        return self.keep(url, bytes(data))

    def begin(self, url, length, memory):
        part = max(5 * MIB, min(8 * MIB, length // 64), -(-length // 10_000))  # of reshard.stores
        self.count("write", 2 + math.ceil(length / part))
        store = self

        class Upload:
            def write(self, data):
                store.count("bytes written", len(data))

            def finish(self):
                return store.keep(url, b"", length)

            def give_up(self):
                pass

        return Upload()

    def remove(self, url):
        self.count("delete")
        self.kept.pop(url, None)


def counted(files, workers):
    store = Counting(files)
    stores.register("counted", store)
    arguments = dict(to="dcp", mesh="{tp:8}", layout="[..., <tp>]", threads=8)
    begin = time.monotonic()
    errors = []

    def work(worker):
        try:
            reshard.convert(store.source, f"{store.source}-made", workers=workers, worker=worker, **arguments)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return store.counts, time.monotonic() - begin


def simulated(objects, reads_of, writes_of, prefixes):
    """Seconds until the last object is there: hosts take the next one when they have ended one, and share the store's rates."""
    bytes_of = BYTES / objects
    network, cpu = bytes_of / (GBITS / 8 * 1e9), bytes_of / (CPU_GB * 1e9)
    waits = max(reads_of, writes_of) * LATENCY / AHEAD
    hosts = [(0.0, host) for host in range(HOSTS)]
    free = {"reads": 0.0, "writes": 0.0}  # when the store has answered what was asked of it before
    end = 0.0
    for _ in range(objects):
        now, host = heapq.heappop(hosts)
        free["reads"] = max(free["reads"], now) + reads_of / (READS * prefixes)
        free["writes"] = max(free["writes"], now) + writes_of / (WRITES * prefixes)
        done = max(now + max(network, cpu, waits) + 4 * LATENCY, free["reads"], free["writes"])
        end = max(end, done)
        heapq.heappush(hosts, (done, host))
    # The one that ends the job looks at each record and each object, and the others have seen that it does.
    return end + 2 * objects * LATENCY / AHEAD + 10 * LATENCY


def main():
    small, _ = counted(1, 1)
    large, seconds = counted(3, 1)
    many, _ = counted(3, 4)
    for name, counts in (("1 GiB", small), ("3 GiB", large), ("3 GiB, 4 workers", many)):
        print(f"{name}: {dict(sorted(counts.items()))}")
    print(f"every byte read {large['bytes read'] / (3 * GIB):.3f} times, written {large['bytes written'] / (3 * GIB):.3f} times; {seconds:.1f} s")
    kinds = ("read", "write", "delete")
    per_object = {what: (large[what] - small[what]) / 2 for what in kinds}
    per_run = {what: small[what] - per_object[what] for what in kinds}
    per_worker = {what: (many[what] - large[what]) / 3 for what in kinds}
    print(f"per GiB {per_object}; per run {per_run}; per further worker {per_worker}")
    objects = math.ceil(BYTES / GIB)
    reads, writes = (objects * per_object[what] + per_run[what] + (HOSTS - 1) * per_worker[what] for what in ("read", "write"))
    print(f"10 TB: {objects} objects, {reads / 1e6:.2f} million requests to read, {writes / 1e6:.2f} million to write, "
          f"${reads / 1e6 * PRICE_READ + writes / 1e6 * PRICE_WRITE:.2f}")
    for prefixes in (1, 4, 16):
        took = simulated(objects, reads / objects, writes / objects, prefixes)
        print(f"{HOSTS} hosts, prefixes: {prefixes}, {took:.0f} s, {BYTES / took / 1e9:.0f} GB/s")


main()
