#!/usr/bin/env python3
"""The weights of transformers' own Mixtral, random and tiny, trained by one job under FSDP2 and tensor parallelism, in the
tensors of another that serves it as engines do: q, k and v fused, gate and up by rank, two ranks. The logits of both are
equal after every step, and each server receives what it holds and no byte more; also where it holds bf16 of f32.

Needs transformers beside PyTorch.
"""

import unittest

import torch
import torch.distributed as dist
import transformers
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, zeros
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional as F
from transformers.models.mixtral.modeling_mixtral import MixtralRotaryEmbedding, apply_rotary_pos_emb

import gloo
import jobs

STEPS, TP = 5, 2
CONFIG = dict(
    hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
    vocab_size=128, num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=64,
)  # fmt: skip
RECIPE = {
    "schema": "reshard.recipe/1",
    "strip_prefix": "model.",
    "tensors": [
        {
            "to": "{p*}.qkv",
            "from": {"interleave": [f"{{p*}}.self_attn.{name}_proj.weight" for name in "qkv"], "blocks": TP},
        },
        {
            "to": "{p*}.gate_up",
            "from": {
                "interleave": [
                    {"chunk": "{p*}.mlp.experts.gate_up_proj", "dim": 1, "chunks": 2, "part": part} for part in (0, 1)
                ],
                "dim": 1,
                "blocks": TP,
            },
        },
        {"to": "{p*}.down", "from": "{p*}.mlp.experts.down_proj"},
    ],
    "keep": ["*"],
}


def tokens_of(step):
    return torch.randint(CONFIG["vocab_size"], (4, 16), generator=torch.Generator().manual_seed(step))


def rounded(model, dtype):
    """The same model on this rank alone, of weights that were cast to the dtype."""
    whole = {name: tensor.full_tensor().to(dtype).float() for name, tensor in model.state_dict().items()}
    alone = transformers.MixtralForCausalLM(model.config)
    alone.load_state_dict(whole)
    return alone


def train(member, dtype):
    """Logits after each step, of the weights as they are served."""
    import reshard

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(1)
    model = transformers.MixtralForCausalLM(transformers.MixtralConfig(**CONFIG))
    plan = {f"self_attn.{name}_proj": ColwiseParallel() for name in "qkv"} | {"self_attn.o_proj": RowwiseParallel()}
    for layer in model.model.layers:
        parallelize_module(layer, mesh["tp"], plan)
        fully_shard(layer, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    said = []
    with member.join() as joined:
        refit = reshard.Refit(source=model, group=joined)
        for step in range(STEPS):
            gloo.note(f"step {step}")
            tokens = tokens_of(step)
            loss = model(input_ids=tokens, labels=tokens).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            refit()
            with torch.no_grad():
                as_served = model if dtype == torch.float32 else rounded(model, dtype)
                said.append(as_served(input_ids=tokens).logits.clone())
    return said


def serve(member, dtype):
    """Logits after each refit, and the bytes received and their bound."""
    import reshard

    config = transformers.MixtralConfig(**CONFIG)
    mesh = init_device_mesh("cpu", (TP,), mesh_dim_names=("tp",))

    def sharded(dim, *shape):
        return zeros(*shape, device_mesh=mesh, placements=[Shard(dim)], dtype=dtype)

    def whole(*shape):
        return torch.zeros(*shape, dtype=dtype)

    width, hidden, experts = config.hidden_size, config.intermediate_size, config.num_local_experts
    heads, groups = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
    weights = {"embed_tokens.weight": whole(config.vocab_size, width), "norm.weight": whole(width)}
    weights["lm_head.weight"] = sharded(0, config.vocab_size, width)
    for i in range(config.num_hidden_layers):
        weights |= {
            f"layers.{i}.input_layernorm.weight": whole(width),
            f"layers.{i}.post_attention_layernorm.weight": whole(width),
            f"layers.{i}.mlp.gate.weight": whole(experts, width),
            f"layers.{i}.qkv": sharded(0, heads + 2 * groups, width),
            f"layers.{i}.self_attn.o_proj.weight": sharded(1, width, heads),
            f"layers.{i}.gate_up": sharded(1, experts, 2 * hidden, width),
            f"layers.{i}.down": sharded(2, experts, width, hidden),
        }
    local = {name: tensor if type(tensor) is torch.Tensor else tensor.to_local() for name, tensor in weights.items()}
    rotary = MixtralRotaryEmbedding(config)

    def summed(x):
        dist.all_reduce(x)
        return x

    def logits_of(tokens):
        values = {name: tensor.float() for name, tensor in local.items()}
        x = values["embed_tokens.weight"][tokens]
        cos, sin = rotary(x, torch.arange(tokens.shape[1])[None])
        for i in range(config.num_hidden_layers):
            w = {name.removeprefix(f"layers.{i}."): tensor for name, tensor in values.items()}
            y = F.rms_norm(x, (width,), w["input_layernorm.weight"], config.rms_norm_eps)
            parts = F.linear(y, w["qkv"]).split([heads // TP, groups // TP, groups // TP], -1)
            q, k, v = (part.unflatten(-1, (-1, config.head_dim)).transpose(1, 2) for part in parts)
            q, k = apply_rotary_pos_emb(q, k, cos, sin)
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2).flatten(2)
            x = x + summed(F.linear(seen, w["self_attn.o_proj.weight"]))
            y = F.rms_norm(x, (width,), w["post_attention_layernorm.weight"], config.rms_norm_eps)
            scores = F.linear(y, w["mlp.gate.weight"]).softmax(-1)
            best, which = scores.topk(config.num_experts_per_tok, -1)
            share = torch.zeros_like(scores).scatter(-1, which, best / best.sum(-1, keepdim=True))
            gate, up = torch.einsum("bsw,ehw->bseh", y, w["gate_up"]).chunk(2, -1)
            x = x + summed(torch.einsum("bseh,ewh,bse->bsw", F.silu(gate) * up, w["down"], share))
        columns = F.linear(F.rms_norm(x, (width,), values["norm.weight"], config.rms_norm_eps), values["lm_head.weight"])
        parts = [torch.empty_like(columns) for _ in range(TP)]
        dist.all_gather(parts, columns)
        return torch.cat(parts, -1)

    said = []
    with member.join() as joined:
        refit = reshard.Refit(target=weights, recipe=RECIPE, group=joined)
        for step in range(STEPS):
            gloo.note(f"step {step}")
            refit()
            timings = refit.timings()
            held = sum(tensor.nbytes for tensor in local.values())
            said.append((logits_of(tokens_of(step)), timings["received_bytes"], timings["received_bytes_bound"], held))
    return said


class RefitMixtralTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        gloo.load_library()

    def test_equal_logits(self):
        for dtype in (torch.float32, torch.bfloat16):
            with self.subTest(dtype=dtype):
                self.check(dtype)

    def check(self, dtype):
        outcomes = gloo.values(jobs.run_jobs([4, TP], lambda member, _: (serve if member.job else train)(member, dtype), None))
        wanted = outcomes[0]
        for said in outcomes[4:]:
            for step, (logits, received, bound, held) in enumerate(said):
                with self.subTest(step=step):
                    torch.testing.assert_close(logits, wanted[step], atol=1e-5, rtol=1e-5)
                    self.assertEqual(received, bound)
                    self.assertEqual(received, held)
        moved = (wanted[-1] - wanted[0]).abs().max()
        self.assertGreater(moved, 0.1)  # it has learnt, so that what was there before would not do


if __name__ == "__main__":
    unittest.main()
