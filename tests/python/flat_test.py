"""Flat buffers cut over ranks, both ways, and plans between them."""

import sys
import unittest

import reshard


class Flat(unittest.TestCase):
    def test_layouts(self):
        layouts = reshard.flat_layouts([(3, 4), (5,), (2, 2)], 3)
        self.assertEqual(layouts, ["[<dp=[7,5,0]>(3, 4)]", "[<dp=[0,2,3]>(5)]", "[<dp=[0,0,4]>(2, 2)]"])
        self.assertEqual(reshard.flat_ranges(layouts)[0], [(7, 0), (5, 7), (0, 12)])
        plan = reshard.plan("{dp:3}", layouts[0], "[<dp>3, 4]")
        self.assertEqual(plan.bytes, plan.bound)
        self.assertTrue(reshard.check(plan))
        self.assertEqual(reshard.flat_ranges([plan["source"]])[0], [(7, 0), (5, 7), (0, 12)])

    def test_a_buffer_with_gaps_and_other_axes(self):
        layouts = reshard.flat_layouts(
            [(4, 2), (6,)], 2, offsets=[0, 16], shard=12, axis="d", dims=["4, <tp>4", "6"]
        )
        self.assertEqual(layouts, ["[<d=[8,0]>(4, <tp>4)]", "[<d=[0,6]>(6)]"])
        plan = reshard.plan("{d:2,tp:2}", layouts[0], "[<d>4, <tp>4]")
        self.assertTrue(reshard.check(plan))

    def test_errors(self):
        for arguments, text in (
            (([(3,)], 0), "0 ranks"),
            (([()], 1), "without dimensions"),
        ):
            with self.assertRaisesRegex(reshard.InputError, text):
                reshard.flat_layouts(*arguments)
        with self.assertRaisesRegex(reshard.InputError, "reach to element 12, but 2 shards of 5 end at 10"):
            reshard.flat_layouts([(3, 4)], 2, shard=5)
        with self.assertRaisesRegex(reshard.InputError, "1 shapes, 2 offsets and 1 dims"):
            reshard.flat_layouts([(3, 4)], 2, offsets=[0, 1])
        with self.assertRaisesRegex(reshard.InputError, "does not cut flattened dimensions"):
            reshard.flat_ranges(["[<dp>12]"])


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    unittest.main()
