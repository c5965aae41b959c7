#!/usr/bin/env python3
"""Carries out a plan without this library: threads are the devices, queues the network. Needs neither PyTorch nor NumPy."""
import itertools
import queue
import threading

import reshard

ROWS, COLUMNS, DEVICES = 8, 4, 4
plan = reshard.plan("{X:4}", "[<X>8, 4]", "[8, <X>4]", dtype="f32").to_dict(pieces=True)
network = {(a, b): queue.Queue() for a in range(DEVICES) for b in range(DEVICES)}
results = {}


def box(offset, size):
    """The indices of a piece: [offset, offset + size) in each dimension of the whole tensor."""
    return itertools.product(*(range(o, o + s) for o, s in zip(offset, size)))


def device(me):
    # It starts with two rows. Elements are keyed by their index in the whole tensor, as in pieces.
    held = {(i, j): 10 * i + j for i in (2 * me, 2 * me + 1) for j in range(COLUMNS)}
    for number, step in enumerate(plan["steps"]):
        pieces = [piece for piece in plan["pieces"] if piece[0] == number]
        for _, sender, receiver, offset, size in pieces:
            if sender == me:
                network[me, receiver].put([held[place] for place in box(offset, size)])
        for _, sender, receiver, offset, size in pieces:
            if receiver == me:
                held.update(zip(box(offset, size), network[sender, me].get(timeout=10)))
    results[me] = [held[i, me] for i in range(ROWS)]  # what it must end with: one column


threads = [threading.Thread(target=device, args=(me,)) for me in range(DEVICES)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert results == {me: [10 * i + me for i in range(ROWS)] for me in range(DEVICES)}
print(len(plan["pieces"]), "messages; device 1 has", results[1])
