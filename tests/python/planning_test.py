#!/usr/bin/env python3
"""What `import reshard` plans, draws and judges without PyTorch, beside what the command says.

usage: planning_test.py RESHARD            (the package is on PYTHONPATH, or installed)
"""
import inspect
import json
import os
import pydoc
import subprocess
import sys
import tempfile
import unittest

import reshard

COMMAND = sys.argv[1] if len(sys.argv) > 1 else "reshard"
SWAP = ("{X:4,Y:4,Z:16}", "[32<X,Y>512, 128]", "[32<Y,X>512, 128]")


def command(*arguments, stdin=None):
    return subprocess.run([COMMAND, *arguments], input=stdin, capture_output=True, text=True, check=True).stdout


class Plans(unittest.TestCase):
    def test_needs_no_torch(self):
        self.assertNotIn("torch", sys.modules)

    def test_is_what_the_command_prints(self):
        plan = reshard.plan(*SWAP)
        self.assertEqual(plan.to_json() + "\n", command("plan", *SWAP, "--json"))
        self.assertEqual(str(plan) + "\n", command("plan", *SWAP))
        self.assertEqual(plan.explain(), command("plan", *SWAP, "--explain"))
        self.assertEqual(plan.to_json(pieces=True) + "\n", command("plan", *SWAP, "--pieces"))
        with tempfile.NamedTemporaryFile("r", suffix=".svg") as picture:
            command("plan", *SWAP, "--svg", picture.name)
            self.assertEqual(plan.svg(), picture.read())
        self.assertEqual(plan._repr_svg_(), plan.svg())
        self.assertIn(plan.simulate(), command("plan", *SWAP, "--simulate"))

    def test_is_the_page_of_the_command(self):
        plan = reshard.plan(*SWAP)
        with tempfile.TemporaryDirectory() as folder:
            command("plan", *SWAP, "--html", f"{folder}/plan.html")
            with open(f"{folder}/plan.html", encoding="utf-8") as file:
                self.assertEqual(plan.html(), file.read())
            command("show", "{X:2}", "[<X>4]", "--html", f"{folder}/show.html")
            with open(f"{folder}/show.html", encoding="utf-8") as file:
                self.assertEqual(reshard.show("{X:2}", "[<X>4]").html(), file.read())
        for shown in (plan, reshard.check(plan), reshard.plan_batch([])):
            self.assertTrue(shown._repr_html_().startswith('<iframe srcdoc="&lt;!DOCTYPE html&gt;'))
            self.assertEqual(shown._repr_html_().count('"'), 4)

    def test_figures(self):
        plan = reshard.plan(*SWAP)
        self.assertEqual((plan.bytes, plan.bound, plan.peak_bytes), (8192, 8192, 16384))
        self.assertEqual([step["op"] for step in plan.steps], ["AllPermute"])
        self.assertEqual(plan["schema"], "reshard.plan/1")
        self.assertIn("totals", plan)
        self.assertGreater(plan.seconds, 0)
        self.assertIn("AllPermute; 8192 bytes", repr(plan))

    def test_options(self):
        said = command("plan", "{dp:4,tp:8}", "S(0)S(1)", "RS(0)", "--shape", "512,512", "--format", "dtensor", "--topology",
                       "dgx-h100", "--nodes", "4x8", "--dtype", "f32", "--objective", "bytes", "--memory-limit", "1MiB", "--json")
        plan = reshard.plan("{dp:4,tp:8}", "S(0)S(1)", "RS(0)", shape=(512, 512), format="dtensor", topology="dgx-h100",
                            nodes=(4, 8), dtype="float32", objective="bytes", memory_limit="1MiB")
        self.assertEqual(plan.to_json() + "\n", said)
        self.assertEqual(reshard.plan(*SWAP, ops=["Slice", "AllGather", "AllToAll"]).to_json(),
                         reshard.plan(*SWAP, ops="Slice,AllGather,AllToAll").to_json())
        presets = ("dgx-a100", 8, 300), ("dgx-h200", 8, 450), ("dgx-b200", 8, 900), ("gb200", 72, 900), ("mi300x", 8, 448)
        for name, *inside in presets:
            level = reshard.plan(*SWAP, topology=name)["options"]["topology"]["levels"][0]
            self.assertEqual([level["devices"], level["gb_per_s"]], inside)
        levels = {"levels": [{"devices": 8, "gb_per_s": 400, "latency_us": 3}, {"gb_per_s": 50, "latency_us": 12}]}
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(levels, file)
            file.flush()
            of_file = reshard.plan(*SWAP, topology=file.name)
        self.assertEqual(of_file["totals"], reshard.plan(*SWAP, topology=levels)["totals"])
        relabelled = reshard.plan("{X:4}", "[<X>8]", "[<X>8]", target_mesh="{X:4}@[3,2,1,0]", relabel=True)
        self.assertEqual((relabelled.bytes, relabelled.devices), (0, [0, 1, 2, 3]))

    def test_meshes_as_dicts(self):
        ends, other, sizes = ("[<dp>8, 4]", "[8, <tp>4]"), {"dp": 2, "tp": 2}, {"dp": 4, "tp": 2}
        plan = reshard.plan(sizes, *ends, target_mesh=other)
        self.assertEqual(plan.to_json(), reshard.plan("{dp:4,tp:2}", *ends, target_mesh="{dp:2,tp:2}").to_json())
        batch = reshard.plan_batch([{"mesh": sizes, "from": ends[0], "to": ends[1], "to_mesh": other}])
        self.assertEqual(batch.plan("0").to_json(), plan.to_json())
        model = reshard.plan_model({"w": (8, 4)}, *ends, mesh=sizes, target_mesh=other)
        self.assertEqual(model.plan("w").to_json(), plan.to_json())
        self.assertEqual(reshard.Layout(sizes, ends[0]), reshard.Layout("{dp:4,tp:2}", ends[0]))
        with self.assertRaisesRegex(reshard.InputError, "mesh"):
            reshard.plan({"dp": 0}, *ends)

    def test_names_of_dtypes(self):
        class LikeNumPy:
            def __str__(self):
                return "float16"

        for dtype, name in (("torch.bfloat16", "bf16"), ("F8_E4M3", "f8e4m3fn"), (LikeNumPy(), "f16"), ("bf16", "bf16")):
            self.assertEqual(reshard.plan("{X:2}", "[<X>8]", "[8]", dtype=dtype)["dtype"], name)

    def test_errors(self):
        def refused(kind, also, *texts, **options):
            with self.assertRaises(kind) as caught:
                reshard.plan(*(options.pop("problem", ("{X:4}", "[<X>8]", "[8]"))), **options)
            self.assertIsInstance(caught.exception, also)
            self.assertIsInstance(caught.exception, reshard.ReshardError)
            for text in texts:
                self.assertIn(text, str(caught.exception))

        refused(reshard.InputError, ValueError, '"Q"', "\n    ^", problem=("{X:4}", "[<Q>8]", "[8]"))
        refused(reshard.InputError, ValueError, "mesh:", problem=("{X:", "[<X>8]", "[8]"))
        refused(reshard.InputError, ValueError, "jax", "give the shape", problem=("{X:4}", "[8]", "P('X')"))
        refused(reshard.InputError, ValueError, "give the shape", format="jax", problem=("{X:4}", "P('X')", "P()"))
        refused(reshard.InputError, ValueError, "notation", source_format="nonsense")
        refused(reshard.InputError, ValueError, "bf16", dtype="f7")
        refused(reshard.InputError, ValueError, "time, bytes or steps", objective="nonsense")
        refused(reshard.InputError, ValueError, "nonsense", ops="nonsense")
        refused(reshard.InputError, ValueError, "dgx-h100", topology="nonsense")
        refused(reshard.InputError, ValueError, "levels", topology={})
        refused(reshard.InputError, ValueError, "4", topology="dgx-h100", nodes=(1, 2))
        refused(reshard.InputError, ValueError, "two is needed", nodes=(1, 4))
        refused(reshard.InputError, ValueError, "2GiB", memory_limit="much")
        refused(reshard.LimitError, MemoryError, "20 bytes", memory_limit=1)
        refused(reshard.UnsupportedError, NotImplementedError, "sum over X", problem=("{X:4}", "[8]", "[8] sum<X>"))
        with self.assertRaises(FileNotFoundError):
            reshard.plan(*SWAP, topology="./none.json")
        with self.assertRaises(TypeError):
            reshard.plan(*SWAP, nonsense=1)
        with self.assertRaisesRegex(TypeError, "the mesh is text or a dict, not int"):
            reshard.plan(1, 2, 3)


class Others(unittest.TestCase):
    def test_batch(self):
        problems = [{"id": f"w{i}", "mesh": SWAP[0], "from": SWAP[1], "to": SWAP[2]} for i in range(3)]
        lines = "".join(json.dumps(problem) + "\n" for problem in problems)
        batch = reshard.plan_batch(problems, bucket="1GiB")
        self.assertEqual(str(batch) + "\n", command("plan", "--batch", "-", "--coalesce", "--bucket", "1GiB", stdin=lines))
        self.assertEqual(len(batch), 3)
        self.assertEqual(batch["totals"]["recv_bytes_max"], 3 * 8192)
        self.assertEqual(batch.plan("w1").bytes, 8192)
        self.assertEqual(batch.plan(-1).bytes, 8192)
        self.assertTrue(reshard.check(batch))
        for wrong, word in (({"mesh": "{X:2}"}, "from"), ({**problems[0], "form": ""}, "form"), ({**problems[0], "to": "["}, "w0")):
            with self.assertRaises(reshard.InputError) as caught:
                reshard.plan_batch([wrong])
            self.assertIn(word, str(caught.exception))
        self.assertEqual(len(reshard.plan_batch([])), 0)

    def test_show(self):
        picture = reshard.show("{X:2,Y:2}", "[<X>4, <Y>4]")
        self.assertEqual(str(picture) + "\n", command("show", "{X:2,Y:2}", "[<X>4, <Y>4]"))
        self.assertTrue(picture._repr_svg_().startswith("<svg"))
        self.assertEqual(reshard.show("{X:2}", "P('X')", shape=[4], format="jax").layout, "[2<X>4]")
        self.assertEqual(str(reshard.show("{X:2}", "[<X>4]", device=1)) + "\n", command("show", "{X:2}", "[<X>4]", "--device", "1"))

    def test_check(self):
        plan = reshard.plan(*SWAP)
        verdict = reshard.check(plan)
        self.assertTrue(verdict and verdict.agrees)
        self.assertEqual(str(verdict) + "\n", command("check", "-", stdin=plan.to_json()))
        forged = plan.to_dict()
        forged["totals"]["recv_bytes_max"] = 1
        self.assertFalse(reshard.check(forged))
        self.assertFalse(reshard.check(json.dumps(forged)).agrees)
        for text in ("", "{}", "[1]"):
            with self.assertRaises(reshard.InputError):
                reshard.check(text)

    def test_package(self):
        self.assertTrue(command("--version").startswith(f"reshard {reshard.__version__}"))
        for name in reshard.__all__:
            self.assertIsNotNone(getattr(reshard, name))
        self.assertIn("redistribute", dir(reshard))
        with self.assertRaises(AttributeError):
            reshard.nonsense
        try:
            import torch  # noqa: F401
        except ImportError:
            for needs_it in (reshard.redistribute, reshard.Refit, reshard.torch.redistribute, reshard.dcp.StorageReader):
                with self.assertRaisesRegex(ImportError, "needs PyTorch"):
                    needs_it(1)
            with self.assertRaisesRegex(ImportError, "torch"):
                from reshard.torch import redistribute  # noqa: F401
        self.assertTrue(hasattr(reshard, "redistribute") and hasattr(reshard, "dcp"))
        self.assertIn("redistribute", dict(inspect.getmembers(reshard)))
        self.assertIn("convert", pydoc.render_doc(reshard))

    def test_module(self):
        module = [sys.executable, "-m", "reshard"]
        environment = os.environ | {"PATH": f"{os.path.dirname(os.path.abspath(COMMAND))}:{os.environ['PATH']}"}

        def run(*arguments):
            return subprocess.run([*module, *arguments], capture_output=True, text=True, env=environment)

        self.assertEqual(command("--version"), run("--version").stdout)
        self.assertEqual(2, run("plan", "--nonsense").returncode)


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    unittest.main()
