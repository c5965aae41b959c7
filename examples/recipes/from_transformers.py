#!/usr/bin/env python3
"""The recipe for what transformers does when it loads a Hugging Face model: names, fused and stacked parameters.

usage: from_transformers.py MODEL_DIRECTORY [--reshard COMMAND] > recipe.json

The names are those of the checkpoint in the directory, the rest comes from transformers' own table of conversions
(conversion_mapping.py) and the model's configuration; weights are not read. A conversion that the table does with code of its own
ends it with exit code 3, and names the operation.
"""
import argparse
import json
import subprocess
import sys

import torch
import transformers
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key


class Unsupported(Exception):
    pass


def model_of(path):
    """The model that is in the directory, without weights."""
    config = transformers.AutoConfig.from_pretrained(path)
    architecture = getattr(transformers, (config.architectures or [""])[0], None)
    with torch.device("meta"):
        return architecture(config) if architecture else transformers.AutoModel.from_config(config)


def chunk(op, inputs, targets, model, name):
    (pattern, expressions), = inputs.items()
    return {t: [{"chunk": expressions[0], "dim": op.dim, "chunks": len(targets), "part": i}] for i, t in enumerate(targets)}


def split(op, inputs, targets, model, name):
    (pattern, expressions), = inputs.items()
    sizes = [model.get_parameter(name.replace(targets[0], t)).shape[op.dim] for t in targets]
    return {t: [{"split": expressions[0], "dim": op.dim, "sizes": sizes, "part": i}] for i, t in enumerate(targets)}


def concatenate(op, inputs, targets, model, name):
    parts = [e for expressions in inputs.values() for e in expressions]
    return {targets[0]: [{"concatenate": parts, "dim": op.dim}]}


def stack(op, inputs, targets, model, name):
    made = {p: [{"stack": expressions, "dim": op.dim}] for p, expressions in inputs.items()}
    return {targets[0]: made.popitem()[1]} if len(made) == 1 else made


def transpose(op, inputs, targets, model, name):
    (pattern, expressions), = inputs.items()
    if op.check_dims and model.get_parameter(name).ndim < 2:
        return {targets[0]: expressions}
    if op.check_dims:
        raise Unsupported("Transpose(check_dims=True)")
    return {targets[0]: [{"transpose": expressions[0], "dims": [op.dim0, op.dim1]}]}


def interleave(op, inputs, targets, model, name):
    (pattern, expressions), = inputs.items()
    pairs = [2, -1] if op.inverse else [-1, 2]
    parted = {"unflatten": expressions[0], "dim": op.dim, "sizes": pairs}
    return {targets[0]: [{"flatten": {"transpose": parted, "dims": [op.dim, op.dim + 1]}, "dims": [op.dim, op.dim + 1]}]}


def permute_for_rope(op, inputs, targets, model, name):
    config = getattr(model.config, op.subconfig_key, model.config) if op.subconfig_key else model.config
    heads = getattr(config, "num_attention_heads", 1)
    made = {}
    for pattern, expressions in inputs.items():
        e = expressions[0]
        if op.permute_layer_names is None or any(part in pattern for part in op.permute_layer_names):
            sizes = [heads, 2, -1] if op.inverse else [heads, -1, 2]
            e = {"flatten": {"transpose": {"unflatten": e, "sizes": sizes}, "dims": [1, 2]}, "dims": [0, 2]}
        made[targets[0] if len(inputs) == len(targets) == 1 else pattern] = [e]
    return made


OPERATIONS = {"Chunk": chunk, "Split": split, "Concatenate": concatenate, "MergeModulelist": stack, "Transpose": transpose,
              "Interleave": interleave, "PermuteForRope": permute_for_rope}


def natural(name):
    """Numbers in names by size: transformers lists tensors in this order."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in name.split(".")]


def recipe_of(model, names):
    """The rules for tensors of these names, as transformers groups them."""
    transforms = get_model_conversion_mapping(model)
    renamings = [t for t in transforms if isinstance(t, WeightRenaming)]
    converters = [t for t in transforms if isinstance(t, WeightConverter)]
    converter_of = {pattern: c for c in converters for pattern in c.source_patterns}
    wanted = model.state_dict()
    groups, drop = {}, []  # renamed key -> (converter, pattern -> names)
    for name in sorted(names, key=natural):
        key, pattern = rename_source_key(name, renamings, converters, model.base_model_prefix, wanted)
        if pattern is None and key not in wanted:
            drop.append(name)  # transformers calls it unexpected, and does not load it
            continue
        groups.setdefault(key, (converter_of.get(pattern), {}))[1].setdefault(pattern, []).append(name)
    rules = []
    for key, (converter, inputs) in groups.items():
        if converter is None:
            rules.append({"to": key, "from": inputs[None][0]})
            continue
        made = {p: inputs[p] for p in converter.source_patterns if p in inputs}
        for op in converter.operations:
            kind = type(op).__name__
            if kind not in OPERATIONS:
                raise Unsupported(kind)
            made = OPERATIONS[kind](op, made, converter.target_patterns, model, key)
        for target, expressions in made.items():
            rules.append({"to": key.replace(converter.target_patterns[0], target), "from": expressions[0]})
    escape = lambda name: name.replace("{", "{{").replace("}", "}}")  # noqa: E731

    def escaped(e):
        if isinstance(e, str):
            return escape(e)
        if isinstance(e, list):
            return [escaped(each) for each in e]
        operation = next(iter(e))
        return {**e, operation: escaped(e[operation])}

    return {"schema": "reshard.recipe/1",
            "description": f"{type(model).__name__} as transformers {transformers.__version__} loads it",
            "drop_byte_items": True,
            "tensors": [{"to": escape(rule["to"]), "from": escaped(rule["from"])} for rule in rules], "drop": drop}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--reshard", default="reshard")
    arguments = parser.parse_args()
    listed = subprocess.run([arguments.reshard, "inspect", arguments.model, "--json"], capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        sys.exit(listed.stderr)
    try:
        recipe = recipe_of(model_of(arguments.model), [t["name"] for t in json.loads(listed.stdout)["tensors"]])
    except Unsupported as operation:
        print(f"transformers does this with {operation}, which recipes do not have", file=sys.stderr)
        return 3
    json.dump(recipe, sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
