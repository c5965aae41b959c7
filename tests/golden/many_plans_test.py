#!/usr/bin/env python3
"""Plans stay as they are: the answers of the command to some 640 problems under five sets of options.

many_plans.json has one problem per line with one word per set: the operations, the bytes that the busiest device receives,
the estimate in ns and the start of the SHA-256 of all facts of the answer: layouts, operations, bytes, times, bounds. For
the cases in cases.json it also has the hashes of the pieces, the simulated times and the plan onto devices in the best
order. Prose and pictures are free to change. The file was written by another process, on another machine and by a compiler
with other flags than those of today, so plans are the same everywhere or this test fails.

A change that is meant to change plans says `--update` and shows in its diff what became of which problem.

usage: many_plans_test.py COMMAND SOURCE_DIR [--update]
"""
import hashlib
import json
import os
import re
import subprocess
import sys

import random_problems

SEED = 20240607
OPTIONS = {
    "time": (),
    "bytes": ("--objective", "bytes", "--topology", "dgx-h100"),
    "steps": ("--objective", "steps", "--ops", "boxes"),
    "named": ("--topology", "dgx-a100", "--ops", "Slice,AllGather,AllToAll,AllPermute,ReduceScatter,AllReduce"),
    "limit": ("--topology", "dgx-h100", "--memory-limit"),  # and the problem's limit, see Limit
}
LETTERS = {"Slice": "S", "AllGather": "G", "AllToAll": "T", "AllPermute": "P", "ReduceScatter": "R", "AllReduce": "A",
           "Exchange": "X"}
ON_2X4 = {"mesh": "{x:2,y:4}", "shape": [64, 48]}
BY_HAND = [
    dict(ON_2X4, **{"from_format": "dtensor", "from": "S(0)[1]S(0)[0]", "to_format": "dtensor", "to": "RS(1)"}),
    dict(ON_2X4, **{"from_format": "dtensor", "from": "_S(0, 4)S(0)", "to": "[<x>64, <y>48]"}),
    dict(ON_2X4, **{"from_format": "dtensor", "from": "P(sum)S(1)", "to_format": "dtensor", "to": "S(0)S(1)"}),
    dict(ON_2X4, **{"from_format": "jax", "from": "P('y', 'x')", "to_format": "jax", "to": "P(None, ('x', 'y'))"}),
    dict(ON_2X4, **{"from_format": "jax", "from": "P(unreduced={'x'})", "to_format": "jax", "to": "P('y')"}),
    dict(ON_2X4, **{"from_format": "shardy", "from": '<@m, [{"y":(1)2}, {"x"}]>', "to": "[<y>, *]"}),
    dict(ON_2X4, **{"from_format": "hlo", "from": "{devices=[4,2]<=[8]}", "to_format": "hlo",
                    "to": "{devices=[2,4]<=[4,2]T(1,0)}"}),
    dict(ON_2X4, **{"from_format": "hlo", "from": "{replicated}", "to_format": "hlo", "to": "{devices=[3,2]<=[6]}"}),
    dict(ON_2X4, **{"from_format": "jax", "from": "P('z')", "to": "[...]"}),
    {"mesh": "{x:2,y:4}", "from_format": "jax", "from": "P('x')", "to": "[64]"},
    {"mesh": "{x:2,y:4}", "from": "[<x>64]", "too": "[64]"},
    {"mesh": "{x:2,y:4}", "from": "[<x>64]"},
    {"mesh": "{x:2,y:4}", "from": "[<x>64]", "to": 7},
    {"mesh": "{x:2,y:4}", "from": "[<x>64]", "to": "[64]", "shape": [-1]},
    {"mesh": "{x:2,y:4}", "from": "[64] sum<x>", "to": "[64] max<x>"},
    {"mesh": "{x:2,y:4}", "from": "[64]", "to": "[64] sum<y>"},
    {"mesh": "{x:2,y:4}", "from": "[<x>64]", "to": "[<x>32]"},
]


def golden_cases(source_dir):
    with open(os.path.join(source_dir, "tests", "golden", "cases.json"), encoding="utf-8") as file:
        return json.load(file)


# What an answer says in words, or what changes with each release.
PROSE = {"reshard_version", "detail", "rejected_because", "message"}


def facts(value):
    """A parsed answer without its prose."""
    if isinstance(value, dict):
        return {key: facts(inner) for key, inner in value.items() if key not in PROSE}
    return [facts(inner) for inner in value] if isinstance(value, list) else value


def digest_of_facts(text):
    """Of JSON; of other text, which has the same facts in sentences, the numbers."""
    try:
        kept = facts(json.loads(text))
    except ValueError:
        kept = re.findall(r"\d[\d.]*", text)
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:10]


class Answers:
    def __init__(self, command):
        self.command = command

    def lines(self, problems, *options):
        """The answers to `problems`, one each, as the command prints them."""
        text = "".join(json.dumps(p) + "\n" for p in problems)
        done = subprocess.run([self.command, "plan", "--batch", "-", *map(str, options)], input=text, text=True, timeout=300,
                              capture_output=True, check=False)
        lines = done.stdout.splitlines()
        if len(lines) != len(problems):
            sys.exit(f"{len(lines)} answers to {len(problems)} problems, exit code {done.returncode}: {done.stderr[:2000]}")
        return lines

    def limited(self, problems):
        """Like lines(), each with its own limit: one process for all problems with the same one."""
        of_limit = {}
        for number, limit in enumerate(p["limit"] for p in problems):
            of_limit.setdefault(limit, []).append(number)
        out = [""] * len(problems)
        for limit, numbers in of_limit.items():
            answers = self.lines([plain(problems[n]) for n in numbers], *OPTIONS["limit"], limit)
            for number, answer in zip(numbers, answers):
                out[number] = answer
        return out

    def coalesced(self, problems):
        """The schedule of all of them as one batch."""
        text = "".join(json.dumps(p) + "\n" for p in problems)
        done = subprocess.run([self.command, "plan", "--batch", "-", "--coalesce", "--bucket", "64MiB", "--json"], input=text,
                              text=True, timeout=300, capture_output=True, check=False)
        if done.returncode != 0:
            sys.exit(f"--coalesce: exit code {done.returncode}: {done.stderr[:2000]}")
        return done.stdout

    def reports(self, case):
        """What else is said of a plan: name -> text."""
        problem = [case[key] for key in ("mesh", "from", "to")] + case.get("args", [])
        problem += ["--to-mesh", case["to_mesh"]] if "to_mesh" in case else []

        def run(*more):
            done = subprocess.run([self.command, "plan", *problem, *more], capture_output=True, text=True, timeout=300,
                                  check=False)
            return done.stdout if done.returncode == 0 else f"exit code {done.returncode}"  # --relabel refuses some

        return {"pieces": run("--json", "--pieces"), "simulate": run("--simulate"), "relabel": run("--relabel", "--json")}


def plain(problem):
    """Without what is ours."""
    return {key: value for key, value in problem.items() if key not in ("limit", "answers")}


def limit_of(number, answer):
    """Somewhat less or somewhat more than the plan needs, in few distinct numbers."""
    plan = json.loads(answer)
    peak = plan["totals"]["peak_bytes"] if "totals" in plan else 0
    step = 1 << max(peak.bit_length() - 3, 4)
    return peak // step * step + (step if number % 2 else 0)


def word(answer):
    read = json.loads(answer)
    if "error" in read:
        return f"{read['error']['code']} {digest_of_facts(answer)}"
    steps = "".join(LETTERS[step["op"]] for step in read["steps"]) or "none"
    return f"{steps} {read['totals']['recv_bytes_max']} {read['totals']['time_ns']} {digest_of_facts(answer)}"


def current(answers, problems, cases):
    """What the golden file should be, and the full text of everything in it."""
    texts = {name: answers.lines([plain(p) for p in problems], *options) for name, options in OPTIONS.items() if name != "limit"}
    for number, (problem, answer) in enumerate(zip(problems, texts["time"])):
        problem.setdefault("limit", limit_of(number, answer))
    texts["limit"] = answers.limited(problems)
    planned = [plain(p) for p, answer in zip(problems, texts["time"]) if '"error":' not in answer]
    entries = [dict(problem, answers=[word(texts[name][n]) for name in OPTIONS]) for n, problem in enumerate(problems)]
    reports = {case["name"]: answers.reports(case) for case in cases}
    reports["one batch"] = {"batch": answers.coalesced(planned)}
    return {"seed": SEED, "problems": entries,
            "reports": {name: {kind: digest_of_facts(text) for kind, text in of.items()} for name, of in reports.items()}}, texts, reports


def written(golden):
    """JSON with a problem a line."""
    blocks = [f'"seed": {golden["seed"]}',
              '"problems": [\n' + ",\n".join(json.dumps(p) for p in golden["problems"]) + "\n]",
              '"reports": {\n' + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in golden["reports"].items()) + "\n}"]
    return "{\n" + ",\n".join(blocks) + "\n}\n"


def differences(golden, now, texts, reports):
    for number, (old, new) in enumerate(zip(golden["problems"], now["problems"])):
        for name, before, after in zip(OPTIONS, old["answers"], new["answers"]):
            if before != after:
                options = [*OPTIONS[name], *([old["limit"]] if name == "limit" else [])]
                yield (f"problem {number} with {options or 'no options'}: {json.dumps(plain(old))}\n  was {before}\n  is  {after}\n"
                       f"  {texts[name][number][:1500]}")
    for case in golden["reports"].keys() | now["reports"].keys():
        for kind in ("pieces", "simulate", "relabel", "batch"):
            before, after = (of["reports"].get(case, {}).get(kind) for of in (golden, now))
            if before != after:
                yield f"case {case}: {kind} was {before}, is {after}\n{reports.get(case, {}).get(kind, '')[:1500]}"


def main():
    command, source_dir = sys.argv[1:3]
    path = os.path.join(source_dir, "tests", "golden", "many_plans.json")
    cases = golden_cases(source_dir)
    problems = [{key: case[key] for key in ("mesh", "from", "to", "to_mesh") if key in case} for case in cases]
    problems += BY_HAND + random_problems.problems(SEED)
    if "--update" in sys.argv[3:]:
        with open(path, "w", encoding="utf-8") as file:
            file.write(written(current(Answers(command), problems, cases)[0]))
        return
    with open(path, encoding="utf-8") as file:
        golden = json.load(file)
    if [plain(p) for p in golden["problems"]] != problems:
        sys.exit(f"the problems made from seed {SEED} are not those of {path}: after a change of them, --update")
    for problem, old in zip(problems, golden["problems"]):
        problem["limit"] = old["limit"]
    wrong = list(differences(golden, *current(Answers(command), problems, cases)))
    for text in wrong[:10]:
        print(text)
    if wrong:
        sys.exit(f"{len(wrong)} answers are not what they were")
    print(f"{len(problems)} problems under {len(OPTIONS)} sets of options and {len(cases)} cases in full: as they were")


if __name__ == "__main__":
    main()
