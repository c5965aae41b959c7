#!/usr/bin/env python3
"""Published weights that others read by NIXL itself, over what its UCX finds on this machine."""

import os
import sys
import unittest

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import torch

import gloo
import jobs
from publish_test import as_another_host


def weights(version):
    return {"w": torch.arange(3 << 20, dtype=torch.float32) + version, "v": torch.arange(5.0) * version}


def publisher(member):
    import reshard
    import reshard.torch.published as published

    store = member.store()
    for version in (1, 2, 3):
        if version == 3 and member.job == 0:
            jobs.die()  # its copy of the second version is named, and its memory is gone
        reshard.publish(store, weights(version), version=version, transport="nixl")
        if version == 2 and member.job == 1:
            place = published.place_of(store, "weights", None)
            own = next(copy for copy in published._own[place.base, "source"] if copy.number == 2)
            place.failed(own)  # so that the other copy is tried first
        store.set(f"published {version} by {member.job}", "")
        store.wait([f"pulled {version}"])


def server(member):
    import reshard
    import reshard.torch.published.host_memory as host_memory

    store = member.store()
    as_another_host()

    def not_over_http(*_):
        raise AssertionError("read over HTTP")

    host_memory.Reader._read_there = not_over_http
    for version in (1, 2, 3):
        store.wait([f"published {version} by {job}" for job in range(2) if (job, version) != (0, 3)])
        got = {name: torch.zeros_like(tensor) for name, tensor in weights(0).items()}
        pulled = reshard.pull(store, got)
        assert pulled.version == version, pulled
        assert all(torch.equal(got[name], tensor) for name, tensor in weights(version).items()), version
        store.set(f"pulled {version}", "")


class Nixl(unittest.TestCase):
    def test_copies_of_two_jobs(self):
        outcomes = jobs.run_jobs([1, 1, 1], lambda member: publisher(member) if member.job < 2 else server(member))
        self.assertIn("SIGKILL", outcomes[0].ended)
        self.assertTrue(outcomes[1].ok and outcomes[2].ok, "\n".join(map(str, outcomes)))


if __name__ == "__main__":
    unittest.main()
