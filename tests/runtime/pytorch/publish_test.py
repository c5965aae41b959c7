#!/usr/bin/env python3
"""Weights that a trainer leaves for servers: equal to what the server's loader makes of them, whoever they are read from,
complete or not taken; nothing is left in memory when those who published have gone.
"""

import os
import random
import signal
import tempfile
import time
import unittest
import unittest.mock
import warnings

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import gloo
import jobs
from refit_loader_test import Engine, placements, source_shapes, value

LAYERS = 2


def weights(step):
    return {name: value(shape, step + number) for number, (name, shape) in enumerate(source_shapes(LAYERS).items())}


def sharded(step):
    """On the four ranks of a trainer."""
    mesh = DeviceMesh("cpu", torch.arange(4).view(2, 2), mesh_dim_names=("dp", "tp"))
    return {n: distribute_tensor(t, mesh, placements(n, mesh), src_data_rank=None) for n, t in weights(step).items()}


def as_another_host():
    """Memory of this host is read as from another one from now on."""
    import reshard.torch.published.host_memory as host_memory

    here = host_memory._this_host()
    host_memory._this_host = lambda: f"not {here}"


def check(engine, alone, step, when):
    alone.load_weights(weights(step).items())
    for (name, tensor), wanted in zip(engine.state_dict().items(), alone.state_dict().values()):
        assert torch.equal(tensor, wanted), f"{name}, {when}: {tensor} not {wanted}"


def train(member):
    import reshard

    store = member.store()
    published = reshard.publish(store, sharded(1))
    assert published.version == 1
    store.set(f"published 1 by {member.job_rank}", "")
    store.wait(["pulled 1"])
    folder = os.path.dirname(own_files()[0])
    published = reshard.publish(store, sharded(2))
    assert published.version == 2
    assert len(os.listdir(folder)) == len(own_files()), "only what is known is in memory"
    assert all(path.startswith(f"{2:012d}.") for store in published_places() for path in store.files._own)
    store.wait(["pulled 2"])
    return published.bytes, folder


def own_files():
    """In shared memory, of this process."""
    return [where.path for place in published_places() for where in place.files._own.values()]


def published_places():
    import reshard.torch.published.publications as places

    return places._in_memory.values()


def serve(member, remote):
    import reshard

    store = member.store()
    if remote:
        as_another_host()
    engine, alone = (Engine(LAYERS, member.job_rank, 2, False) for _ in range(2))
    store.wait([f"published 1 by {rank}" for rank in range(4)])
    calls = []

    def loader(pairs):
        calls.append(pairs)
        return engine.load_weights(pairs)

    puller = reshard.Puller(store, engine, loader=loader, share=True)
    pulled = puller()
    assert (pulled.version, pulled.form) == (1, "source"), pulled
    check(engine, alone, 1, "from the trainer")
    assert puller() is None and reshard.pull(store, engine, loader=engine.load_weights, newer_than=1) is None
    store.set(f"shared by {member.job_rank}", "")
    store.wait(["second engine"])
    store.set("pulled 1", "")
    pulled = puller(wait=30)
    assert (pulled.version, puller.version) == (2, 2), (pulled, puller.version)
    assert len(calls) == 3, "once to be recorded, and with each version for what it computes"
    check(engine, alone, 2, "the next one")
    store.set("pulled 2", "")
    return pulled.read_bytes, pulled.bytes


def second(member, remote):
    """An engine that comes later: what it reads is in its own form already."""
    import reshard
    import reshard.torch.published as published

    store = member.store()
    if remote:
        as_another_host()
    engine, alone = (Engine(LAYERS, member.job_rank, 2, False) for _ in range(2))
    store.wait([f"shared by {rank}" for rank in range(2)])
    shared = [version for version in published.place_of(store, "weights", None).versions() if version.form != "source"]
    assert len(shared) == 1, shared
    with unittest.mock.patch.object(published.publications.InMemory, "versions", lambda self: shared):
        pulled = reshard.pull(store, engine, loader=engine.load_weights)
    assert pulled.form == shared[0].form, pulled
    check(engine, alone, 1, "from the other engine")
    store.set("second engine", "")
    return pulled.read_bytes, pulled.bytes


class Engines(unittest.TestCase):
    def run_all(self, remote):
        def either(member):
            return train(member) if member.job == 0 else serve(member, remote) if member.job == 1 else second(member, remote)

        outcomes = gloo.values(jobs.run_jobs([4, 2, 2], either))
        whole = sum(tensor.nbytes for tensor in weights(0).values())
        self.assertEqual(sum(bytes_ for bytes_, _ in outcomes[:4]), whole)  # every element once
        for _, folder in outcomes[:4]:
            gone_within(folder, 10)

    def test_on_one_host(self):
        self.run_all(remote=False)

    def test_between_hosts(self):
        self.run_all(remote=True)


def gone_within(folder, seconds):
    """Nothing is left in memory of a process that has ended, however it did."""
    deadline = time.monotonic() + seconds
    while os.path.exists(folder):
        assert time.monotonic() < deadline, folder
        time.sleep(0.1)


def train_with_refit(member):
    import reshard

    with member.join() as joined:
        source = {f"model.{name}": tensor for name, tensor in sharded(5).items()}

        def export(state):
            return {name.removeprefix("model."): tensor for name, tensor in state.items()}

        refit = reshard.Refit(source=source, export=export, group=joined)
        refit()
        published = refit.publish()
        assert published.version == refit.version
        joined.store.set(f"published by {member.job_rank}", "")
        joined.store.wait(["done"])


def serve_with_refit(member):
    import reshard

    with member.join() as joined:
        engine, later, alone = (Engine(LAYERS, member.job_rank, 2, False) for _ in range(3))
        refit = reshard.Refit(target=engine, loader=engine.load_weights, group=joined)
        try:
            refit.publish()
            raise AssertionError("published before anything was installed")
        except RuntimeError as error:
            assert "no version is installed yet" in str(error), error
        version = refit()
        joined.store.wait([f"published by {rank}" for rank in range(4)])
        forms = set()
        for how in ("from the trainer", "from the engine"):
            for parameter in later.parameters():
                parameter.data.fill_(99)
            pulled = reshard.pull(joined.store, later, loader=later.load_weights)
            assert pulled.version == version
            check(later, alone, 5, how)
            forms.add(pulled.form)
            refit.publish_async().wait()
            for place in published_places():  # few have read it, but the trainer's
                for copy in place.versions():
                    if copy.form == "source":
                        place.failed(copy)
        assert len(forms) == 2, forms
        joined.store.set("done", "")


class Refits(unittest.TestCase):
    def test_both_sides_publish_what_is_installed(self):
        gloo.values(jobs.run_jobs([4, 2], lambda member: train_with_refit(member) if member.job == 0 else serve_with_refit(member)))


def named_on_other_meshes(rank, world, folder):
    """Tensors of one name, sharded otherwise, cast, or made by a recipe; in memory and in a directory."""
    import reshard

    two, flat = DeviceMesh("cpu", torch.arange(4).view(2, 2)), DeviceMesh("cpu", torch.arange(4))
    whole = {"a": torch.arange(96.0).reshape(12, 8), "b": torch.arange(20.0), "c": torch.arange(6).reshape(2, 3)}
    state = {
        "a": distribute_tensor(whole["a"], two, [Shard(0), Shard(1)]),
        "nested": {"b": distribute_tensor(whole["b"], two, [Replicate(), Shard(0)])},
        "c": whole["c"],
    }
    memory = torch.distributed.PrefixStore("a part", torch.distributed.distributed_c10d._get_default_store())
    for place in (memory, folder):
        reshard.publish(place, state, version=7)

        def target(dtype=torch.float32):
            return {
                "a": distribute_tensor(torch.zeros(12, 8, dtype=dtype), flat, [Shard(1)]),
                "nested.b": torch.zeros(20, dtype=dtype),
                "c": torch.zeros(2, 3, dtype=torch.int64),
            }

        for staged in (True, False):
            got = target()
            pulled = reshard.pull(place, got, staged=staged)
            assert pulled.version == 7, pulled
            assert torch.equal(got["a"].full_tensor(), whole["a"]), place
            assert torch.equal(got["nested.b"], whole["b"]) and torch.equal(got["c"], whole["c"])
        half = target(torch.bfloat16)
        reshard.pull(place, half, cast=True)
        assert torch.equal(half["a"].full_tensor(), whole["a"].bfloat16())
        recipe = {
            "schema": "reshard.recipe/1",
            "tensors": [{"to": "t", "from": {"transpose": "a", "dims": [0, 1]}}],
            "drop": ["nested.b", "c"],
        }
        made = {"t": distribute_tensor(torch.zeros(8, 12), flat, [Shard(0)])}
        reshard.pull(place, made, recipe=recipe, share=place is memory)
        assert torch.equal(made["t"].full_tensor(), whole["a"].t())
        if place is memory:  # a copy of another form is passed over
            again = {"t": torch.zeros(8, 12)}
            for _ in range(4):
                reshard.pull(place, again, recipe=recipe)
                assert torch.equal(again["t"], whole["a"].t())
        before = target()
        before["wrong"] = torch.zeros(3)
        try:
            reshard.pull(place, before)
            raise AssertionError("a name that is not published")
        except (ValueError, RuntimeError) as error:
            assert "wrong" in str(error), error
        assert not before["c"].any()
        try:
            reshard.publish(place, state, version=6)
            raise AssertionError("older than what is there")
        except (ValueError, RuntimeError) as error:
            assert "a newer one, 7, is published" in str(error), error
        for keep in (2, 2, 1):
            reshard.publish(place, state, keep=keep)
    torch.distributed.barrier()
    return sorted(os.listdir(folder)), len(own_files())


class Names(unittest.TestCase):
    def test_meshes_casts_and_recipes(self):
        with tempfile.TemporaryDirectory() as folder:
            outcomes = gloo.values(gloo.run_ranks(4, named_on_other_meshes, os.path.join(folder, "versions")))
        for folders, files in outcomes:
            self.assertEqual([name.split(".")[0] for name in folders], [f"{10:012d}"])  # three after 7, the last alone
            self.assertLessEqual(files, 2)  # its own of the newest version, and of what it has shared

    def test_nothing_there(self):
        import reshard

        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(FileNotFoundError, f"nothing is published at {folder}/none yet"):
                reshard.pull(f"{folder}/none", {"a": torch.zeros(3)})
            self.assertIsNone(reshard.pull(f"{folder}/none", {"a": torch.zeros(3)}, newer_than=0))
        with self.assertRaisesRegex(ValueError, "what there is on a server cannot be listed"):
            reshard.pull("https://example.org/weights", {"a": torch.zeros(3)})


def published_behind(rank, world, folder):
    """What the job does meanwhile is not in its way, nor in what is published."""
    import reshard

    mesh = DeviceMesh("cpu", torch.arange(4))
    memory = torch.distributed.PrefixStore("behind", torch.distributed.distributed_c10d._get_default_store())
    for place in (memory, folder):
        state = {"w": distribute_tensor(torch.ones(64, 1024), mesh, [Shard(0)]), "v": torch.ones(5)}
        begun = []
        for step in (1, 2, 3):
            for tensor in (state["w"].to_local(), state["v"]):
                tensor.fill_(step)
            begun.append(reshard.publish_async(place, state, keep=4))
            for tensor in (state["w"].to_local(), state["v"]):
                tensor.fill_(99)
            for _ in range(20):
                torch.distributed.all_reduce(torch.ones(4))
        state["w"].to_local().fill_(4)
        assert reshard.publish(place, state, keep=4).version == 4, "after those that were begun before it"
        assert all(pending.done() for pending in begun)
        whole = state["w"].numel() * 4 + 20
        written = torch.tensor([pending.wait().bytes for pending in begun])
        torch.distributed.all_reduce(written)
        assert written.tolist() == [whole] * 3, written
        assert [pending.wait(timeout=1).version for pending in begun] == [1, 2, 3]
        got = {"w": torch.zeros(64, 1024), "v": torch.zeros(5)}
        assert reshard.pull(place, got).version == 4 and bool((got["w"] == 4).all() and (got["v"] == 99).all())
        if place is folder:
            for number in (1, 2, 3):
                (name,) = (name for name in os.listdir(folder) if name.startswith(f"{number:012d}."))
                reshard.load(os.path.join(folder, name), got)
                assert bool((got["w"] == number).all() and (got["v"] == number).all()), number
    pending = reshard.publish_async(f"{folder}/{name}/.metadata", state)  # a file
    try:
        pending.wait()
        raise AssertionError("published into a file")
    except (OSError, RuntimeError) as error:
        assert ".metadata" in str(error), error
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        lost = reshard.publish_async(f"{folder}/{name}/.metadata", state)
        while not lost.done():
            time.sleep(0.01)
        del lost
    assert any("the weights are not published at" in str(warning.message) for warning in warned), warned
    torch.distributed.barrier()


class Behind(unittest.TestCase):
    def test_the_job_goes_on(self):
        with tempfile.TemporaryDirectory() as folder:
            gloo.values(gloo.run_ranks(4, published_behind, os.path.join(folder, "versions")))


def live_or_die(member, phase):
    """Two trainers, each of which publishes alone, one server: the first trainer is killed."""
    import reshard
    import reshard.torch.published as published

    store = member.store()
    state = {"w": torch.full((1 << 18,), 1.0), "v": torch.arange(5.0)}
    if member.job < 2:
        place = published.place_of(store, "weights", None)
        if member.job == 1:
            store.wait(["published 0"])
            reshard.publish(store, state, version=1)
        if phase == "while it publishes" and member.job == 0:
            put = published.memory_store.MemoryStore.put

            def dying(self, url, data, create):
                if url.endswith(".metadata"):
                    store.set("published 0", "")
                    jobs.die()
                return put(self, url, data, create)

            published.memory_store.MemoryStore.put = dying
        if member.job == 0:
            reshard.publish(store, state, version=1)
            store.set("published 0", "")
            store.wait(["published 1"])
            store.set("killed", "")
            jobs.die()
        store.set("published 1", "")
        store.wait(["pulled"])
        return len(place.versions())
    if phase == "after it has published":
        store.wait(["killed"])
        time.sleep(2.5)  # what served its memory has noticed
    else:
        store.wait(["published 1"])
    as_another_host()
    got = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    try:
        for _ in range(3):
            pulled = reshard.pull(store, got)
            assert pulled.version == 1 and all(torch.equal(got[name], state[name]) for name in state)
    finally:
        store.set("pulled", "")


class Deaths(unittest.TestCase):
    def test_another_copy_is_read(self):
        for phase in ("while it publishes", "after it has published"):
            with self.subTest(phase=phase):
                killed, other, server = jobs.run_jobs([1, 1, 1], live_or_die, phase)
                self.assertIn("SIGKILL", killed.ended)
                self.assertEqual(other.value, 1 if phase == "while it publishes" else 2)
                self.assertTrue(server.ok, str(server))

    def test_the_only_copy(self):
        """It was damaged: the old weights are in place, and the error says what happened."""
        import reshard

        store = torch.distributed.HashStore()
        state = {"w": torch.arange(1000.0), "v": torch.arange(5.0)}
        reshard.publish(store, state, name="damaged")
        (path,) = own_files()
        with open(path, "r+b") as file:
            file.seek(os.path.getsize(path) // 2)
            file.write(b"damage")
        got = {"w": torch.full((1000,), 7.0), "v": torch.full((5,), 7.0)}
        with self.assertRaisesRegex((OSError, RuntimeError, ValueError), "damaged|checksum|other contents"):
            reshard.pull(store, got, name="damaged")
        self.assertTrue(bool((got["w"] == 7).all() and (got["v"] == 7).all()))


def until_a_kill(member, victim, delay, remote):
    """A publisher of versions whose numbers are in all tensors, and a server of two ranks that takes them."""
    import reshard

    store = member.store()
    if member.rank == victim:
        gloo.signal_me_in(0.5 + delay, signal.SIGKILL)  # from the beginning: the first publication may be hit, too
    if member.job == 0:
        for version in range(1, 1000):
            reshard.publish(store, {f"w{i}": torch.full((1 << 16,), float(version)) for i in range(8)})
            if store.check(["over"]):
                return
    if remote:
        as_another_host()
    got = {f"w{i}": torch.zeros(1 << 16) for i in range(8)}
    taken = []
    end = time.monotonic() + delay + 1.5
    try:
        while time.monotonic() < end:
            pulled = reshard.pull(store, got, newer_than=taken[-1] if taken else 0, wait=0.2)
            taken += [pulled.version] if pulled else []
    except (OSError, RuntimeError) as error:
        note = str(error)
    else:
        note = ""
    store.set("over", "")
    values = {float(tensor.min()) for tensor in got.values()} | {float(tensor.max()) for tensor in got.values()}
    assert len(values) == 1, f"a mixture: {values}"
    assert taken == sorted(taken) and values.pop() in (taken or [0])[-1:], f"{values} after {taken}"
    return note


class Kills(unittest.TestCase):
    def test_at_random(self):
        seed = gloo.seed()
        for run in range(int(os.environ.get("RESHARD_TEST_KILLS", "4"))):
            random_ = random.Random(seed + run)
            victim, delay, remote = random_.randrange(3), random_.uniform(0.1, 1.5), random_.random() < 0.5
            with self.subTest(victim=victim, delay=delay, remote=remote):
                outcomes = jobs.run_jobs([1, 2], until_a_kill, victim, delay, remote)
                self.assertIn("SIGKILL", outcomes[victim].ended)
                for outcome in outcomes[:victim] + outcomes[victim + 1 :]:
                    self.assertTrue(outcome.ok, str(outcome))


class Reading(unittest.TestCase):
    def test_what_is_read_is_kept(self):
        import reshard
        import reshard.torch.published as published

        store = torch.distributed.HashStore()
        state = {"w": torch.arange(1000.0)}
        reshard.publish(store, state, name="kept")
        place = published.place_of(store, "kept", None)
        (first,) = place.versions()
        with place.reading(first):
            for number in (2, 3):
                state["w"] += 1
                reshard.publish(store, state, name="kept")
                self.assertEqual([version.number for version in place.versions()], [number])  # nobody else finds it
            got = {"w": torch.zeros(1000)}
            reshard.load(place.url(first), got)
            self.assertTrue(torch.equal(got["w"], torch.arange(1000.0)))
        reshard.publish(store, state, name="kept")
        self.assertEqual([version.number for version in place.versions()], [4])
        self.assertEqual(len(os.listdir(os.path.dirname(next(iter(place.files._own.values())).path))), 1)

    def test_what_is_older_by_now_is_not_shared(self):
        import reshard
        import reshard.torch.published as published

        store, state, got = torch.distributed.HashStore(), {"w": torch.arange(10.0)}, {"w": torch.zeros(10)}
        reshard.publish(store, state, name="overtaken")
        taken = published._taken

        def overtaken(*arguments):
            result = taken(*arguments)
            reshard.publish(store, state, name="overtaken")
            return result

        with unittest.mock.patch.object(published, "_taken", overtaken):
            self.assertEqual(reshard.pull(store, got, name="overtaken", share=True).version, 1)
        self.assertTrue(torch.equal(got["w"], state["w"]))
        self.assertEqual([version.number for version in published.place_of(store, "overtaken", None).versions()], [2])

    def test_an_export_goes_with_the_weights(self):
        """Into a directory: under the names and in the forms that it makes."""
        import reshard

        state = {"model.w": torch.arange(12.0).reshape(3, 4), "model.v": torch.arange(4.0)}

        def export(tensors):
            return {"wt": tensors["model.w"].t(), "v": tensors["model.v"]}

        with tempfile.TemporaryDirectory() as folder:
            for _ in range(2):
                reshard.publish(folder, state, export=export)
            got = {"wt": torch.zeros(4, 3), "v": torch.zeros(4)}
            reshard.pull(folder, got)
            self.assertTrue(torch.equal(got["wt"], state["model.w"].t()) and torch.equal(got["v"], state["model.v"]))
            self.assertEqual(len(os.listdir(folder)), 2)  # one version, and what it gives

    def test_an_engine_that_cannot_install(self):
        import reshard

        class Engine(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.w = torch.nn.Parameter(torch.zeros(4))
                self.fails = False

            def load_weights(self, pairs):
                for _, tensor in pairs:
                    if self.fails:
                        raise OSError("no room")
                    self.w.data.copy_(tensor * 2)

        store, engine = torch.distributed.HashStore(), Engine()
        reshard.publish(store, {"w": torch.ones(4)}, name="failing")
        reshard.pull(store, engine, loader=engine.load_weights, name="failing")
        self.assertTrue(bool((engine.w == 2).all()))
        engine.load_weights = lambda pairs: setattr(engine, "fails", True) or Engine.load_weights(engine, pairs)
        with self.assertRaisesRegex((reshard.UndeterminedError, OSError), "no room"):
            reshard.pull(store, engine, loader=engine.load_weights, name="failing")


if __name__ == "__main__":
    unittest.main()
