#!/usr/bin/env python3
"""Adds up what `reshard plan --batch` answered: bytes that a device receives for a whole model, against the bound.

usage: make_batch.py ... | reshard plan --batch - | totals.py
"""
import collections
import json
import sys

MIB = 2**20


def main():
    # Tensors that differ only in the layer they belong to are one row.
    rows = collections.OrderedDict()
    for line in sys.stdin:
        plan = json.loads(line)
        if "error" in plan:
            sys.exit(f"{plan['id']}: {plan['error']['message']}")
        ops = " ".join(step["op"] for step in plan["steps"]) or "nothing moves"
        key = (plan["source"], plan["target"], plan["dtype"], ops)
        row = rows.setdefault(key, [0, 0, 0, 0, 0])
        row[0] += 1
        row[1] += plan["totals"]["recv_bytes_max"]
        row[2] += plan["bounds"]["recv_bytes_max"]
        row[3] += plan["totals"]["time_ns"]
        row[4] = max(row[4], plan["totals"]["peak_bytes"])
    print("tensors  received MiB  bound MiB  time ms  peak MiB  plan")
    total = [0, 0, 0, 0, 0]
    for (source, target, dtype, ops), row in rows.items():
        print(f"{row[0]:7}  {row[1] / MIB:12.2f}  {row[2] / MIB:9.2f}  {row[3] / 1e6:7.2f}  {row[4] / MIB:8.2f}  "
              f"{source} -> {target} {dtype}: {ops}")
        total = [a + b for a, b in zip(total[:4], row[:4])] + [max(total[4], row[4])]
    print(f"{total[0]:7}  {total[1] / MIB:12.2f}  {total[2] / MIB:9.2f}  {total[3] / 1e6:7.2f}  {total[4] / MIB:8.2f}  "
          "total a device, worst device of each tensor")


if __name__ == "__main__":
    main()
