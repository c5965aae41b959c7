#!/usr/bin/env python3
"""`reshard plan MODEL`: a whole model as one schedule, from files of rules, one layout rule, or schemes.

usage: model_test.py COMMAND SOURCE_DIR
"""
import json
import os
import subprocess
import sys
import tempfile

from command import Command


def bytes_of(batch):
    return {key: batch["totals"][key] for key in ("recv_bytes_max", "recv_bytes_total", "time_ns", "peak_bytes")}


def schemes_and_rules(reshard, models):
    """The schemes say what the rules of the examples say, and what a batch of the same tensors is."""
    model = f"{models}/llama3_8b.json"
    rules = [f"{models}/rules_fsdp_tp.json", f"{models}/rules_tp_serving.json"]
    flags = ["--coalesce", "--json"]
    lines = subprocess.run([sys.executable, f"{models}/make_batch.py", model, *rules], capture_output=True, text=True, check=True).stdout
    batch = json.loads(reshard("plan", "--batch", "-", *flags, stdin=lines))
    by_rules = json.loads(reshard("plan", model, "--from", rules[0], "--to", rules[1], "--json"))
    by_scheme = json.loads(reshard("plan", model, "--mesh", "{dp:16,tp:8}", "--from", "fsdp+tp:llama", "--to", "tp:llama", "--json"))
    assert bytes_of(batch) == bytes_of(by_rules) == bytes_of(by_scheme), (bytes_of(batch), bytes_of(by_scheme))
    assert [t["id"] for t in by_rules["tensors"]] == [t["id"] for t in batch["tensors"]]
    told = reshard("plan", model, "--mesh", "{dp:16,tp:8}", "--from", "fsdp+tp:llama", "--to", "tp:llama", "--topology", "dgx-h100")
    assert "291 tensors" in told and "tensors that take the most time:\n" in told and " %  model.layers.0.mlp." in told, told
    explained = reshard("plan", model, "--mesh", "{dp:16,tp:8}", "--from", "fsdp", "--to", "tp:llama", "--explain")
    assert explained.count("Chosen because") >= 5, explained
    # Servers of their own, on devices that do not train.
    apart = json.loads(reshard("plan", model, "--mesh", "{dp:8}", "--from", "fsdp", "--to-mesh", "{tp:4}@8", "--to", "tp:llama", "--json"))
    assert {device["device"] for device in apart["devices"]} == set(range(12)), apart["devices"]


def checkpoints(reshard, models, folder):
    """A checkpoint and a folder of safetensors are models by their metadata."""
    header = {"model.embed_tokens.weight": {"dtype": "F32", "shape": [16, 8], "data_offsets": [0, 512]},
              "model.norm.weight": {"dtype": "F32", "shape": [8], "data_offsets": [512, 544]}}
    text = json.dumps(header).encode()
    os.mkdir(f"{folder}/hf")
    with open(f"{folder}/hf/model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + bytes(544))
    reshard("convert", f"{folder}/hf", f"{folder}/dcp", "--mesh", "{x:2}", "--layout", "[<x>, ...]")
    flags = ["--mesh", "{dp:4}", "--from", "[<dp>, ...]", "--to", "replicate", "--json"]
    plans = [json.loads(reshard("plan", f"{folder}/{kind}", *flags)) for kind in ("hf", "dcp", "hf/model.safetensors")]
    assert plans[0] == plans[2] and bytes_of(plans[0]) == bytes_of(plans[1]) and plans[0]["totals"]["recv_bytes_max"] == 408, plans
    page = f"{folder}/model.html"
    reshard("plan", f"{folder}/hf", "--mesh", "{dp:4}", "--from", "fsdp", "--to", "replicate", "--html", page, "--explain")
    with open(page, encoding="utf-8") as file:
        assert "model.embed_tokens.weight" in file.read()


def mistakes(reshard, models, folder):
    model = f"{models}/llama3_8b.json"
    for arguments, code, reason in (
        ([model, "--from", "fsdp", "--to", "tp:llama"], 4, "--from fsdp needs --mesh"),
        ([model, "--mesh", "{dp:4}", "--from", "fsdp"], 2, "needs --from and --to"),
        (["--mesh", "{dp:4}", "--from", "fsdp", "--to", "fsdp"], 2, "reshard plan MODEL"),
        (["{X:4}", "[<X>4]", "[4]", "--mesh", "{X:4}"], 2, "for one tensor give MESH FROM TO without flags"),
        ([f"{folder}/none", "--mesh", "{dp:4}", "--from", "fsdp", "--to", "replicate"], 5, "none"),
        ([f"{folder}/none.json", "--mesh", "{dp:4}", "--from", "fsdp", "--to", "replicate"], 5, "none.json"),
        ([model, "--mesh", "{dp:4}", "--from", "zero3", "--to", "replicate"], 4, "--from: "),
        ([model, "--mesh", "dp=4", "--from", "fsdp", "--to", "replicate"], 4, "is it {dp:4}?"),
        ([model, "--mesh", "{dp:4}", "--from", f"{folder}/rules.json", "--to", "replicate"], 5, "rules.json"),
        ([model, "--mesh", "{dp:4}", "--from", "fsdp", "--to", "replicate", "--pieces"], 2, "--pieces"),
        ([model, "--mesh", "{dp:4}", "--from", "fsdp", "--to", "replicate", "--svg", "x.svg"], 2, "--svg"),
    ):
        said = reshard.fails("plan", *arguments, code=code)
        assert reason in said, (arguments, said)


if __name__ == "__main__":
    command, examples = Command(sys.argv[1]), os.path.join(sys.argv[2], "examples/models")
    schemes_and_rules(command, examples)
    with tempfile.TemporaryDirectory() as scratch:
        checkpoints(command, examples, scratch)
        mistakes(command, examples, scratch)
    print("plans of models: all as expected")
