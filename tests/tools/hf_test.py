#!/usr/bin/env python3
"""`reshard convert --to hf`: names as the bare model has them, weights alone, files as their loader looks for them; flags that match
nothing; a part of a checkpoint that means all of it.

usage: hf_test.py COMMAND SOURCE_DIR
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

from command import Command
from checkpoint_test import safetensors


def main():
    reshard, fixtures = Command(sys.argv[1]), os.path.join(sys.argv[2], "tests/checkpoint/fixtures")

    def names(path):
        return [t["name"] for t in reshard.json("inspect", path, "--json")["tensors"]]

    def model(path, *words):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        safetensors(path, {name: ("F32", [2], bytes([i] * 8)) for i, name in enumerate(words)})

    def write(path, value):
        with open(path, "w", encoding="utf-8") as file:
            json.dump(value, file)

    with tempfile.TemporaryDirectory() as root:
        at = lambda *parts: os.path.join(root, *parts)  # noqa: E731
        wrapped = ["module._orig_mod.model.model.layers.0._fsdp_wrapped_module.w", "module._orig_mod.model.lm_head.w"]
        model(at("wrapped", "m.safetensors"), *wrapped, "optimizer.state.w.exp_avg")
        bare = ["model.layers.0.w", "lm_head.w"]
        rows = ["--mesh", "{x:2}", "--layout", "[...]"]
        reshard("convert", at("wrapped"), at("dcp"), *rows)

        # No flag is needed, and what has come off is said, in the result, too: verify knows without flags.
        said = reshard("convert", at("dcp"), at("bare"), "--to", "hf", "--verify")
        assert sorted(names(at("bare"))) == sorted(bare), names(at("bare"))
        for line in ('taken off names: _orig_mod. wherever it stands, 2 names\n',
                     'taken off names: _fsdp_wrapped_module. wherever it stands, 1 names\n'.replace("1 names", "1 name"),
                     "taken off names: module. in front, 2 names\n", "taken off names: model. in front, 2 names\n"):
            assert line in said, (line, said)
        assert "there is no config.json; the next program will see names like " in said and "lm_head.w" in said, said
        same = reshard("verify", at("dcp"), at("bare"))
        assert "B was made of weights alone" in same and "_orig_mod." in same and same.endswith(": equal\n"), same
        found = reshard.json("verify", at("dcp"), at("bare"), "--json")
        assert found["equal"] and found["as_made"]["weights_only"] and len(found["as_made"]["taken_off"]) == 4, found
        reshard("verify", at("dcp"), at("bare"), "--weights-only")
        # Two results are compared as they are.
        shutil.copytree(at("bare"), at("copy"))
        assert reshard.json("verify", at("bare"), at("copy"), "--json")["as_made"]["taken_off"] == []
        reshard("verify", at("bare"), at("dcp"), code=1)

        # All of it on request, and what is for hf is for nothing else.
        reshard("convert", at("dcp"), at("kept"), "--to", "hf", "--keep-names")
        assert sorted(names(at("kept"))) == sorted(wrapped), names(at("kept"))
        reshard("verify", at("dcp"), at("kept"))
        done = reshard.json("convert", at("dcp"), at("all"), "--to", "hf", "--with-training-state", "--json")
        assert sorted(names(at("all"))) == sorted([*bare, "optimizer.state.w.exp_avg"]) and done["tensors"] == 3, done
        for flag in ("--keep-names", "--with-training-state"):
            assert "--to hf" in reshard.fails("convert", at("dcp"), at("no"), "--to", "safetensors", flag, code=2)
        reshard("convert", at("dcp"), at("plain"), "--to", "safetensors")
        assert sorted(names(at("plain"))) == sorted([*wrapped, "optimizer.state.w.exp_avg"])

        # What is asked for fits names with what wrappers have added, and without.
        for i, flags in enumerate((["--strip-prefix", "module._orig_mod.model."], ["--strip-prefix", "module."],
                                   ["--rename", "lm_head.w=lm_head.w"], ["--rename", "module.*lm_head.w=lm_head.w"])):
            reshard("convert", at("dcp"), at(f"asked{i}"), "--to", "hf", *flags)
            assert sorted(names(at(f"asked{i}"))) == sorted(bare), (flags, names(at(f"asked{i}")))
            reshard("verify", at("dcp"), at(f"asked{i}"), *flags)

        # Names that become one.
        model(at("two", "m.safetensors"), "a.w", "_orig_mod.a.w")
        error = reshard.fails("convert", at("two"), at("no"), "--to", "hf", code=4)
        assert '"a.w" and "_orig_mod.a.w" would both be called "a.w"' in error and "keep" in error, error
        reshard("convert", at("two"), at("both"), "--to", "hf", "--keep-names")

        # A recipe is written for names without wrappers, or for those that are stored.
        for i, name in enumerate(("model.layers.{l}.w", "module._orig_mod.model.model.layers.{l}._fsdp_wrapped_module.w")):
            write(at("recipe.json"), {"schema": "reshard.recipe/1", "keep": ["*"], "tensors": [{"to": "made.{l}", "from": name}]})
            reshard("convert", at("dcp"), at(f"made{i}"), "--to", "hf", "--recipe", at("recipe.json"))
            assert "made.0" in names(at(f"made{i}")), names(at(f"made{i}"))
        assert sorted(names(at("made0"))) == ["lm_head.w", "made.0"], names(at("made0"))

        # Files are called what their loader looks for.
        model(at("adapter", "x.safetensors"), "base_model.model.a.lora_A.weight", "base_model.model.a.lora_B.weight")
        write(at("adapter", "adapter_config.json"), {})
        reshard("convert", at("adapter"), at("adapted"), "--to", "hf", "--file-size", "8")
        assert sorted(os.listdir(at("adapted"))) == ["adapter_config.json", "adapter_model.safetensors", "reshard.json"]
        reshard("verify", at("adapter"), at("adapted"))
        # What lies beside a file comes along with it; without that, the names say whose they are.
        reshard("convert", at("adapter", "x.safetensors"), at("of_file"), "--to", "hf")
        assert sorted(os.listdir(at("of_file"))) == ["adapter_config.json", "adapter_model.safetensors", "reshard.json"]
        reshard("verify", at("adapter", "x.safetensors"), at("of_file"))
        reshard("convert", at("adapter"), at("bare_adapter"), "--to", "hf", "--no-side-files")
        assert sorted(os.listdir(at("bare_adapter"))) == ["adapter_model.safetensors", "reshard.json"]
        model(at("unet", "x.safetensors"), "a.w", "b.w")
        write(at("unet", "config.json"), {"_class_name": "UNet2DModel", "_diffusers_version": "0.30.0"})
        reshard("convert", at("unet"), at("unets"), "--to", "hf", "--file-size", "8")
        assert sorted(os.listdir(at("unets"))) == [
            "config.json", "diffusion_pytorch_model-00001-of-00002.safetensors", "diffusion_pytorch_model-00002-of-00002.safetensors",
            "diffusion_pytorch_model.safetensors.index.json", "reshard.json"]
        reshard("verify", at("unet"), at("unets"))
        write(at("unet", "config.json"), {"model_type": "llama"})
        assert "next program" not in reshard("convert", at("unet"), at("llama"), "--to", "hf")
        assert "model.safetensors" in os.listdir(at("llama"))

        # Megatron's names are not a loader's.
        megatron = os.path.join(fixtures, "frameworks", "megatron")
        if os.path.isdir(megatron):
            assert "warning: " in reshard("convert", megatron, at("megatron"), "--to", "hf")
        model(at("core", "m.safetensors"), "decoder.layers.self_attention.linear_qkv.weight")
        assert "llama_to_megatron.py" in reshard("convert", at("core"), at("cores"), "--to", "hf")
        assert reshard.json("convert", at("core"), at("cores"), "--to", "hf", "--overwrite", "--json")["warnings"]

        # What matches nothing.
        model(at("m.safetensors"), "model.embed.weight", "model.layers.0.wq.weight")
        for flags, near in ((["--include", "modl.*"], "model.embed.weight"), (["--exclude", "*.wk.weight"], "model.layers.0.wq.weight"),
                            (["--strip-prefix", "modle."], "model.embed.weight"), (["--rename", "model.emebd.weight=x"], "model.embed.weight"),
                            (["--dtype", "*.wk.weight=bf16"], "model.layers.0.wq.weight"), (["--side-file", "*.txt"], None)):
            error = reshard.fails("convert", at("m.safetensors"), at("no"), "--to", "safetensors", *flags, code=4)
            assert "matches none of " in error and (near is None or f'the nearest is "{near}"' in error), error
            assert ("of 2 names" in error) == (near is not None), error
            if "--include" not in flags:
                reshard("convert", at("m.safetensors"), at("may"), "--to", "safetensors", "--allow-unmatched", "--overwrite", *flags)
        assert "matches none of 2 names" in reshard.fails("verify", at("m.safetensors"), at("may"), "--exclude", "x", code=4)
        assert "matches none of 2 names" in reshard.fails("fingerprint", at("m.safetensors"), "--exclude", "x", code=4)
        reshard("fingerprint", at("m.safetensors"), "--exclude", "x", "--allow-unmatched")
        # A recipe's own patterns are written for many checkpoints.
        write(at("recipe.json"), {"schema": "reshard.recipe/1", "exclude": ["*.bias"], "strip_prefix": "net."})
        reshard("convert", at("m.safetensors"), at("own"), "--to", "safetensors", "--recipe", at("recipe.json"))

        # A part means the whole, and that is said.
        reshard("convert", at("m.safetensors"), at("parts"), "--to", "hf", "--file-size", "8")
        shards = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
        for part in ("model.safetensors.index.json", "reshard.json", *shards):
            done = subprocess.run([reshard.path, "verify", at("m.safetensors"), at("parts", part)], capture_output=True, text=True,
                                  timeout=60, check=False)
            assert done.returncode == 0 and f"{part} is a part of the checkpoint in " in done.stderr, done
        os.remove(at("parts", "model.safetensors.index.json"))
        os.remove(at("parts", "reshard.json"))  # which has the size of every file
        os.remove(at("parts", shards[0]))
        error = reshard.fails("convert", at("parts", shards[1]), at("rest"), "--to", "hf", code=4)
        assert f"1 of 2 parts are here; missing: {shards[0]}" in error and "--partial" in error, error
        reshard("convert", at("parts", shards[1]), at("rest"), "--to", "hf", "--partial")
    print("hf: all as it should be")


if __name__ == "__main__":
    main()
