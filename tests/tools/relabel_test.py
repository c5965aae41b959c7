#!/usr/bin/env python3
"""`reshard plan --relabel`: the printed order of devices is that of the plan's target mesh, and saves what it says.

usage: relabel_test.py COMMAND SOURCE_DIR
"""
import itertools
import json
import re
import subprocess
import sys

from command import Command


def total(reshard, mesh, source, target, to_mesh, *arguments):
    return reshard.json("plan", mesh, source, target, "--to-mesh", to_mesh, "--json", *arguments)


def devices_of(text):
    return [int(d) for d in re.search(r"^devices: \[([0-9,]*)\]$", text, re.M).group(1).split(",")]


def main():
    reshard = Command(sys.argv[1])

    # G16: COSTA's 2 x 4 grid on 4 x 2 with blocks of 100, and the same with one block a process.
    for source, target in (("[<4,x>800, <2,y>800]", "[<2,x>800, <4,y>800]"), ("[<x>800, <y>800]", "[<x>800, <y>800]")):
        arguments = ("{x:2,y:4}", source, target, "{x:4,y:2}", "--dtype", "f64")
        before, after = total(reshard, *arguments), total(reshard, *arguments, "--relabel")
        moved, now = before["totals"]["recv_bytes_total"], after["totals"]["recv_bytes_total"]
        assert 3 * now == 2 * moved, (moved, now)
        for explain in ([], ["--explain"]):
            text = reshard("plan", "{x:2,y:4}", source, target, "--to-mesh", "{x:4,y:2}", "--dtype", "f64", "--relabel", *explain)
            assert "33.3 % saved" in text, text
            assert after["target_mesh"] == "{x:4,y:2}@" + str(devices_of(text)).replace(" ", ""), (after["target_mesh"], text)

    # A small one against every order.
    best = min(total(reshard, "{a:4}", "[<a>9, 5]", "[<y>9, <x>5]", "{x:2,y:2}@" + str(list(order)).replace(" ", ""))
               ["totals"]["recv_bytes_total"] for order in itertools.permutations(range(4)))
    found = total(reshard, "{a:4}", "[<a>9, 5]", "[<y>9, <x>5]", "{x:2,y:2}", "--relabel")
    assert found["totals"]["recv_bytes_total"] == best, (found["totals"], best)

    # An order of ranks: nothing moves. The mesh's own devices are used, whatever they are.
    rotated = total(reshard, "{x:3}", "[<x>9]", "[<x>9]", "{x:3}@[2,0,1]", "--relabel")
    assert rotated["steps"] == [] and rotated.get("target_mesh", rotated["mesh"]) == "{x:3}", rotated
    same = reshard.json("plan", "{x:3}", "[<x>9]", "[9]", "--relabel", "--json")
    assert "target_mesh" not in same

    # One order for a whole batch.
    problems = [{"id": f"w{i}", "mesh": "{x:4,y:2}", "from": f"[<x>{size}, <y>64]", "to": f"[<x>{size}, <y>64]",
                 "to_mesh": "{y:2,x:4}"} for i, size in enumerate((64, 32, 61))]
    text = "".join(json.dumps(p) + "\n" for p in problems)
    assert "100.0 % saved" in reshard("plan", "--batch", "-", "--coalesce", "--relabel", stdin=text)
    batch = json.loads(reshard("plan", "--batch", "-", "--coalesce", "--relabel", "--json", stdin=text))
    assert batch["totals"]["recv_bytes_total"] == 0
    assert {p["target_mesh"] for p in batch["plans"]} == {"{y:2,x:4}@[0,2,4,6,1,3,5,7]"}

    def refused(code, expected, *arguments, stdin=""):
        done = subprocess.run([reshard.path, "plan", *arguments], input=stdin, capture_output=True, text=True, timeout=60,
                              check=False)
        assert done.returncode == code and done.stdout == "" and expected in done.stderr, (arguments, done)

    refused(2, "--coalesce", "--batch", "-", "--relabel", stdin=text)
    refused(3, "reduce them first", "{x:4}", "[8] sum<x>", "[<x>8]", "--relabel")
    other = json.dumps(dict(problems[0], id="elsewhere", to_mesh="{y:2,x:4}@8"))
    refused(4, "line 4 (elsewhere)", "--batch", "-", "--coalesce", "--relabel", stdin=text + other)


if __name__ == "__main__":
    main()
