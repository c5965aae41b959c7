"""Moves the experts of a mixture-of-experts model to new slots, with replicas, as a load balancer decides.

    torchrun --nproc-per-node 4 rebalance.py

The loop that engines use does the same, layer by layer with one message per expert and matrix. Both are run, on two
nodes of two ranks (in the topology; here they are processes), and must leave the same weights in every slot.
"""
import random
import time

import torch
import torch.distributed as dist

import reshard

LAYERS, EXPERTS, SLOTS, RANKS_OF_NODE = 4, 24, 36, 2
SHAPES = {"gate": (EXPERTS, 256, 512), "up": (EXPERTS, 256, 512), "down": (EXPERTS, 512, 256)}
TOPOLOGY = {"name": "two nodes", "levels": [{"devices": RANKS_OF_NODE, "gb_per_s": 400, "latency_us": 3},
                                            {"gb_per_s": 12.5, "latency_us": 12}]}


def balanced(seed, ranks):
    """A physical_to_logical_map, [LAYERS, SLOTS]: every expert once, and replicas of some."""
    rows = []
    for layer in range(LAYERS):
        choice = random.Random(f"{seed} {layer}")
        slots = list(range(EXPERTS)) + choice.sample(range(EXPERTS), SLOTS - EXPERTS)
        choice.shuffle(slots)
        each = SLOTS // ranks
        rows.append([e for r in range(ranks) for e in slots[r * each : (r + 1) * each]])
    return rows


def weights_of(table, rank, ranks):
    """What this rank's slots hold, per layer and matrix: [slots, ...]; every expert has values of its own."""
    each = SLOTS // ranks
    out = []
    for layer, row in enumerate(table):
        for matrix, shape in enumerate(SHAPES.values()):
            mine = torch.empty(each, *shape[1:])
            for slot, expert in enumerate(row[rank * each : (rank + 1) * each]):
                mine[slot] = torch.arange(mine[slot].numel()).view(shape[1:]) + 1e5 * expert + 1e3 * layer + matrix
            out.append(mine)
    return out


class Loop:
    """The usual way: one message per expert and matrix, from one of its holders, layer by layer."""

    def __init__(self, old, new, sources, targets):
        self.old, self.new, self.sources, self.targets = old, new, sources, targets
        self.messages = self.between_nodes = 0

    def run(self):
        rank, ranks = dist.get_rank(), dist.get_world_size()
        each, matrices = SLOTS // ranks, len(SHAPES)
        for layer in range(LAYERS):
            before = [self.old[layer][r * each : (r + 1) * each] for r in range(ranks)]
            after = [self.new[layer][r * each : (r + 1) * each] for r in range(ranks)]
            operations, turn, copies = [], {}, []
            for receiver in range(ranks):
                for slot, expert in enumerate(after[receiver]):
                    if expert in before[receiver]:
                        if receiver == rank:
                            copies.append((slot, before[rank].index(expert), self.sources))
                        continue
                    if expert in after[receiver][:slot]:
                        if receiver == rank:
                            copies.append((slot, after[rank].index(expert), self.targets))
                        continue
                    # The holders take turns.
                    holders = [r for r in range(ranks) if expert in before[r]]
                    sender = holders[turn.setdefault(expert, 0) % len(holders)]
                    turn[expert] += 1
                    for matrix in range(matrices):
                        i = layer * matrices + matrix
                        if sender == rank:
                            part = self.sources[i][before[rank].index(expert)]
                            operations.append(dist.P2POp(dist.isend, part, receiver))
                            self.messages += 1
                            if sender // RANKS_OF_NODE != receiver // RANKS_OF_NODE:
                                self.between_nodes += part.numel() * part.element_size()
                        if receiver == rank:
                            operations.append(dist.P2POp(dist.irecv, self.targets[i][slot], sender))
            for work in dist.batch_isend_irecv(operations) if operations else []:
                work.wait()
            for slot, held, where in copies:
                for matrix in range(matrices):
                    i = layer * matrices + matrix
                    self.targets[i][slot].copy_(where[i][held])


class Planned:
    """All layers and matrices in the exchanges of one plan."""

    def __init__(self, old, new, sources, targets):
        ranks = dist.get_world_size()
        before, after = [], []
        for from_row, to_row in zip(old, new):
            for shape in SHAPES.values():
                before += reshard.expert_layouts([from_row], ranks, shape)
                after += reshard.expert_layouts([to_row], ranks, shape)
        self.bound = reshard.bind(sources, targets, f"{{ep:{ranks}}}", before, after)
        plan = reshard.plan_batch(
            [{"id": str(i), "mesh": f"{{ep:{ranks}}}", "from": a, "to": b, "dtype": "f32"}
             for i, (a, b) in enumerate(zip(before, after))], topology=TOPOLOGY)
        self.between_nodes = plan["totals"]["levels"][1]["recv_bytes_total"]
        # An upper bound: not every pair of ranks has something to send in each exchange.
        self.messages = sum(ranks * step["peers_max"] for bucket in plan["buckets"] for step in bucket["steps"])

    def run(self):
        self.bound.run()


def timed(way):
    dist.barrier()
    begin = time.perf_counter()
    way.run()
    dist.barrier()
    return time.perf_counter() - begin


dist.init_process_group("gloo")
torch.set_num_threads(1)
reshard.set_topology(TOPOLOGY)
rank, ranks = dist.get_rank(), dist.get_world_size()
old, new = balanced("old", ranks), balanced("new", ranks)
sources, wanted = weights_of(old, rank, ranks), weights_of(new, rank, ranks)
results = {}
for way in (Loop, Planned):
    targets = [torch.zeros_like(tensor) for tensor in wanted]
    moves = way(old, new, sources, targets)
    timed(moves)
    counts = torch.tensor([moves.messages, moves.between_nodes])
    if way is Loop:  # it counts only what this rank sends
        dist.all_reduce(counts)
    seconds = sorted(timed(moves) for _ in range(5))[2]
    same = torch.tensor(all(torch.equal(a, b) for a, b in zip(targets, wanted)))
    dist.all_reduce(same, dist.ReduceOp.MIN)
    results[way] = (bool(same), *counts.tolist(), seconds)
if rank == 0:
    for way, (same, messages, between_nodes, seconds) in results.items():
        print(f"{way.__name__:8}{'every slot is right' if same else 'WRONG'}, {between_nodes / 1e6:.2f} MB between nodes, "
              f"{messages} messages")
    print(f"time: the loop takes {results[Loop][3] / results[Planned][3]:.1f}x as long")
assert all(result[0] for result in results.values())
assert results[Planned][2] <= results[Loop][2] and results[Planned][1] < results[Loop][1]
dist.destroy_process_group()
