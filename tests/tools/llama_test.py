#!/usr/bin/env python3
"""Llama 3 8B from FSDP and tensor parallelism to tensor parallel serving: all 291 tensors planned in one batch, and a small
copy of each kind of tensor moved on in-process devices.

usage: llama_test.py COMMAND SOURCE_DIR
"""
import fractions
import json
import math
import os
import subprocess
import sys

from command import Command

DP, TP = 16, 8
BF16 = 2


def main():
    reshard, source_dir = Command(sys.argv[1]), sys.argv[2]
    models = os.path.join(source_dir, "examples", "models")

    def example(script, *arguments, stdin=None):
        return subprocess.run([sys.executable, os.path.join(models, script), *arguments], input=stdin, check=True,
                              capture_output=True, text=True).stdout

    # The committed list is what the script makes, and it is the model.
    with open(os.path.join(models, "llama3_8b.json"), encoding="utf-8") as file:
        text = file.read()
    assert text == example("make_llama.py", "8b"), "llama3_8b.json is not what make_llama.py 8b prints"
    tensors = json.loads(text)["tensors"]
    assert len(tensors) == len({t["name"] for t in tensors}) == 291
    assert sum(math.prod(t["shape"]) for t in tensors) == 8_030_261_248

    rules = ["rules_fsdp_tp.json", "rules_tp_serving.json"]
    files = [os.path.join(models, name) for name in ["llama3_8b.json", *rules]]
    problems = [json.loads(line) for line in example("make_batch.py", *files).splitlines()]
    assert [p["id"] for p in problems] == [t["name"] for t in tensors]
    assert [p["shape"] for p in problems] == [t["shape"] for t in tensors]

    answers = reshard.batch(problems)
    received, expected = 0, fractions.Fraction(0)
    for tensor, answer in zip(tensors, answers):
        assert answer["shape"] == tensor["shape"] and answer["dtype"] == "bf16" and answer["world"] == DP * TP, answer
        assert answer["totals"]["recv_bytes_max"] == answer["bounds"]["recv_bytes_max"], answer
        assert answer["totals"]["intermediate_bytes_max"] == answer["bounds"]["intermediate_bytes_max"], answer
        # Serving keeps 1/TP of a matrix (all of a norm), of which training held 1/DP already.
        whole = math.prod(tensor["shape"]) * BF16
        kept = whole if len(tensor["shape"]) == 1 else fractions.Fraction(whole, TP)
        expected += kept - kept / DP
        received += answer["totals"]["recv_bytes_max"]
    assert received == expected, (received, expected)
    totals = example("totals.py", stdin="".join(json.dumps(a) + "\n" for a in answers))
    assert f"{received / 2**20:.2f}" in totals.splitlines()[-1], totals
    print(totals, end="")

    # And back, which moves nothing: every device keeps a part of what it has.
    back = [json.loads(line) for line in example("make_batch.py", files[0], files[2], files[1]).splitlines()]
    for answer in reshard.batch(back):
        assert answer["totals"]["recv_bytes_max"] == 0, answer

    # Every distinct kind of tensor, small but cut the same way, on in-process devices with every element checked.
    kinds = {}
    for line in example("make_batch.py", *files, "--scale", "16").splitlines():
        problem = json.loads(line)
        kinds.setdefault((problem["from"], problem["to"], tuple(problem["shape"])), problem)
    assert len(kinds) == 7, kinds.keys()
    for problem in kinds.values():
        done = reshard.json("run", problem["mesh"], problem["from"], problem["to"], "--shape", ",".join(map(str, problem["shape"])),
                            "--dtype", problem["dtype"], "--verify", "--json")
        assert done["verified"] is True and done["bytes_moved"] > 0, (problem, done)
    print(f"{len(kinds)} kinds of tensor moved and verified on {DP * TP} in-process devices")


if __name__ == "__main__":
    main()
