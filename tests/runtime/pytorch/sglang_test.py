#!/usr/bin/env python3
"""A trainer's weights in engines that are called as SGLang's are: parameters equal to running the model's loader on whole
tensors, and the old ones everywhere where an update fails.

SGLang itself needs a GPU. What stands for it here has the signatures of its Engine and ModelRunner, and calls a loader of
one's own as they do (python/sglang/srt/model_executor/model_runner.py: `custom_weight_loader`).
"""

import importlib
import json
import unittest

import torch

import gloo
import jobs
from publish_test import LAYERS, check, sharded, weights
from refit_loader_test import Engine

SIZE = 2  # tensor parallel


class StandInEngine:
    """What a trainer calls: it reaches the workers by a store, as SGLang's does by its scheduler."""

    def __init__(self, store, number):
        self._store, self._number, self._calls = store.clone(), number, 0

    def update_weights_from_tensor(self, named_tensors, load_format=None, flush_cache=True):
        assert flush_cache
        text = json.dumps([load_format, [(name, tensor.tolist()) for name, tensor in named_tensors]])
        self._store.set(f"ask {self._number} {self._calls}", text)
        answers = [f"answer {self._number} {self._calls} {rank}" for rank in range(SIZE)]
        self._calls += 1
        self._store.wait(answers)
        for answer in answers:
            success, message = json.loads(self._store.get(answer))
            if not success:
                raise RuntimeError(message)


class StandInModelRunner:
    """One worker."""

    def __init__(self, model, custom_weight_loader):
        self.model, self.custom_weight_loader = model, custom_weight_loader

    def update_weights_from_tensor(self, named_tensors, load_format=None):
        if load_format in self.custom_weight_loader:
            module, _, name = load_format.rpartition(".")
            getattr(importlib.import_module(module), name)(self.model, named_tensors)
        elif load_format is None:
            self.model.load_weights(named_tensors)
        else:
            raise NotImplementedError(f"Unknown load_format={load_format}")
        return True, "Success"

    def serve_one(self, member, call, store):
        engine = member.job - 1
        load_format, sent = json.loads(store.get(f"ask {engine} {call}"))
        tensors = [(name, torch.tensor(numbers, dtype=torch.uint8)) for name, numbers in sent]
        answer = self.update_weights_from_tensor(tensors, load_format)
        store.set(f"answer {engine} {call} {member.job_rank}", json.dumps(answer))


def train(member, engines):
    import reshard.sglang

    store, source = member.store(), sharded(1)
    clients = [StandInEngine(store, number) for number in range(engines)] if member.rank == 0 else []

    def meet():
        return reshard.sglang.Transfer(
            source, clients, rank=member.job_rank, trainers=4, workers=engines * SIZE, store=("127.0.0.1", member.port)
        )

    try:
        meet()
        raise AssertionError("a worker's loader has failed")
    except reshard.PeerError as error:
        assert "rank 5 failed: KeyError: 'not yet'" in str(error), error
    transfer = meet()
    versions = [transfer.send_weights()]
    for name, tensor in sharded(2).items():
        source[name]._local_tensor.copy_(tensor._local_tensor)
    versions += [transfer.send_weights(changed_only=True), transfer.send_weights(changed_only=True)]
    transfer.close()
    return versions, transfer.refit.timings()["moves"]


def serve(member):
    """Two meetings, of which the first fails, and three updates."""
    store = member.store()
    engine, alone = (Engine(LAYERS, member.job_rank, SIZE, False) for _ in range(2))
    runner = StandInModelRunner(engine, ["reshard.sglang.load"])
    if member.rank == 5:
        engine.load_weights = lambda pairs: {}["not yet"]
    runner.serve_one(member, 0, store)
    engine.__dict__.pop("load_weights", None)
    for call in range(1, 5):
        before = engine.layers[0].qkv.clone()
        runner.serve_one(member, call, store)
        if call == 1:
            assert torch.equal(before, engine.layers[0].qkv)  # meeting changes nothing
        else:
            check(engine, alone, min(call - 1, 2), f"call {call}")
    try:
        runner.update_weights_from_tensor(list(weights(1).items()), "reshard.sglang.load")
        raise AssertionError("whole tensors are for other loaders")
    except ValueError as error:
        assert "only reshard.sglang.Transfer sends what this takes" in str(error), error


class Engines(unittest.TestCase):
    def test_updates(self):
        for engines in (1, 2):
            with self.subTest(engines=engines):
                outcomes = gloo.values(
                    jobs.run_jobs([4] + [SIZE] * engines, lambda member: serve(member) if member.job else train(member, engines))
                )
                for versions, moves in outcomes[:4]:
                    self.assertEqual(versions, [versions[0], versions[0] + 1, versions[0] + 2])
                    self.assertEqual(moves, 0)  # nothing had changed


if __name__ == "__main__":
    unittest.main()
