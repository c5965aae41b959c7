#!/usr/bin/env python3
"""The distributed optimizer of Megatron-core itself, whose main parameters and moments are saved, loaded under another
parallelism and moved where they are."""

import os
import sys
import tempfile
import unittest
import warnings

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
warnings.showwarning = lambda *_, **__: None  # Megatron has many

import torch
import torch.distributed as dist

import gloo
from megatron_on_cpu import without_a_gpu

RANKS, LAYERS, VOCABULARY = 4, 2, 96
STATES = ("param", "exp_avg", "exp_avg_sq")


def optimizer_without_a_gpu():
    """What its optimizer asks of CUDA besides."""
    make, kind = torch.tensor, torch.Tensor.type
    torch.tensor = lambda *given, device=None, **options: make(*given, **options)
    torch.Tensor.type = lambda t, *given, **options: (
        kind(t, *given, **options) if given or options else kind(t).replace("torch.", "torch.cuda.")
    )


def trainer(tp, pp=1, *, gated=True, experts=None, ep=1, distributed=True):
    """A model of this parallelism over all ranks, and its optimizer."""
    from megatron.core import parallel_state
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.transformer import TransformerConfig

    if parallel_state.model_parallel_is_initialized():
        parallel_state.destroy_model_parallel()
    parallel_state.initialize_model_parallel(tp, pp, expert_model_parallel_size=ep)
    config = TransformerConfig(
        num_layers=LAYERS, hidden_size=32, ffn_hidden_size=48, num_attention_heads=8, num_query_groups=4, num_moe_experts=experts,
        use_cpu_initialization=True, gradient_accumulation_fusion=False, masked_softmax_fusion=False, apply_rope_fusion=False,
        bias_dropout_fusion=False, tensor_model_parallel_size=tp, pipeline_model_parallel_size=pp, expert_model_parallel_size=ep,
        pipeline_dtype=torch.bfloat16, normalization="RMSNorm", add_bias_linear=not gated, gated_linear_unit=gated, bf16=True,
        params_dtype=torch.bfloat16, **({"activation_func": torch.nn.functional.silu} if gated else {}))  # fmt: skip
    spec = get_gpt_layer_local_spec(experts, normalization="RMSNorm")
    model = GPTModel(
        config, spec, vocab_size=VOCABULARY, max_sequence_length=64, pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(), position_embedding_type="rope",
        share_embeddings_and_output_weights=False).bfloat16()  # fmt: skip
    of_buffers = DistributedDataParallelConfig(
        use_distributed_optimizer=distributed, grad_reduce_in_fp32=True, overlap_grad_reduce=True, bucket_size=3000)  # fmt: skip
    wrapped = DistributedDataParallel(config, of_buffers, model)
    settings = OptimizerConfig(optimizer="adam", lr=0.1, bf16=True, use_distributed_optimizer=distributed)
    return wrapped, get_megatron_optimizer(settings, [wrapped])


def step(model, optimizer):
    """One step on gradients that are the same on the ranks that replicate a parameter."""
    from megatron.core import parallel_state

    model.zero_grad_buffer()
    torch.manual_seed(7 + parallel_state.get_data_parallel_rank())
    for parameter in model.parameters():
        parameter.main_grad.normal_()
    for group in model.bucket_groups:
        group.start_grad_sync()
        group.finish_grad_sync()
    optimizer.step()


def as_megatron_gathers(optimizer, model):
    """Of each state the whole parameters of this tensor-parallel rank, by name in this stage; None where Megatron does not
    gather them."""
    [one] = optimizer.chained_optimizers
    gathered = one.get_parameter_state_dp_zero()
    if one.data_parallel_group.rank() != 0:
        return None
    names = {parameter: name.removeprefix("module.") for name, parameter in model.named_parameters()}
    found = {state: {} for state in STATES}
    for index, buffer in enumerate(one.buffers):
        [whole] = gathered[index].values()
        for parameter, (start, end, bucket) in buffer.param_index_map.items():
            before = sum(other.numel_unpadded for other in buffer.buckets[:bucket])  # which it leaves no padding between
            at = start - buffer.buckets[bucket].offset + before
            for state in STATES:
                found[state][names[parameter]] = whole[state][at : at + end - start].view(parameter.shape)
    return found


def check(model, optimizer, reshard):
    """Every state of every parameter is what Megatron itself gathers."""
    want = as_megatron_gathers(optimizer, model)
    for state in STATES:
        fragments = reshard.megatron_fragments(optimizer, model, state)
        for name, fragment in fragments.items():
            dims = fragment.layout[fragment.layout.index(">(") + 2 : -2]
            copied = reshard.redistribute(fragment, f"[{dims}]")
            if want is not None:
                local = copied.local if isinstance(copied, reshard.Fragment) else copied.to_local()
                assert torch.equal(local, want[state][name]), f"{state} of {name}"
        if want is not None:
            assert set(fragments) == set(want[state]), set(fragments) ^ set(want[state])


def start():
    import reshard

    without_a_gpu()
    optimizer_without_a_gpu()
    return reshard


def other_parallelism(rank, world, folder):
    """Saved with tensor parallelism of 2, loaded with 1 and with 4: Megatron's own gather finds equal tensors."""
    reshard = start()
    model, optimizer = trainer(2)
    [one] = optimizer.chained_optimizers
    assert [len(buffer.buckets) > 2 for buffer in one.buffers] == [True], "several buckets"
    try:
        reshard.megatron_fragments(optimizer, model, "exp_avg")
        raise AssertionError("a state before the first step")
    except reshard.InputError as error:
        assert 'keeps no "exp_avg"' in str(error), error
    step(model, optimizer)
    check(model, optimizer, reshard)
    kept = {state: reshard.megatron_fragments(optimizer, model, state) for state in STATES}
    assert any(part.local.numel() == 0 for part in kept["param"].values()), "a parameter that only others have"
    for state, fragments in kept.items():
        reshard.save(f"{folder}/{state}", fragments)
    whole = {}
    for state in STATES:
        whole[state] = {name: torch.zeros(part.shape) for name, part in kept[state].items()}
        reshard.load(f"{folder}/{state}", whole[state])
    # Gate and up are cut each on its own: rank 0 of 2 has the first half of either.
    fc1 = whole["param"]["decoder.layers.1.mlp.linear_fc1.weight"]
    want = as_megatron_gathers(optimizer, model)
    if rank == 0:
        mine = want["param"]["decoder.layers.1.mlp.linear_fc1.weight"]
        assert torch.equal(mine, torch.cat([fc1[:24], fc1[48:72]])), "gate and up"
    for tp in (1, 4):
        model, optimizer = trainer(tp)
        step(model, optimizer)
        for state in STATES:
            fragments = reshard.megatron_fragments(optimizer, model, state)
            assert {name: part.shape for name, part in fragments.items()} == {name: part.shape for name, part in whole[state].items()}
            reshard.load(f"{folder}/{state}", fragments)
        check(model, optimizer, reshard)
        want = as_megatron_gathers(optimizer, model)
        if tp == 1 and rank == 0:
            for state in STATES:
                for name, tensor in want[state].items():
                    assert torch.equal(tensor, whole[state][name]), f"{state} of {name}"
        # And back to all ranks, from the memory of the optimizer.
        for name, part in reshard.megatron_fragments(optimizer, model).items():
            everywhere = reshard.redistribute(part, "[...]")
            assert torch.equal(everywhere.full_tensor(), whole["param"][name]), name


def stages(rank, world, folder):
    """Layers have their numbers in the whole model; each stage is saved by its own ranks."""
    from megatron.core import parallel_state

    reshard = start()
    model, optimizer = trainer(1, 2, gated=False)
    step(model, optimizer)
    fragments = reshard.megatron_fragments(optimizer, [model])
    stage = parallel_state.get_pipeline_model_parallel_rank()
    assert "decoder.layers.%d.mlp.linear_fc1.bias" % stage in fragments, fragments.keys()
    assert not any(".layers.%d." % (1 - stage) in name for name in fragments), fragments.keys()
    group = parallel_state.get_tensor_and_data_parallel_group()
    reshard.save(f"{folder}/stage{stage}", fragments, group=group)
    dist.barrier()
    whole = {name: torch.zeros(part.shape) for name, part in fragments.items()}
    reshard.load(f"{folder}/stage{stage}", whole, group=group)
    want = as_megatron_gathers(optimizer, model)
    if want is not None:
        for name, tensor in want["param"].items():
            assert torch.equal(whole[name.replace("layers.0.", f"layers.{stage}.")], tensor), name


def refused(rank, world):
    reshard = start()

    def says(text, *arguments):
        try:
            reshard.megatron_fragments(*arguments)
        except reshard.InputError as error:
            assert text in str(error), error
        else:
            raise AssertionError(f"not refused: {text}")

    model, optimizer = trainer(1, distributed=False)
    says("is not Megatron's DistributedOptimizer", optimizer, model)
    model, optimizer = trainer(1, experts=4, ep=2)
    says("with expert parallelism", optimizer, model)
    model, optimizer = trainer(1, experts=4)
    names = reshard.megatron_fragments(optimizer, model)
    assert "decoder.layers.1.mlp.experts.local_experts.3.linear_fc1.weight" in names, names.keys()
    says("that the model lacks", optimizer, torch.nn.Linear(2, 2))
    one = optimizer.chained_optimizers[0]
    one.config.use_precision_aware_optimizer = True
    says("keeps scaled states", optimizer, model)
    one.ddp_config.num_distributed_optimizer_instances = 2
    says("several instances", optimizer, model)
    one.ddp_config.use_custom_fsdp = True
    says("use_custom_fsdp", optimizer, model)


class Megatron(unittest.TestCase):
    def test_other_parallelism(self):
        with tempfile.TemporaryDirectory() as folder:
            gloo.values(gloo.run_ranks(RANKS, other_parallelism, folder, timeout=150))

    def test_pipeline_stages(self):
        with tempfile.TemporaryDirectory() as folder:
            gloo.values(gloo.run_ranks(RANKS, stages, folder, timeout=150))

    def test_what_is_refused(self):
        gloo.values(gloo.run_ranks(RANKS, refused, timeout=150))


if __name__ == "__main__":
    gloo.load_library()
    unittest.main()
