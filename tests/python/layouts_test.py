#!/usr/bin/env python3
"""reshard.Layout: what its boxes are, against a reading of layouts that shares no code with it.

usage: layouts_test.py RESHARD            (the package is on PYTHONPATH, or installed)
"""
import itertools
import math
import os
import pickle
import random
import sys
import unittest

import reshard

SEED = int(os.environ.get("RESHARD_TEST_SEED", random.randrange(1 << 32)))


def random_case(rng):
    """A mesh's axes and a layout over it: for each dimension its size and the axes that cut it, major first."""
    axes = {name: rng.randint(1, 4) for name in "abc"[: rng.randint(1, 3)]}
    free = list(axes)
    rng.shuffle(free)
    dims = []
    for _ in range(rng.randint(0, 3)):
        cuts = [free.pop() for _ in range(rng.randint(0, len(free)))]
        dims.append((rng.randint(0, 17), cuts))
    return axes, dims


def texts(axes, dims):
    mesh = "{" + ",".join(f"{name}:{size}" for name, size in axes.items()) + "}"
    return mesh, "[" + ", ".join((f"<{','.join(cuts)}>" if cuts else "") + str(size) for size, cuts in dims) + "]"


def held(axes, dims, device):
    """Offset and size of what a device holds: each axis in turn cuts what is left into chunks of ceil(length / size)."""
    coordinate = {}
    for name, size in reversed(axes.items()):
        device, coordinate[name] = divmod(device, size)
    box = []
    for size, cuts in dims:
        begin, end = 0, size
        for name in cuts:
            chunk = math.ceil((end - begin) / axes[name])
            begin, end = (min(end, begin + chunk * (coordinate[name] + k)) for k in (0, 1))
        box.append((begin, end - begin))
    return tuple(begin for begin, _ in box), tuple(length for _, length in box)


class Layouts(unittest.TestCase):
    def test_boxes(self):
        rng = random.Random(SEED)
        for _ in range(500):
            axes, dims = random_case(rng)
            layout = reshard.Layout(*texts(axes, dims))
            with self.subTest(seed=SEED, layout=layout):
                self.assertEqual(layout.shape, tuple(size for size, _ in dims))
                self.assertEqual(layout.devices, list(range(math.prod(axes.values()))))
                for device in layout.devices:
                    box = held(axes, dims, device)
                    self.assertEqual(layout.local_shape(device), box[1])
                    self.assertEqual(layout.boxes(device), [box] if all(box[1]) else [])

    def test_every_element_once(self):
        # What no nested chunks are: blocks, reflected axes, explicit sizes, sub-axes, flattened dimensions.
        for mesh, text in (
            ("{cp:4}", "[<2,~cp>16, 3]"),
            ("{dp:2}", "[<dp=[9,3]>(3, 4)]"),
            ("{X:8}", "[<X:(1)2>6, <X:(2)4>8]"),
            ("{tp:3,dp:2}@[5,0,3,1,4,2]", "[<dp,tp>7, <3>9]"),
        ):
            layout = reshard.Layout(mesh, text)
            seen = {}
            for device in layout.devices:
                elements = []
                for offset, size in layout.boxes(device):
                    elements += itertools.product(*(range(begin, begin + length) for begin, length in zip(offset, size)))
                self.assertEqual(len(elements), math.prod(layout.local_shape(device)))
                for element in elements:
                    seen.setdefault(element, []).append(device)
            self.assertEqual(sorted(seen), sorted(itertools.product(*map(range, layout.shape))), text)
            self.assertEqual({len(devices) for devices in seen.values()}, {1}, text)

    def test_zigzag(self):
        layout = reshard.Layout("{cp:4}", "[<2,~cp>16]")
        self.assertEqual(layout.boxes(1), [((2,), (2,)), ((12,), (2,))])

    def test_slots(self):
        layout = reshard.Layout("{ep:2}", "[<ep={0,3,1|3,2}>4, 8]")
        self.assertEqual(layout.boxes(0), [((0, 0), (1, 8)), ((3, 0), (1, 8)), ((1, 0), (1, 8))])

    def test_is_a_value(self):
        one = reshard.Layout("{dp:2,tp:4}", "[<dp,tp>4096, 1024]")
        written_otherwise = reshard.Layout("{dp:2,tp:4}", "[512<dp,tp>4096, 1024]")
        blocks = reshard.Layout("{dp:2,tp:4}", "[<dp,tp:(1)4>4096, 1024]")
        rule = reshard.Layout("{dp:2,tp:4}", "[<dp,tp>, ...]", shape=(4096, 1024))
        swapped = reshard.Layout("{tp:4,dp:2}@[0,4,1,5,2,6,3,7]", "[<dp,tp>4096, 1024]")
        self.assertEqual({one, written_otherwise, rule}, {one})
        self.assertEqual(pickle.loads(pickle.dumps(one)), one)
        self.assertEqual(eval(repr(one)), one)
        self.assertNotEqual(one, blocks)
        self.assertNotEqual(one, swapped)
        self.assertNotEqual(one, str(one))
        self.assertTrue(one.same_as(blocks) and one.same_as(swapped))
        self.assertFalse(one.same_as(reshard.Layout("{dp:2,tp:4}", "[<tp,dp>4096, 1024]")))
        self.assertEqual((one.partial, reshard.Layout("{X:2}", "[4] sum<X>").partial), (None, "sum"))

    def test_where_texts_go(self):
        before, after = (reshard.Layout("{dp:2,tp:4}", text) for text in ("[<dp,tp>64, 16]", "[64, <tp,dp>16]"))
        plan = reshard.plan("{dp:2,tp:4}", str(before), str(after), dtype="f32")
        self.assertEqual(reshard.plan(before, after, dtype="f32").to_json(), plan.to_json())
        batch = reshard.plan_batch([{"id": "w", "from": before, "to": after, "dtype": "f32"}])
        self.assertEqual(batch.plan("w").to_json(), plan.to_json())
        self.assertEqual(str(reshard.show(before)), str(reshard.show("{dp:2,tp:4}", str(before))))
        with self.assertRaisesRegex(TypeError, "the target is a Layout, too"):
            reshard.plan(before, "[64, 16]")

    def test_refusals(self):
        layout = reshard.Layout("{dp:2}", "[<dp>4]")
        for call, words in (
            (lambda: layout.boxes(2), "no device 2"),
            (lambda: layout.local_shape(-1), "no device -1"),
            (lambda: reshard.Layout("{dp:2}", "[<tp>4]"), 'layout: unknown axis "tp"'),
            (lambda: reshard.Layout("{dp", "[4]"), "mesh: "),
            (lambda: reshard.Layout("{dp:2}", "[4]", format="hlo2"), "not a notation"),
            (lambda: reshard.plan("{dp:2}", "[<dp>4]", "[<tp>4]"), "on another mesh, give that as target_mesh"),
        ):
            with self.assertRaisesRegex(reshard.InputError, words):
                call()
        with self.assertRaises(reshard.LimitError):
            reshard.Layout("{X:2,Y:2}", "[<2048,X>4096, <2048,Y>4096]").boxes(0)


if __name__ == "__main__":
    print(f"RESHARD_TEST_SEED={SEED}")
    unittest.main(argv=sys.argv[:1])
