#!/usr/bin/env python3
"""Every plan that the command prints keeps to docs/plan.schema.json, every run to docs/run.schema.json, and the figures
inside one object agree with each other.

usage: schema_test.py COMMAND SOURCE_DIR      ($RESHARD_TEST_SEED: seed of the random problems; fewer of them if
$RESHARD_SANITIZED is set)
"""
import collections
import json
import math
import os
import random
import sys

import jsonschema

from command import Command

SIZES = {"bool": 1, "i8": 1, "bf16": 2, "f16": 2, "f32": 4, "f64": 8, "c128": 16}

# Names from the notes on planning: letters are its hard cases, G its golden cases.
CASES = [
    ("A", "{dp:16,tp:8}", "[<tp>16384, 32768]", "[16384, <dp,tp>32768]"),
    ("A2", "{dp:8,tp:8}", "[<tp>16384, 32768]", "[16384, <dp,tp>32768]"),
    ("B", "{x:8,y:8}", "[<x>16384, <y>32768]", "[<y>16384, <x>32768]"),
    ("B2", "{x:16,y:8}", "[<x>16384, <y>32768]", "[<y>16384, <x>32768]"),
    ("B3", "{x:16,y:8}", "[<x>1024, <y>1024, 512]", "[<y>1024, <x>1024, 512]"),
    ("C", "{x:8,y:8}", "[<x,y>16384, 32768]", "[<y>16384, 32768]"),
    ("M", "{x:8,y:8}", "[<x>16384, 32768]", "[<y>16384, 32768]"),
    ("D", "{a:4,b:4,c:8}", "[<c>16384, 32768]", "[16384, <a,b,c>32768]"),
    ("E", "{a:4,b:4,c:4}", "[<a,b>1024, <c>1024, 512]", "[<a>1024, <b>1024, <c>512]"),
    ("F", "{a:2,b:2,c:2,d:2}", "[<b>16384, 32768]", "[16384, <a,c,d>32768]"),
    ("J", "{dp:8,tp:8}", "[<dp,tp>16384, 32768]", "[<tp,dp>16384, 32768]"),
    ("K", "{x:4,y:2}", "[<y>1024, 1024, <x>512]", "[1024, <x,y>1024, 512]"),
    ("K2", "{x:16,y:8}", "[<y>1024, 1024, <x>512]", "[1024, <x,y>1024, 512]"),
    ("L", "{tp:8,dp:8}", "[16384, <tp,dp>32768]", "[<dp,tp>16384, 32768]"),
    ("N", "{x:4,y:2,z:4}", "[1024, <y,z,x>1024, 512]", "[<x,y>1024, 1024, <z>512]"),
    ("O", "{w1:2,w2:2}", "[16384, <w1>32768]", "[<w1,w2>16384, 32768]"),
    ("P", "{node:8,gpu:8}", "[16384, 32768] sum<node>", "[16384, 32768]"),
    ("G1", "{X:4,Y:4,Z:16}", "[32<X,Y>512, 128]", "[32<Y,X>512, 128]"),
    ("G2", "{X:4,Y:4,Z:16}", "[128<Y>512, 32<X>128]", "[128<X>512, 32<Y>128]"),
    ("G3", "{X:4,Y:4,Z:16}", "[32<X,Y>512, 128]", "[32<Z>512, 128]"),
    ("G4", "{x:4,y:2}", "[16, <x,y>16, 16]", "[16, <x>16, <y>16]"),
    ("G7", "{x:4,y:2}", "[<y>16, 16, <x>16]", "[16, <x,y>16, 16]"),
    ("G9", "{X:2}", "[<2,X>5]", "[<X>5]"),
    ("G10", "{X:4}", "[<X>6]", "[6]"),
    ("G12", "{f:4,t:2}", "[<f>64, <t>64]", "[64, <t>64]", "{t:2}@8"),
    ("G13", "{sp:4}", "[<sp>128, 7, 16]", "[128, <sp>7, 16]"),
    ("equivalent", "{X:2,Y:2}", "[<X,Y>8]", "[<X,Y>8]"),
    ("scalar", "{X:2}", "[]", "[]"),
    ("empty", "{X:2}", "[<X>0, 4]", "[0, <X>4]"),
    ("one device", "{}", "[4]", "[4]"),
    ("explicit ids", "{X:4}@[7,3,5,1]", "[<X>9]", "[9]"),
    ("reflected", "{X:4}", "[<2,~X>64]", "[<X>64]"),
    ("explicit sizes", "{X:3}", "[<X=[1,0,6]>7]", "[<X>7]"),
    ("sub-axes", "{X:8}", "[<X:(1)2>16, <X:(2)4>16]", "[<X:(2)4>16, <X:(1)2>16]"),
    ("reduce-scatter", "{X:4}", "[16] sum<X>", "[<X>16]"),
    ("uneven all-reduce", "{X:4,Y:2}", "[<Y>7, 3] max<X>", "[<Y>7, 3]"),
    ("disjoint", "{X:4}", "[<X>16, 6]", "[16, <Y>6]", "{Y:3}@4"),
    ("overlapping", "{X:4}", "[<X>16, 6]", "[16, <Y>6]", "{Y:3}@2"),
]


def random_dim(choice, axes):
    """The factors of one dimension from the axes it gets, and its size."""
    factors, parts = [], 1
    if choice.random() < 0.15:
        blocks = choice.randint(2, 3)
        factors.append(str(blocks))
        parts *= blocks
    for name, size in axes:
        divisors = [d for d in range(2, size) if size % d == 0]
        if divisors and choice.random() < 0.3:
            d = choice.choice(divisors)
            factors += choice.sample([f"{name}:(1){d}", f"{name}:({d}){size // d}"], choice.randint(1, 2))
        elif factors and choice.random() < 0.2:
            factors.append("~" + name)
        else:
            factors.append(name)
        parts *= size
    size = parts * choice.randint(1, 3) if choice.random() < 0.6 else choice.randint(0, 3 * parts)
    return factors, size


def random_problem(choice, number):
    mesh = [(name, choice.randint(1, 6)) for name in ("X", "Y", "Z")[:choice.randint(1, 3)]]
    rank = choice.randint(1, 3)
    sizes = [0] * rank
    layouts = []
    for _ in range(2):
        homes = [choice.randrange(rank + 1) for _ in mesh]
        order = choice.sample(range(len(mesh)), len(mesh))
        dims = []
        for d in range(rank):
            factors, size = random_dim(choice, [mesh[i] for i in order if homes[i] == d])
            sizes[d] = max(sizes[d], size)
            dims.append(factors)
        free = [mesh[i][0] for i in range(len(mesh)) if homes[i] == rank]
        layouts.append((dims, free))

    def text(dims, pending=""):
        return "[" + ", ".join(("<" + ",".join(f) + ">" if f else "") + str(n) for f, n in zip(dims, sizes)) + "]" + pending

    pending = ""
    if layouts[0][1] and choice.random() < 0.2:
        pending = " sum<" + layouts[0][1][0] + ">"
    problem = {
        "id": number,
        "mesh": "{" + ",".join(f"{name}:{size}" for name, size in mesh) + "}",
        "from": text(layouts[0][0], pending),
        "to": text(layouts[1][0]),
        "dtype": choice.choice(sorted(SIZES.keys() - {"bool"})),
    }
    if not pending and choice.random() < 0.2:
        problem["to_mesh"] = problem["mesh"] + "@" + str(choice.randint(1, 8))
    return problem


def check_plan(plan, what):
    """What must hold between the figures of one plan."""
    steps, totals, bounds = plan["steps"], plan["totals"], plan["bounds"]
    assert totals["recv_bytes_max"] >= bounds["recv_bytes_max"], what
    assert totals["recv_bytes_total"] >= bounds["recv_bytes_total"], what
    assert totals["intermediate_bytes_max"] >= bounds["intermediate_bytes_max"], what
    assert totals["recv_bytes_total"] == sum(s["recv_bytes_total"] for s in steps), what
    assert totals["recv_bytes_max"] <= sum(s["recv_bytes_max"] for s in steps), what
    if "chunks" in plan:
        assert totals["time_ns"] < sum(s["time_ns"] for s in steps), what
        assert plan["chunks"]["block"] % plan["chunks"]["count"] == 0, what
    else:
        assert totals["time_ns"] == sum(s["time_ns"] for s in steps), what
    if plan["certificate"]["kind"] == "lower_bound":
        assert totals["recv_bytes_max"] == bounds["recv_bytes_max"], what
    for before, after in zip(steps, steps[1:]):
        assert before["to"] == after["from"], what
    if steps:
        assert steps[0]["from"] == plan["source"] and steps[-1]["to"] == plan["target"], what
    for step in steps:
        assert step["op"] in plan["options"]["ops"], what
        assert step["recv_bytes_max"] <= step["recv_bytes_total"], what
        if "from_mesh" in step:
            assert step["op"] in ("Exchange", "AllPermute") and "target_mesh" in plan and not step["axes"], what


def check_pieces(plan, what):
    """The pieces are inside the tensor and add up to the figures of their step."""
    size = SIZES[plan["dtype"]]
    received = [collections.Counter() for _ in plan["steps"]]
    sent = [collections.Counter() for _ in plan["steps"]]
    for step, sender, receiver, offset, extent in plan["pieces"]:
        assert sender != receiver and max(sender, receiver) < plan["world"], what
        assert len(offset) == len(extent) == len(plan["shape"]), what
        assert all(o + e <= n for o, e, n in zip(offset, extent, plan["shape"])), what
        received[step][receiver] += math.prod(extent) * size
        sent[step][sender] += math.prod(extent) * size
    for step, into, out in zip(plan["steps"], received, sent):
        if step["op"] == "AllReduce":
            continue  # who reduces which chunk is the collective's business
        assert max(into.values(), default=0) == step["recv_bytes_max"], (what, step)
        assert sum(into.values()) == step["recv_bytes_total"], (what, step)
        assert max(out.values(), default=0) == step["send_bytes_max"], (what, step)


def main():
    reshard, source_dir = Command(sys.argv[1]), sys.argv[2]
    seed = os.environ.get("RESHARD_TEST_SEED") or "20240607"
    if seed == "random":
        seed = str(random.SystemRandom().getrandbits(32))
    print(f"RESHARD_TEST_SEED={seed}", flush=True)
    choice = random.Random(int(seed))

    def validator(name, part=""):
        with open(os.path.join(source_dir, "docs", name), encoding="utf-8") as file:
            schema = json.load(file)
        jsonschema.Draft7Validator.check_schema(schema)
        if part:
            schema = {**schema["definitions"][part], "definitions": schema["definitions"]}
        return jsonschema.Draft7Validator(schema)

    def check(validator, value, what):
        for error in validator.iter_errors(value):
            sys.exit(f"{what}: {'/'.join(map(str, error.absolute_path))}: {error.message}")

    plans, runs = validator("plan.schema.json"), validator("run.schema.json")
    errors = validator("plan.schema.json", "batch_error")
    counts = collections.Counter()

    # The schema must refuse something before its silence means anything.
    good = reshard.json("plan", "{X:2}", "[<X>4]", "[4]", "--json")
    check(plans, good, "a plain plan")
    for spoilt in ({**good, "extra": 1}, {**good, "world": 1.5}, {**good, "steps": [{**good["steps"][0], "op": "Teleport"}]},
                   {k: v for k, v in good.items() if k != "bounds"}, {**good, "source": None}):
        assert not plans.is_valid(spoilt), spoilt

    problems = []
    for name, mesh, source, target, *to_mesh in CASES:
        problems.append({"id": name, "mesh": mesh, "from": source, "to": target, "dtype": "bf16",
                         **({"to_mesh": to_mesh[0]} if to_mesh else {})})
    random_problems = 40 if os.environ.get("RESHARD_SANITIZED") else 200
    problems += [random_problem(choice, number) for number in range(random_problems)]

    answers = reshard.batch(problems)
    for problem, answer in zip(problems, answers):
        check(plans, answer, problem)
        check_plan(answer, problem)
        counts["batch"] += 1

    flags = [[], ["--objective", "bytes"], ["--objective", "steps"], ["--topology", "dgx-h100"], ["--memory-limit", "64GiB"],
             ["--ops", "Slice,AllGather,AllToAll,AllPermute,ReduceScatter,AllReduce,Exchange"], ["--ops", "boxes"]]
    for number, (problem, answer) in enumerate(zip(problems, answers)):
        arguments = ["plan", problem["mesh"], problem["from"], problem["to"], "--dtype", problem["dtype"], "--json"]
        if "to_mesh" in problem:
            arguments += ["--to-mesh", problem["to_mesh"]]
        text = reshard(*arguments)
        assert text.endswith("}\n") and text.count("\n") == 1, "not one line of JSON"
        plan = json.loads(text)
        assert {**plan, "id": problem["id"]} == answer, f"alone and in a batch differ: {problem}"
        assert "id" not in plan, problem
        if plan["world"] <= 64 and math.prod(plan["shape"]) <= 1 << 20:
            with_pieces = reshard.json(*arguments, "--pieces")
            check(plans, with_pieces, problem)
            check_pieces(with_pieces, problem)
            reshard.judged([with_pieces])
            counts["pieces"] += 1
            with_pieces.pop("pieces")
            assert with_pieces == plan, f"--pieces changes the plan: {problem}"
        extra = flags[number % len(flags)]
        if extra == ["--ops", "boxes"] and problem["id"] not in list("ABCDEFJKLMNO"):
            extra = []  # not every problem has such a plan; the lettered ones do
        if extra:
            other = reshard.json(*arguments, *extra)
            check(plans, other, (problem, extra))
            check_plan(other, (problem, extra))
            reshard.judged([other])
            assert bool(other["options"].get("boxes")) == (extra[-1] == "boxes"), extra
            counts["options"] += 1

    # Errors of a batch: in their place, with their code, and the rest is still answered.
    lines = [json.dumps({"id": "fine", "mesh": "{X:2}", "from": "[<X>4]", "to": "[4]"}), "", "{not json",
             json.dumps({"id": {"any": ["thing"]}, "mesh": "{X:2}", "from": "[<Q>4]", "to": "[4]"}),
             json.dumps({"id": 3, "mesh": "{X:2}", "from": "[<X>4]", "to": "[5]"}),
             json.dumps({"id": 4, "mesh": "{X:2}", "to": "[5]"}),
             json.dumps({"id": 5, "mesh": "{X:2}", "from": "[<X>4]", "to": "[4]", "dtype": "f31"}),
             json.dumps({"id": 6, "mesh": "{X:2}", "from": "[<X>, *]", "to": "[*, <X>]", "shape": [4, 6], "to_mesh": None}),
             "[1]"]
    text = reshard("plan", "--batch", "-", stdin="\n".join(lines) + "\n", code=4)
    batch = [json.loads(line) for line in text.splitlines()]
    assert [a["id"] for a in batch] == ["fine", None, {"any": ["thing"]}, 3, 4, 5, 6, None], batch
    for answer in batch:
        check(errors if "error" in answer else plans, answer, "batch")
    assert ["error" in a for a in batch] == [False, True, True, True, True, True, False, True], batch
    counts["batch errors"] += sum("error" in a for a in batch)

    # What a run prints.
    for name, mesh, source, target, *to_mesh in CASES:
        if name.startswith("G") or not name[0].isupper():
            plan = reshard.json("run", mesh, source, target, *(["--to-mesh", to_mesh[0]] if to_mesh else []), "--dtype", "i32",
                                "--verify", "--json")
            check(runs, plan, name)
            assert plan["verified"] is True, name
            counts["runs"] += 1

    print(", ".join(f"{count} {what}" for what, count in counts.items()) + ": all valid")


if __name__ == "__main__":
    main()
