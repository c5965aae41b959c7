#!/usr/bin/env python3
"""What a refit moves, without moving it: random recipes between random layouts, in one process, against torch itself.

Elements are numbered; what each cut gives is gathered from the source's shards and scattered to the target's, both in
place, and the layouts that a cut says are held against the boxes that it says.
"""

import json
import random
import unittest

import torch

import gloo

CASES = 1000


def reference(expression, tensors):
    """The tensor that an expression makes, by torch's own operators."""
    if isinstance(expression, str):
        return tensors[expression]
    op = next(iter(expression))
    inputs = expression[op] if isinstance(expression[op], list) else [expression[op]]
    values = [reference(each, tensors) for each in inputs]
    dim = expression.get("dim", 0)
    if op == "concatenate":
        return torch.cat(values, dim)
    if op == "stack":
        return torch.stack(values, dim)
    if op == "interleave":
        blocks = expression["blocks"]
        return torch.cat([value.chunk(blocks, dim)[block] for block in range(blocks) for value in values], dim)
    (value,) = values
    if op == "slice":
        return value.narrow(dim, expression["begin"], expression["end"] - expression["begin"])
    if op == "split":
        return value.split(expression["sizes"], dim)[expression["part"]]
    if op == "unstack":
        return value.select(dim, expression["part"])
    if op == "transpose":
        return value.transpose(*expression["dims"])
    if op == "unflatten":
        return value.unflatten(dim, expression["sizes"])
    if op == "flatten":
        return value.flatten(*expression["dims"])
    if op == "deinterleave":
        blocks, sizes = expression["blocks"], expression["sizes"]
        parts = [block.split(sizes, dim)[expression["part"]] for block in value.chunk(blocks, dim)]
        return torch.cat(parts, dim)
    raise AssertionError(op)


class Random:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def expression(self, tensors, depth):
        """(expression, value) of one of 1 to 3 dimensions; adds tensors as it goes."""
        pick = self.random
        if depth == 0:
            name = f"t{len(tensors)}"
            shape = [pick.choice([1, 2, 3, 4, 6, 8]) for _ in range(pick.randint(1, 3))]
            tensors[name] = torch.empty(shape)
            return name
        inner = self.expression(tensors, depth - 1)
        value = reference(inner, tensors)
        dim = pick.randrange(value.dim()) if value.dim() else 0
        size = value.shape[dim] if value.dim() else 0
        ops = ["stack"] if value.dim() < 4 else []
        if value.dim():
            ops += ["concatenate", "slice", "split"]
        if value.dim() > 1:
            ops += ["transpose", "flatten", "unstack"]
        blocks = [b for b in (2, 3) if size and size % b == 0]
        if blocks:
            ops += ["interleave", "unflatten"]
        if any(size // b > 1 for b in blocks):
            ops.append("deinterleave")
        op = pick.choice(ops)
        if op in ("stack", "concatenate", "interleave"):
            parts = [inner]
            for _ in range(pick.randint(1, 2)):
                name = f"t{len(tensors)}"
                tensors[name] = torch.empty(value.shape)
                parts.append(name)
            pick.shuffle(parts)
            if op == "stack":
                return {"stack": parts, "dim": pick.randint(0, value.dim())}
            return {op: parts, "dim": dim} | ({"blocks": pick.choice(blocks)} if op == "interleave" else {})
        if op == "slice":
            begin = pick.randrange(size)
            return {"slice": inner, "dim": dim, "begin": begin, "end": pick.randint(begin + 1, size)}
        if op == "split":
            first = pick.randint(1, size)
            return {"split": inner, "dim": dim, "sizes": [first, size - first], "part": 0}
        if op == "unstack":
            return {"unstack": inner, "dim": dim, "part": pick.randrange(size)}
        if op == "transpose":
            return {"transpose": inner, "dims": pick.sample(range(value.dim()), 2)}
        if op == "flatten":
            return {"flatten": inner, "dims": [0, 1]}
        block = pick.choice([b for b in blocks if op != "deinterleave" or size // b > 1])
        if op == "unflatten":
            return {"unflatten": inner, "dim": dim, "sizes": [block, size // block]}
        first = pick.randint(1, size // block - 1)
        sizes = [first, size // block - first]
        return {"deinterleave": inner, "dim": dim, "blocks": block, "sizes": sizes, "part": pick.randrange(2)}

    def flattened(self, shape, first):
        """A mesh and a layout that flattens the first dimensions and cuts them anywhere, perhaps several ranks alike."""
        dims = self.random.randint(1, len(shape))
        count, copies = self.random.randint(1, 4), self.random.randint(1, 2)
        numel = torch.Size(shape[:dims]).numel()
        ends = [0, *sorted(self.random.randint(0, numel) for _ in range(count - 1)), numel]
        sizes = ",".join(str(end - begin) for begin, end in zip(ends, ends[1:]))
        rest = "".join(f", {size}" for size in shape[dims:])
        mesh = f"{{c:{copies},x:{count}}}" + (f"@{first}" if first else "")
        return mesh, f"[<x=[{sizes}]>({', '.join(map(str, shape[:dims]))}){rest}]"

    def layout(self, shape, first):
        """A mesh and a layout of that shape: even, uneven, in blocks, reflected, flattened or not at all."""
        if shape and self.random.random() < 0.3:
            return self.flattened(shape, first)
        known = {
            "{x:2}": ["<x>"],
            "{x:3}": ["<x>", "<2,~x>"],
            "{x:4}": ["<x>", "<2,x>"],
            "{x:2,y:2}": ["<x>", "<y>", "<x,y>", "<y,x>"],
        }
        mesh = self.random.choice(list(known))
        factors = known[mesh]
        factor = self.random.choice(factors)
        dims = [str(size) for size in shape]
        if dims:
            dim = self.random.randrange(len(dims))
            dims[dim] = factor + dims[dim]
            other = {"<x>": "<y>", "<y>": "<x>"}.get(factor)
            if other in factors and len(dims) > 1 and self.random.random() < 0.5:
                dims[dim - 1] = other + dims[dim - 1]
        return mesh + (f"@{first}" if first else ""), f"[{', '.join(dims)}]"


def shard_of(whole, intervals):
    for dim, parts in enumerate(intervals):
        indices = [torch.arange(begin, end) for begin, end in parts]
        whole = whole.index_select(dim, torch.cat(indices) if indices else torch.empty(0, dtype=torch.int64))
    return whole.contiguous()


def locals_of(whole, placed):
    """What each rank holds."""
    from reshard.torch.refit import cuts

    if "(" not in placed.layout:
        return {rank: shard_of(whole, held) for rank, held in cuts.shards(placed, whole.dim()).items()}
    import reshard

    layout = reshard.Layout(placed.mesh, placed.layout)
    text = placed.layout
    dims = text[text.index("(") : text.index(")")].count(",") + 1
    sizes = [int(size) for size in text[text.index("[", 1) + 1 : text.index("]")].split(",")]
    runs = whole.flatten(0, dims - 1).split(sizes)
    return {device: runs[place % len(sizes)].clone() for place, device in enumerate(layout.devices)}


class Views(unittest.TestCase):
    def test_random_recipes(self):
        from reshard.torch.refit import cuts, specs, views

        seed = gloo.seed()
        moved = 0
        for case in range(CASES):
            pick = Random(f"{seed}/{case}")
            tensors = {}
            expression = pick.expression(tensors, pick.random.randint(1, 3))
            number = 0
            for tensor in tensors.values():
                tensor.copy_(torch.arange(number, number + tensor.numel()).view(tensor.shape))
                number += tensor.numel()
            wanted = reference(expression, tensors).contiguous()
            what = f"case {case}: {expression}"

            def spec(name, tensor, first):
                return specs.Spec(name, *pick.layout(tensor.shape, first), "torch.float32", tuple(tensor.shape))

            sources = {name: spec(name, tensor, 0) for name, tensor in tensors.items()}
            target = spec("new", wanted, pick.random.choice([0, 2, 4]))
            recipe = {"schema": "reshard.recipe/1", "tensors": [{"to": "new", "from": expression}]}
            found = views.views_of(sources, {"new": target}, json.dumps(recipe))
            after = cuts.Placed(target.mesh, target.layout)
            outs = locals_of(torch.full_like(wanted, -1), after)
            for view in found:
                source = sources[view.source]
                before = cuts.Placed(source.mesh, source.layout)
                given = locals_of(tensors[view.source], before)
                for cut in cuts.cuts_of(before, after, view.source_start, view.target_start, view.loops):
                    own = cuts.parts(before, len(source.shape))[cut.source_part]
                    into = cuts.parts(after, wanted.dim())[cut.target_part]
                    self.move(what, cuts, cut, own, given, into, outs)
                    moved += 1
            for rank, local in locals_of(wanted, after).items():
                self.assertTrue(torch.equal(outs[rank], local), f"{what}\n{sources}\n{target}: rank {rank}")
        self.assertGreater(moved, CASES)

    def move(self, what, cuts, cut, own, given, into, outs):
        whole = next(iter(cut.source_boxes.values()))
        lows = [min(box[loop][0] for box in cut.source_boxes.values()) for loop in range(len(whole))]
        highs = [max(box[loop][1] for box in cut.source_boxes.values()) for loop in range(len(whole))]
        wire = torch.full([high - low for low, high in zip(lows, highs)], -2.0)
        for placed, boxes in ((cut.source, cut.source_boxes), (cut.target, cut.target_boxes)):
            said = cuts.shards(placed, len(lows))
            boxes = {rank: tuple(((l - at, h - at),) for (l, h), at in zip(box, lows)) for rank, box in boxes.items()}
            self.assertEqual(said, boxes, f"{what}: {placed}")
        steps = [(loop.source_dim, loop.source_step) for loop in cut.loops]
        for rank, box in cut.source_boxes.items():
            inside = tuple(slice(l - at, h - at) for (l, h), at in zip(box, lows))
            wire[inside] = cuts.part_of(own.of(given[rank], rank), own.held[rank], cut.source_start, steps, box)
        self.assertFalse((wire == -2).any(), what)
        steps = [(loop.target_dim, loop.target_step) for loop in cut.loops]
        for rank, box in cut.target_boxes.items():
            inside = tuple(slice(l - at, h - at) for (l, h), at in zip(box, lows))
            out = cuts.part_of(into.of(outs[rank], rank), into.held[rank], cut.target_start, steps, box)
            self.assertTrue((out == -1).all(), f"{what}: written twice")
            out.copy_(wire[inside])


if __name__ == "__main__":
    gloo.load_library()
    unittest.main()
