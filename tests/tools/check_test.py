#!/usr/bin/env python3
"""`reshard check` as programs see it: its JSON keeps to docs/check.schema.json, its exit codes say what it found, and the
plans of the hard cases agree with it, with pieces and without.

usage: check_test.py COMMAND SOURCE_DIR
"""
import json
import os
import sys
import tempfile

import jsonschema

from command import Command
from schema_test import CASES

MANY = set("ABCDEFJKLMNOP") | {"A2", "B2", "B3", "K2"}  # too many pieces, or too large ones, to list


def main():
    reshard, source_dir = Command(sys.argv[1]), sys.argv[2]
    with open(os.path.join(source_dir, "docs", "check.schema.json"), encoding="utf-8") as file:
        schema = json.load(file)
    jsonschema.Draft7Validator.check_schema(schema)
    validator = jsonschema.Draft7Validator(schema)

    def check(text, code=0):
        report = json.loads(reshard("check", "-", "--json", stdin=text, code=code))
        for error in validator.iter_errors(report):
            sys.exit(f"{'/'.join(map(str, error.absolute_path))}: {error.message}")
        assert report["agrees"] == (code == 0), report
        return report

    plans = []
    for name, mesh, source, target, *to_mesh in CASES:
        arguments = ["plan", mesh, source, target, *(["--to-mesh", to_mesh[0]] if to_mesh else []), "--json"]
        for extra in ([], ["--objective", "bytes"], ["--objective", "steps"], [] if name in MANY else ["--pieces"]):
            plan = reshard.json(*arguments, *extra)
            check(json.dumps(plan))
            plans.append(plan)
    lines = check("".join(json.dumps(plan) + "\n" for plan in plans))
    assert len(lines["plans"]) == len(plans)
    batch = check(json.dumps({"schema": "reshard.batch/1", "plans": plans}))
    assert batch == lines

    # What is wrong is said in its place, as text and as JSON, on stdout.
    plan = next(p for p in plans if p["steps"] and p["steps"][0]["recv_bytes_max"] > 0)
    right = plan["steps"][0]["recv_bytes_max"]
    wrong = json.loads(json.dumps(plan))
    wrong["steps"][0]["recv_bytes_max"] = right + 1
    report = check(json.dumps(wrong), code=1)
    finding = {"where": "steps[0].recv_bytes_max", "said": str(right + 1), "is": str(right)}
    assert finding in report["plans"][0]["findings"], report
    text = reshard("check", "-", stdin=json.dumps(wrong), code=1)
    assert f"steps[0].recv_bytes_max: claimed {right + 1}, actual {right}\n" in text, text
    assert "x the lower bound" in text, text
    # The figures that were derived are those that were printed before the edit.
    derived = check(json.dumps(plan))["plans"][0]["derived"]
    assert derived["totals"]["recv_bytes_max"] == plan["totals"]["recv_bytes_max"]
    assert derived["bounds"]["recv_bytes_max"] == plan["bounds"]["recv_bytes_max"]

    # A bare plan of another tool.
    bare = {"mesh": "{X:4}", "dtype": "f32", "shape": [16, 8], "source": "[<X>16, 8]", "target": "[16, <X>8]",
            "steps": [{"op": "AllGather", "from": "[<X>16, 8]", "to": "[16, 8]"},
                      {"op": "Slice", "from": "[16, 8]", "to": "[16, <X>8]"}]}
    ratios = check(json.dumps(bare, indent=2))["plans"][0]["derived"]["ratios"]
    assert ratios["recv_bytes_max"] == 4.0, ratios

    # Exit codes: what cannot be read leaves stdout empty; of several plans the others are judged all the same.
    for text in ("", "{", "[1]", "{}", json.dumps({**bare, "mesh": "{X:"}), json.dumps({**plan, "schema": "reshard.plan/9"})):
        assert reshard("check", "-", stdin=text, code=4) == "", text
    mixed = check(json.dumps(bare) + "\n" + json.dumps({"id": 7, "error": {"code": "UNIMPLEMENTED", "message": "no"}}) + "\n", code=4)
    assert [p["agrees"] for p in mixed["plans"]] == [True, False] and "error" in mixed["plans"][1], mixed
    reshard("check", code=2)
    reshard("check", "-", "--jsn", code=2)
    with tempfile.TemporaryDirectory() as directory:
        assert reshard("check", os.path.join(directory, "absent.json"), code=5) == ""
        assert reshard("check", directory, code=5) == ""
        path = os.path.join(directory, "plan.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(plan, file)
        reshard("check", path)
    print(f"{len(plans)} plans judged")


if __name__ == "__main__":
    main()
