#!/usr/bin/env python3
"""`reshard plan --batch --coalesce`: the schedule keeps to docs/batch.schema.json and its figures agree with each other;
one bad line refuses the whole; the state of Llama 3.1 405B from 512 training devices to 64 serving ones is at the lower
bound with even senders.

usage: batch_test.py COMMAND SOURCE_DIR
"""
import json
import os
import subprocess
import sys
import tempfile

import jsonschema

from command import Command


def lines(problems):
    return "".join(json.dumps(p) + "\n" for p in problems)


class Batches:
    def __init__(self, reshard, source_dir):
        self.reshard = reshard
        docs = os.path.join(source_dir, "docs")

        def validator(name):
            with open(os.path.join(docs, name), encoding="utf-8") as file:
                schema = json.load(file)
            jsonschema.Draft7Validator.check_schema(schema)
            return jsonschema.Draft7Validator(schema)

        self.batch_schema, self.plan_schema = validator("batch.schema.json"), validator("plan.schema.json")

    def plan(self, problems, *arguments):
        text = self.reshard("plan", "--batch", "-", "--coalesce", "--json", *arguments, stdin=lines(problems))
        assert text.count("\n") == 1, text
        batch = json.loads(text)
        self.check(batch, problems)
        self.reshard.judged([batch])
        return batch

    def check(self, batch, problems):
        self.batch_schema.validate(batch)
        for plan in batch["plans"]:
            self.plan_schema.validate(plan)
        assert [t["id"] for t in batch["tensors"]] == [p.get("id") for p in problems]
        totals, bounds, devices = batch["totals"], batch["bounds"], batch["devices"]
        assert [d["device"] for d in devices] == sorted({d["device"] for d in devices})
        assert totals["recv_bytes_max"] == max((d["recv_bytes"] for d in devices), default=0)
        assert totals["send_bytes_max"] == max((d["send_bytes"] for d in devices), default=0)
        assert totals["recv_bytes_total"] == sum(d["recv_bytes"] for d in devices)
        assert totals["recv_bytes_total"] == sum(d["send_bytes"] for d in devices)
        assert totals["recv_bytes_total"] == sum(level["recv_bytes_total"] for level in totals["levels"])
        assert bounds["recv_bytes_total"] <= totals["recv_bytes_total"]
        between = [d["send_between_meshes_bytes"] for d in devices]
        assert totals["send_between_meshes_bytes_max"] == max(between, default=0)
        plans = [batch["plans"][t["plan"]] for t in batch["tensors"]]
        assert totals["recv_bytes_total"] == sum(p["totals"]["recv_bytes_total"] for p in plans)
        assert {t["plan"] for t in batch["tensors"]} == set(range(len(batch["plans"])))
        for tensor, plan in zip(batch["tensors"], plans):
            assert len(tensor["first_holders"]) == len(plan["steps"])
        limit = batch["options"]["memory_limit_bytes"]
        following = 0
        for number, bucket in enumerate(batch["buckets"]):
            assert bucket["first"] == following
            following += bucket["tensors"]
            inside = range(bucket["first"], following)
            assert all(batch["tensors"][t]["bucket"] == number for t in inside)
            assert bucket["peak_bytes"] == sum(plans[t]["totals"]["peak_bytes"] for t in inside)
            assert limit is None or bucket["peak_bytes"] <= limit
            assert bucket["time_ns"] == sum(step["time_ns"] for step in bucket["steps"])
            for stage in {step["stage"] for step in bucket["steps"]}:
                merged = sum(s["recv_bytes_total"] for s in bucket["steps"] if s["stage"] == stage)
                assert merged == sum(plans[t]["steps"][stage]["recv_bytes_total"] for t in inside
                                     if stage < len(plans[t]["steps"]))
        assert following == len(problems)
        assert totals["time_ns"] == sum(bucket["time_ns"] for bucket in batch["buckets"])

    def refused(self, text, code, *expected, arguments=()):
        done = subprocess.run([self.reshard.path, "plan", "--batch", "-", "--coalesce", *arguments], input=text,
                              capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == code, (done.returncode, done.stderr)
        assert done.stdout == "", done.stdout
        assert all(part in done.stderr for part in expected), done.stderr


def small_batches(batches):
    w = {"id": "w", "mesh": "{X:4}", "from": "[<X>64, 8]", "to": "[64, <X>8]"}
    other = dict(w, id=7, dtype="f32")
    nested = {"id": {"a": [1]}, "mesh": "{dp:4,tp:2}", "from": "[<dp>24]", "to": "[24]", "to_mesh": "{r:2}@9"}
    spaced = dict(w, **{"from": "[ <X> 64 , 8 ]"})
    batch = batches.plan([w, other, w, nested, spaced, {k: v for k, v in w.items() if k != "id"}])
    assert len(batch["plans"]) == 3, batch["plans"]
    assert len(batch["buckets"]) == 1
    # The stage is one exchange for all: latency once, bytes of all.
    assert batch["buckets"][0]["steps"][0]["tensors"] == 6

    assert len(batches.plan([w] * 5, "--bucket", "600")["buckets"]) == 5  # one reads and writes 2 x 256 bytes
    assert len(batches.plan([w] * 5, "--bucket", "1KiB")["buckets"]) == 3
    assert batches.plan([])["tensors"] == []
    batches.plan([w, other, nested], "--topology", "dgx-h100")

    text = batches.reshard("plan", "--batch", "-", "--coalesce", stdin=lines([w, other, nested]))
    assert text.startswith("3 tensors, 3 distinct plans, 1 bucket, 10 devices\n"), text

    # Replicas: sixteen small tensors from eight holders, two from each.
    norm = {"id": "norm", "mesh": "{dp:8}", "from": "[64]", "to": "[64]", "to_mesh": "{}@8"}
    batch = batches.plan([norm] * 16)
    assert sorted(t["first_holders"][0] for t in batch["tensors"]) == sorted(list(range(8)) * 2)
    assert batch["totals"]["send_imbalance"] == 1.0

    bad = dict(w, id="layers.3.w", to="[64, <Y>8]")
    batches.refused(lines([w, bad]), 4, "line 2 (layers.3.w)", "Y")
    batches.refused(lines([w]) + "\n{\n", 4, "line 3", "not JSON")
    batches.refused(lines([w, {"id": 5, "mesh": "{X:4}"}]), 4, "line 2 (5)", '"from" is missing')
    batches.refused(lines([w, dict(w, id="big", **{"from": "[<X>64, 64]", "to": "[64, <X>64]"})]), 3, "line 2 (big)",
                    " are needed", arguments=["--memory-limit", "900"])
    batches.refused(lines([w]), 2, "--bucket", arguments=["--bucket", "much"])
    batches.refused(lines([w]), 2, "--pieces", arguments=["--pieces"])
    assert "--coalesce" in subprocess.run([batches.reshard.path, "plan", "--coalesce", "{}", "[1]", "[1]"], check=False,
                                          capture_output=True, text=True).stderr


def llama_405b(batches, source_dir):
    models = os.path.join(source_dir, "examples", "models")

    def example(script, *arguments):
        return subprocess.run([sys.executable, os.path.join(models, script), *arguments], check=True, capture_output=True,
                              text=True).stdout

    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "llama31_405b.json")
        with open(model, "w", encoding="utf-8") as file:
            file.write(example("make_llama.py", "405b", "--optimizer"))
        text = example("make_batch.py", model, *[os.path.join(models, f"rules_405b_{side}.json")
                                                 for side in ("trainer", "rollout")])
    problems = [json.loads(line) for line in text.splitlines()]
    assert len(problems) == 4 * 1137
    assert sum(p["dtype"] == "bf16" for p in problems) == 1137
    for to_mesh in ("{replica:4,tp:16}@512", "{replica:4,tp:16}", "{tp:16}@512"):
        for problem in problems:
            problem["to_mesh"] = to_mesh
        batch = batches.plan(problems, "--bucket", "4GiB")
        totals, bounds = batch["totals"], batch["bounds"]
        assert totals["recv_bytes_max"] == bounds["recv_bytes_max"], (to_mesh, totals, bounds)
        assert totals["recv_bytes_total"] == bounds["recv_bytes_total"], (to_mesh, totals, bounds)
        assert all(d["recv_bytes"] == d["recv_bytes_bound"] for d in batch["devices"])
        assert totals["send_imbalance"] <= 1.05, (to_mesh, totals)
        assert len(batch["plans"]) == 14
        print(f"to {to_mesh}: {len(problems)} tensors, {len(batch['plans'])} plans, {len(batch['buckets'])} buckets; received "
              f"{totals['recv_bytes_max']} = bound, busiest sender {totals['send_imbalance']:.4f} x the mean")


def main():
    batches = Batches(Command(sys.argv[1]), sys.argv[2])
    small_batches(batches)
    llama_405b(batches, sys.argv[2])


if __name__ == "__main__":
    main()
