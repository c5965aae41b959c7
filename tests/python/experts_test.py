"""Expert slots as engines write them, both ways, and plans between them."""

import random
import sys
import unittest

import reshard

# What EPLB's README prints for its two layers of 12 experts, 16 slots, 8 GPUs.
EPLB = [
    [5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1],
    [7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1],
]


class Experts(unittest.TestCase):
    def test_layouts(self):
        layouts = reshard.expert_layouts(EPLB, 8, [12, 7168, 2048])
        self.assertEqual(layouts[0], "[<ep={5,6|5,7|8,4|3,4|10,9|10,2|0,1|11,1}>12, 7168, 2048]")
        self.assertEqual(reshard.expert_map(layouts), EPLB)
        plan = reshard.plan("{ep:8}", layouts[0], layouts[1], dtype="bf16")
        self.assertEqual(plan.bytes, plan.bound)
        # As the planner prints them, ranges and all.
        self.assertEqual(reshard.expert_map([plan["source"], plan["target"]]), EPLB)
        self.assertTrue(reshard.check(plan))

    def test_relabel(self):
        # The same slots on other devices: nothing has to move once every device takes the place of what it has.
        rows = [EPLB[0][i : i + 2] for i in range(0, 16, 2)]
        random.Random(1).shuffle(rows)
        source, target = (reshard.expert_layouts([m], 8, [12, 64])[0] for m in (EPLB[0], sum(rows, [])))
        self.assertGreater(reshard.plan("{ep:8}", source, target).bytes, 0)
        relabelled = reshard.plan("{ep:8}", source, target, relabel=True)
        self.assertEqual(relabelled.bytes, 0)
        # Between EPLB's two layers fewer bytes move than in the given order.
        a, b = reshard.expert_layouts(EPLB, 8, [12, 64])
        given, best = reshard.plan("{ep:8}", a, b), reshard.plan("{ep:8}", a, b, relabel=True)
        self.assertLess(best["totals"]["recv_bytes_total"], given["totals"]["recv_bytes_total"])

    def test_batch_with_copies(self):
        # A rank that needs an expert twice gets it once.
        line = {"mesh": "{ep:2}", "from": "[<ep={0|1}>2, 8]", "to": "[<ep={1,1|0,1}>2, 8]", "dtype": "f32"}
        batch = reshard.plan_batch([{"id": "a"} | line, {"id": "b"} | line])
        self.assertEqual(batch["totals"]["recv_bytes_max"], 64)
        self.assertEqual(batch["bounds"]["recv_bytes_max"], 64)

    def test_errors(self):
        for rows, ranks, message in (
            ([[0, 1, 2]], 2, "layer 0: 3 slots cannot be dealt evenly to 2 ranks"),
            ([[0, 1], [0, 2]], 2, "layer 1: a slot holds expert 2, but the experts are 0 to 1"),
            ([[-1, 1]], 2, "layer 0: a slot holds expert -1"),
            ([[0, 0]], 2, "layer 0: no slot holds expert 1"),
        ):
            with self.assertRaisesRegex(reshard.InputError, message):
                reshard.expert_layouts(rows, ranks, [2, 8])
        for layout in ("[2, 8]", "[<ep={0|1,0}>2]"):
            with self.assertRaises(reshard.InputError):
                reshard.expert_map([layout])


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    unittest.main()
