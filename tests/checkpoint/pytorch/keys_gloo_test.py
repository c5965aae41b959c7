#!/usr/bin/env python3
"""State dicts with keys of any type: what is loaded is under the caller's own keys, and PyTorch reads what is saved."""

import collections
import contextlib
import enum
import os
import random
import tempfile

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._nested_dict import flatten_state_dict

import gloo
from checks import ChecksTest, main
from shared_folder import remove, shared_folder


class Color(enum.Enum):
    RED = 1


def nested(filled):
    """With keys of many types; the tensors are placeholders, and the values others, where it is not filled."""
    w = torch.arange(6.0) if filled else torch.zeros(6)
    number = iter(range(100, 200)) if filled else iter([None] * 100)
    return {
        0: {"step": next(number), "buf": w},
        ("a", 1): {None: next(number), True: next(number), 2.5: next(number)},
        "seen": collections.Counter({3: next(number), "four": next(number)}) if filled else collections.Counter({3: 0, "four": 0}),
        "ordered": collections.OrderedDict([(7, [{"x": next(number)}, {b"y": next(number)}])]),
        Color.RED: next(number),
        torch.float32: [next(number), 1],
        "pair": (next(number), 2),
    }


def train(optimizer, model, steps):
    for step in range(steps):
        optimizer.zero_grad()
        model(torch.full((2, 3), 0.5 + step)).square().sum().backward()
        optimizer.step()


OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.1),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.1, amsgrad=True),
    "Rprop": lambda p: torch.optim.Rprop(p, lr=0.1),
}


class NumberSteps(torch.optim.Optimizer):
    """Counts its steps in numbers, as optimizers outside PyTorch do."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.5})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                state["step"] = state.get("step", 0) + 1
                p -= group["lr"] / state["step"] * p.grad


def check_optimizers(c):
    """Plain optimizer.state_dict(), whose state is under numbers: training goes on where it was."""
    import reshard

    root = shared_folder(c)
    for name, make in (*OPTIMIZERS.items(), ("numbers", NumberSteps)):
        torch.manual_seed(3)
        model = torch.nn.Linear(3, 2)
        optimizer = make(model.parameters())
        train(optimizer, model, 5)
        path = os.path.join(root, name)
        c.run(f"{name}, save", lambda: reshard.save(path, {"model": model.state_dict(), "optimizer": optimizer.state_dict()}))
        again = torch.nn.Linear(3, 2)
        resumed = make(again.parameters())
        train(resumed, again, 1)  # so that it has a state to be loaded into
        state = {"model": again.state_dict(), "optimizer": resumed.state_dict()}
        c.run(f"{name}, load", lambda: reshard.load(path, state))
        resumed.load_state_dict(state["optimizer"])
        c.true(f"{name}, keys", state["optimizer"].keys() == optimizer.state_dict().keys(), state["optimizer"].keys())
        for number, of_parameter in optimizer.state_dict()["state"].items():
            for key, value in of_parameter.items():
                got = resumed.state_dict()["state"][number][key]
                c.true(f"{name}, {number}, {key}", type(got) is type(value) and bool(torch.as_tensor(got == value).all()), got)
        c.run(f"{name}, save again", lambda: reshard.save(path, state, overwrite=True))
        train(optimizer, model, 2)
        train(resumed, again, 2)
        c.equal(f"{name}, goes on", again.weight.detach(), model.weight.detach())
    remove(c, root)


def check_nested(c):
    import reshard

    root = shared_folder(c)
    ours, theirs = os.path.join(root, "ours"), os.path.join(root, "theirs")
    c.run("save", lambda: reshard.save(ours, nested(True)))
    dcp.save({str(key): value for key, value in nested(True).items()}, checkpoint_id=theirs)
    for path in (ours, theirs):
        for how in ("reshard", "dcp"):
            # torch.distributed.checkpoint sorts the keys of the first level.
            keys = (lambda state: state) if how == "reshard" else (lambda state: {str(key): value for key, value in state.items()})
            state, wanted = keys(nested(False)), keys(nested(True))
            seen, ordered = state["seen"], state["ordered"]
            if how == "reshard":
                c.run(f"load {path}", lambda: reshard.load(path, state))
            else:
                reader, planner = reshard.dcp.StorageReader(path), reshard.dcp.LoadPlanner()
                c.run("dcp", lambda: dcp.load(state, storage_reader=reader, planner=planner))
            tensors = [each[0 if how == "reshard" else "0"].pop("buf") for each in (state, wanted)]
            c.equal(f"{how}, the tensor", *tensors)
            c.true(f"{how}, values and keys", state == wanted, state)
            c.true(f"{how}, containers", state["seen"] is seen and state["ordered"] is ordered and type(seen) is collections.Counter)
    flat = {"0.step": None, "seen.3": None, "pair": None}
    c.run("PyTorch reads it", lambda: dcp.load(flat, checkpoint_id=ours))
    c.true("PyTorch's values", flat == {"0.step": 100, "seen.3": 104, "pair": (110, 2)}, flat)
    c.raises("two of one name", lambda: reshard.save(path + "2", {0: 1, "0": 2}), "['0']", "[0]", "rename", kind=ValueError)
    c.raises("two of one name, nested", lambda: reshard.load(path, {"a": {"b.c": 1, "b": {"c": 2}}}), "['b.c']", "['b']['c']", kind=ValueError)
    unlike = {0: 1, "0": 2} if c.rank == 0 else {0: 1}
    c.raises("on one rank", lambda: reshard.save(path + "2", unlike), "[0]", kind=(ValueError, RuntimeError))
    remove(c, root)


class Custom:
    pass


def random_state(source, depth=0):
    """Nested in dicts with texts for keys, lists and tuples, as torch.distributed.checkpoint takes them."""
    kind = source.randrange(3 if depth == 0 else 8)
    if depth == 0 or (kind < 3 and depth < 4):
        return {source.choice("abcdef") * source.randint(1, 3): random_state(source, depth + 1) for _ in range(source.randrange(5))}
    if kind < 5 and depth < 4:
        return [random_state(source, depth + 1) for _ in range(source.randrange(4))]
    return source.choice([torch.zeros(2), 3, "text", None, (1, torch.ones(1)), [], {}])


class KeysTest(ChecksTest):
    def test_ranks(self):
        self.on_ranks(2, [check_nested, check_optimizers], timeout=120)

    def test_names_are_those_of_pytorch(self):
        from reshard.torch.state.nested import leaves_of

        source = random.Random(gloo.seed())
        for run in range(500):
            state = random_state(source)
            values, paths = flatten_state_dict(state)
            leaves = leaves_of(state)
            self.assertEqual(list(leaves), list(values), f"run {run}")
            self.assertEqual({name: leaf.path for name, leaf in leaves.items()}, paths, f"run {run}")
            for name, leaf in leaves.items():
                self.assertIs(leaf.value, values[name])
                leaf.put(name)
            # Lists of nothing but texts are values themselves: what was put is looked up by the paths.
            for name, path in paths.items():
                at = state
                for step in path:
                    at = at[step]
                self.assertEqual(at, name, f"run {run}")
            ChecksTest.checks += 3

    def test_what_has_no_name(self):
        import reshard

        with tempfile.TemporaryDirectory() as root:
            path = os.path.join(root, "saved")
            within = {}
            within["itself"] = [within]
            parameter = torch.nn.Parameter(torch.zeros(2))
            for state, said in (
                (within, "contains itself"),
                ({"state": {parameter: 1}}, r"\['state'\] has a key of type Parameter.*pass its state_dict\(\)"),
                ({"state": {Custom(): 1}}, "has a key of type Custom"),
            ):
                with self.assertRaisesRegex(ValueError, said):
                    reshard.save(path, state)
                with contextlib.suppress(FileNotFoundError):
                    self.fail(os.listdir(path))
                ChecksTest.checks += 1

    def test_what_is_not_a_state_dict(self):
        import reshard

        state = {"w": torch.zeros(2)}
        for name, call in (("save", reshard.save), ("load", reshard.load)):
            with self.assertRaisesRegex(reshard.InputError, r"the state dict is a path, '/nowhere/saved': the path comes first", msg=name):
                call(state, "/nowhere/saved")
            with self.assertRaisesRegex(reshard.InputError, "the state dict is a Linear, not a dict: pass .*model", msg=name):
                call("/nowhere/saved", torch.nn.Linear(2, 2))
            ChecksTest.checks += 2

    def test_values_of_classes(self):
        """What is not loaded says which value of which class, and what to do; nothing of the state has changed."""
        import reshard

        with tempfile.TemporaryDirectory() as root:
            path = os.path.join(root, "saved")
            reshard.save(path, {"model": {"w": torch.ones(2)}, "extra": {5: Custom()}, "step": 7})
            state = {"model": {"w": torch.zeros(2)}, "extra": {5: None}, "step": 0}
            with self.assertRaisesRegex(ValueError, r"extra\.5 is not a plain value but needs .*Custom.*add_safe_globals.*leave it out"):
                reshard.load(path, state)
            self.assertEqual((state["extra"], state["step"]), ({5: None}, 0))
            with torch.serialization.safe_globals([Custom]):
                reshard.load(path, state)
            self.assertIsInstance(state["extra"][5], Custom)
            self.assertEqual(state["step"], 7)
            ChecksTest.checks += 4


if __name__ == "__main__":
    main("keys")
