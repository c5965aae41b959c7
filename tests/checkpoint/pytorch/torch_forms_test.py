"""Forms of distributed checkpoints that PyTorch writes, or has written: each is read, with the same contents.

Run by CTest with a Python that has torch: torch_forms_test.py RESHARD
"""

import copyreg
import inspect
import io
import pathlib
import pickle
import shutil
import subprocess
import sys
import tempfile
import unittest
import warnings

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import metadata as forms
from torch.distributed.checkpoint.filesystem import FileSystemWriter, _StorageInfo

COMMAND = sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else "reshard"

warnings.filterwarnings("ignore")


def state():
    torch.manual_seed(7)
    return {
        "w": torch.randn(5, 7),
        "transposed": torch.randn(6, 4).t(),
        "channels_last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "conjugate": torch.randn(3, 2, dtype=torch.complex64).conj(),
        "scalar": torch.tensor(2.5),
        "empty": torch.empty(0, 3),
        "slice": torch.arange(40.0).reshape(5, 8)[1:4, 2:6],
        "expanded": torch.arange(3.0).expand(4, 3),
        "float8": torch.arange(16, dtype=torch.uint8).view(torch.float8_e4m3fn),
        "step": 3,
        "nested": {"list": [torch.ones(2), {"deep": torch.zeros(1)}]},
    }


class FormsTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="reshard-forms-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.original = self.folder / "original"
        dcp.save(state(), checkpoint_id=self.original, no_dist=True)
        self.metadata = pickle.loads((self.original / ".metadata").read_bytes())

    def command(self, *words, code=0):
        done = subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True, check=False)
        self.assertEqual(code, done.returncode, done.stderr)
        return done

    def same(self, other):
        self.command("verify", self.original, other)

    def with_metadata(self, name, data):
        """A checkpoint with the data of the original and other bytes of `.metadata`, which has the same contents."""
        path = self.folder / name
        shutil.copytree(self.original, path)
        (path / ".metadata").write_bytes(data)
        self.same(path)
        return path

    def dumped(self, protocol=4, reducers=None):
        """The metadata, with other ways to pickle some classes."""
        out = io.BytesIO()
        pickler = pickle._Pickler(out, protocol)  # the one in Python, which asks the table for every class
        pickler.dispatch_table = copyreg.dispatch_table | (reducers or {})
        pickler.dump(self.metadata)
        return out.getvalue()

    def test_contents_are_those_that_torch_reads(self):
        target = self.folder / "target"
        self.command("checkpoint", self.original, target, "--mesh", "{x:1}", "--layout", "[...]")
        for path in (self.original, target):
            wanted = {k: v for k, v in state().items() if isinstance(v, torch.Tensor)}
            got = {k: torch.zeros(v.shape, dtype=v.dtype) for k, v in wanted.items()}
            dcp.load(got, checkpoint_id=path, no_dist=True)
            for key, value in wanted.items():
                left = value.resolve_conj().contiguous().reshape(-1).view(torch.uint8)
                right = got[key].contiguous().reshape(-1).view(torch.uint8)
                self.assertTrue(torch.equal(left, right), f"{path.name}: {key}")

    def test_protocols(self):
        for protocol in range(2, 6):
            self.with_metadata(f"protocol{protocol}", self.dumped(protocol))
            self.with_metadata(f"c{protocol}", pickle.dumps(self.metadata, protocol))
        for protocol in (0, 1):
            path = self.folder / f"protocol{protocol}"
            shutil.copytree(self.original, path)
            (path / ".metadata").write_bytes(self.dumped(protocol))
            self.assertIn("not a pickle of protocol 2", self.command("inspect", path, code=4).stderr)

    def test_properties_of_six(self):
        """As PyTorch 2.15 has them, with strides."""

        def reduce(properties):
            return copyreg.__newobj__, (forms.TensorProperties,), (*properties.__getstate__(), (1, 2))

        self.with_metadata("six", self.dumped(4, {forms.TensorProperties: reduce}))

    def test_properties_in_a_dict(self):
        """As PyTorch had them at first: no __getstate__."""

        def reduce(properties):
            return copyreg.__newobj__, (forms.TensorProperties,), {**vars(properties), "memory_format": None}

        self.with_metadata("dict", self.dumped(2, {forms.TensorProperties: reduce}))

    def test_transforms(self):
        def without(info):
            return copyreg.__newobj__, (_StorageInfo,), {
                k: getattr(info, k) for k in ("relative_path", "offset", "length")}

        def none(info):
            return copyreg.__newobj__, (_StorageInfo,), {**without(info)[2], "transform_descriptors": None}

        def empty(info):
            return copyreg.__newobj__, (_StorageInfo,), {**without(info)[2], "transform_descriptors": []}

        for reduce in (without, none, empty):
            self.with_metadata(reduce.__name__, self.dumped(4, {_StorageInfo: reduce}))

    def test_paths_of_other_pythons(self):
        data = self.dumped(2)
        self.assertIn(b"cpathlib\nPosixPath\n", data)
        for other in (b"pathlib._local\nPosixPath", b"pathlib\nPurePosixPath", b"pathlib\nWindowsPath",
                      b"pathlib._local\nWindowsPath"):
            self.with_metadata(other.replace(b"\n", b".").decode(), data.replace(b"pathlib\nPosixPath", other))

    def test_no_paths_no_index_no_version(self):
        """planner_data of other planners, indices without hints, fewer members."""
        self.metadata.planner_data = None
        self.metadata.storage_meta = None
        self.metadata.storage_data = {
            forms.MetadataIndex(i.fqn, i.offset, None): info for i, info in self.metadata.storage_data.items()}
        self.with_metadata("fewer", self.dumped())

    def test_without_checksums(self):
        tensors = {k: v for k, v in state().items() if isinstance(v, torch.Tensor)}  # bytes have their checksums inside
        dcp.save(tensors, checkpoint_id=self.folder / "checked", no_dist=True)
        torch.serialization.set_crc32_options(False)
        try:
            dcp.save(tensors, checkpoint_id=self.folder / "unchecked", no_dist=True)
        finally:
            torch.serialization.set_crc32_options(True)
        self.command("verify", self.folder / "checked", self.folder / "unchecked")

    @unittest.skipUnless("use_collectives" in inspect.signature(dcp.save).parameters, "not in this PyTorch")
    def test_metadata_of_every_rank(self):
        writer = FileSystemWriter(self.folder / "ranks")
        dcp.save(state(), storage_writer=writer, use_collectives=False)
        names = sorted(p.name for p in (self.folder / "ranks").iterdir())
        self.assertIn("__0.metadata", names)
        self.assertNotIn(".metadata", names)
        self.same(self.folder / "ranks")

    def test_ranks_that_have_parts(self):
        """The same as two ranks would: each lists its own boxes."""
        path = self.folder / "ranks"
        shutil.copytree(self.original, path)
        (path / ".metadata").unlink()
        for rank in (0, 1):
            mine = [k for i, k in enumerate(self.metadata.state_dict_metadata) if i % 3 in (rank, 2)]
            part = forms.Metadata(
                state_dict_metadata={k: self.metadata.state_dict_metadata[k] for k in mine},
                planner_data={k: v for k, v in self.metadata.planner_data.items() if k in mine},
                storage_data={i: v for i, v in self.metadata.storage_data.items() if i.fqn in mine},
            )
            (path / f"__{rank}.metadata").write_bytes(pickle.dumps(part))
        self.same(path)

    def test_one_file_an_item(self):
        dcp.save(state(), storage_writer=FileSystemWriter(self.folder / "items", single_file_per_rank=False), no_dist=True)
        self.assertGreater(len(list((self.folder / "items").iterdir())), 10)
        self.same(self.folder / "items")

    def test_quantized_weights_stay_with_their_scales(self):
        # As DeepSeek writes them: blocks of 128 x 128 with a scale each. PyTorch's reader finds scales by the index.
        import json

        from safetensors.torch import save_file
        from torch.distributed.checkpoint.quantized_hf_storage import QuantizedHuggingFaceStorageReader

        source = self.folder / "deepseek"
        source.mkdir()
        weight = torch.randn(200, 384).to(torch.float8_e4m3fn)
        tensors = {"a.weight": weight, "a.weight_scale_inv": torch.rand(2, 3) + 0.5, "norm.weight": torch.randn(384)}
        save_file(tensors, source / "model.safetensors")
        (source / "model.safetensors.index.json").write_text(
            json.dumps({"weight_map": {name: "model.safetensors" for name in tensors}}))

        def read(folder):
            into = {"a.weight": torch.zeros(200, 384), "norm.weight": torch.zeros(384)}
            dcp.load(into, storage_reader=QuantizedHuggingFaceStorageReader(str(folder)), no_dist=True)
            return into

        self.command("convert", source, self.folder / "cut", "--mesh", "{x:3}", "--layout", "[<x>, ...]", "--verify")
        self.command("convert", self.folder / "cut", self.folder / "back", "--to", "hf", "--verify")
        wanted, found = read(source), read(self.folder / "back")
        self.assertTrue(wanted["a.weight"].abs().sum() > 0)
        for name, tensor in wanted.items():
            self.assertTrue(torch.equal(tensor, found[name]), name)


if __name__ == "__main__":
    unittest.main(verbosity=1)
