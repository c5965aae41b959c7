#!/usr/bin/env python3
"""Pickles that run code where Python reads them: nothing runs here, and no result has any of it.

  gadgets_test.py RESHARD

Python itself is the control: every gadget is first seen to work. As metadata or as a tensor each is refused; as a value
beside weights each is listed or refused, and never written.
"""
import io, os, pathlib, pickle, shutil, subprocess, sys, tempfile, zipfile

COMMAND = sys.argv[1]


class Calls:
    """Pickled as a call of `function`."""

    def __init__(self, function, *arguments):
        self.reduce = (function, arguments)

    def __reduce__(self):
        return self.reduce


def u(text):
    """BINUNICODE"""
    data = text.encode()
    return b"X" + len(data).to_bytes(4, "little") + data


def gadgets(marker):
    """name -> pickle"""
    touch = f"touch {marker}"
    python = f"open({str(marker)!r}, 'w').close()"
    found = {}
    for protocol in range(6):
        found[f"os.system, protocol {protocol}"] = pickle.dumps(Calls(os.system, touch), protocol)
        found[f"exec, protocol {protocol}"] = pickle.dumps(Calls(exec, python), protocol)
        found[f"subprocess, protocol {protocol}"] = pickle.dumps(Calls(subprocess.call, ["touch", str(marker)]), protocol)
        found[f"in a dict, protocol {protocol}"] = pickle.dumps({"a": [Calls(os.system, touch)]}, protocol)
        found[f"as a key, protocol {protocol}"] = pickle.dumps({(Calls(os.system, touch),): 1}, protocol)
    head = b"\x80\x04"
    call = u(touch) + b"\x85R."
    found["GLOBAL"] = b"\x80\x02cos\nsystem\n" + call
    found["GLOBAL after a good one"] = b"\x80\x02ccollections\nOrderedDict\n0cos\nsystem\n" + call
    found["STACK_GLOBAL"] = head + u("os") + u("system") + b"\x93" + call
    found["STACK_GLOBAL of remembered texts"] = (
        head + u("os") + b"\x94" + b"0" + u("system") + b"\x940h\x00h\x01\x93" + call)
    found["INST"] = b"\x80\x02(" + u(touch) + b"ios\nsystem\n."
    found["OBJ"] = b"\x80\x02(cos\nsystem\n" + u(touch) + b"o."
    found["NEWOBJ"] = head + b"cbuiltins\nmap\n(cbuiltins\nexec\n](" + u(python) + b"et\x81" \
        + b"q\x000cbuiltins\nlist\n(h\x00t\x81q\x010cbuiltins\nlist\nh\x00\x85R."
    found["getattr"] = head + b"cbuiltins\ngetattr\n(cos\n__dict__\n" + u("get") + b"tR(" + u("system") + b"tR" + call
    found["getattr of an allowed name"] = (
        head + b"cbuiltins\ngetattr\n(ccollections\nOrderedDict\n" + u("fromkeys") + b"tR0cos\nsystem\n" + call)
    found["copyreg._reconstructor"] = (
        head + b"ccopyreg\n_reconstructor\n(cbuiltins\nobject\ncbuiltins\nobject\nNtR0cos\nsystem\n" + call)
    found["copyreg.add_extension"] = (
        head + b"ccopyreg\nadd_extension\n(" + u("os") + u("system") + b"K\x71tR0\x82\x71" + call)
    found["an allowed call first"] = head + b"ccollections\nOrderedDict\n)R0cos\nsystem\n" + call
    found["BUILD of __setstate__"] = (
        head + b"ctypes\nSimpleNamespace\n)\x81}(" + u("__setstate__") + b"cos\nsystem\nub" + u(touch) + b"b.")
    found["a nested name"] = head + u("os") + u("path.os.system") + b"\x93" + call
    found["pickle in pickle"] = (
        head + b"cpickle\nloads\n(" + b"B" + len(p := b"\x80\x02cos\nsystem\n" + call).to_bytes(4, "little") + p + b"tR.")
    found["a module with a gadget for a class"] = (
        head + b"cos\nsystem\n" + u(touch) + b"\x85R}(" + b"".join(u(m) + b"}" for m in ("_parameters", "_buffers", "_modules"))
        + b"ub.")
    return found


TENSOR = (b"ctorch._utils\n_rebuild_tensor_v2\n((" + u("storage") + b"ctorch\nFloatStorage\n" + u("0") + u("cpu")
          + b"K\x01tQK\x00(K\x01t(K\x01t\x89ccollections\nOrderedDict\n)RtR")


def beside_weights(gadget):
    """The description {"w": a tensor, "x": the gadget}, or None where the gadget is of a protocol without a head."""
    if gadget[0] != 0x80:
        return None
    return b"\x80\x04}(" + u("w") + TENSOR + u("x") + gadget[2:-1] + b"u."


def stream(description):
    """torch.save's archive around a description of a tensor."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("archive/data.pkl", description)
        archive.writestr("archive/byteorder", "little")
        archive.writestr("archive/data/0", bytes(4))
        archive.writestr("archive/version", "3\n")
    return out.getvalue()


def metadata(length):
    """Of one tensor "w", float32 [1], whose stream is all of the file a.distcp."""
    module = "torch.distributed.checkpoint.metadata"

    def obj(name, state, where=module):
        return f"c{where}\n{name}\n".encode() + b")\x81" + state + b"b"

    def dictionary(**items):
        return b"}(" + b"".join(u(k) + v for k, v in items.items()) + b"u"

    def size(*sizes):
        return b"ctorch\nSize\n((" + b"".join(b"K" + bytes([n]) for n in sizes) + b"ttR"

    properties = obj("TensorProperties", b"(ctorch\nfloat32\nN\x89N\x89t")
    chunk = obj("ChunkStorageMetadata", dictionary(offsets=size(0), sizes=size(1)))
    tensor = obj("TensorStorageMetadata", dictionary(properties=properties, size=size(1), chunks=b"](" + chunk + b"e"))
    index = obj("MetadataIndex", dictionary(fqn=u("w"), index=b"K\x00", offset=size(0)))
    place = obj(
        "_StorageInfo",
        dictionary(relative_path=u("a.distcp"), offset=b"K\x00", length=b"J" + length.to_bytes(4, "little")),
        "torch.distributed.checkpoint.filesystem",
    )
    return b"\x80\x02" + obj(
        "Metadata",
        dictionary(state_dict_metadata=b"}" + u("w") + tensor + b"s", planner_data=b"}", storage_data=b"}" + index + place + b"s"),
    ) + b"."


def write(folder, name, data):
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(data)


def run(arguments, marker, what):
    done = subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, timeout=60, check=False)
    assert done.returncode in (0, 1, 4), (what, done.returncode, done.stderr)
    assert not marker.exists(), f"{what}: code of the pickle ran"
    return done


def refuses(arguments, marker, what):
    done = run(arguments, marker, what)
    assert done.returncode == 4, (what, done.returncode, done.stderr)
    assert done.stdout == b"", (what, done.stdout)


def leaves_out(folder, gadget, marker, what):
    """Weights beside which the gadget lies are converted without it."""
    write(folder, "state.pt", stream(beside_weights(gadget)))
    run(["inspect", folder / "state.pt"], marker, what)
    # Of a key a name is made, which is text; what is below it may be plain.
    is_key, is_module = "as a key" in what, "a module" in what
    for flags, codes in (([], (0, 1, 4) if is_key else (0,) if is_module else (1, 4)), (["--exclude", "x*"], (0, 4)), (["--weights-only"], (0, 4))):
        out = folder / "kept"
        done = run(["convert", folder / "state.pt", out, "--mesh", "{x:1}", "--layout", "[...]", "--no-side-files", *flags],
                   marker, what)
        assert done.returncode in codes, (what, flags, done.returncode, done.stderr)
        if done.returncode == 4:
            assert not out.exists(), (what, flags)
            continue
        for file in out.iterdir():
            found = [] if is_key and not flags else [word for word in (b"posix", b"exec", b"subprocess", b"touch", str(marker).encode()) if word in file.read_bytes()]
            assert not found, (what, flags, file.name, found)
        shutil.rmtree(out)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        marker = folder / "marker"
        good = stream(b"\x80\x02" + TENSOR + b".")
        write(folder / "good", "a.distcp", good)
        write(folder / "good", ".metadata", metadata(len(good)))
        done = subprocess.run([COMMAND, "verify", folder / "good", folder / "good"], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        count = 0
        for what, data in gadgets(marker).items():
            control = "import pickle, sys; pickle.load(open(sys.argv[1], 'rb'))"
            write(folder, "gadget", data)
            subprocess.run([sys.executable, "-c", control, folder / "gadget"], capture_output=True, check=False)
            assert marker.exists(), f"{what}: does nothing in Python"
            marker.unlink()

            write(folder / "bad", ".metadata", data)
            refuses(["inspect", folder / "bad"], marker, what)
            refuses(["checkpoint", folder / "bad", folder / "out", "--mesh", "{x:1}", "--layout", "[...]"], marker, what)
            # As the description of a tensor, which PyTorch reads with a list of what is allowed.
            bad = stream(data)
            write(folder / "stream", "a.distcp", bad)
            write(folder / "stream", ".metadata", metadata(len(bad)))
            refuses(["verify", folder / "stream", folder / "good"], marker, what + ", in a stream")
            refuses(["verify", folder / "good", folder / "stream"], marker, what + ", in a stream")
            if beside_weights(data) is not None:
                leaves_out(folder, data, marker, what + ", beside weights")
            count += 1
        assert not (folder / "out").exists()
        print(count, "gadgets, each run by Python and by nothing here")


if __name__ == "__main__":
    main()
