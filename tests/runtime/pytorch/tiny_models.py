"""Models of transformers' own types, random and small enough for a test. Needs transformers."""

import torch
import transformers

VOCABULARY = 128
TINY = dict(hidden_size=64, intermediate_size=96, moe_intermediate_size=48, shared_expert_intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, head_dim=16, vocab_size=VOCABULARY, num_experts=4, num_local_experts=4,
            n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1, n_shared_experts=1, first_k_dense_replace=1,
            q_lora_rank=24, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=16, moe_num_experts=4, moe_k=2,
            mamba_d_state=8, mamba_dt_rank=8, mamba_d_conv=2, mamba_expand=2, num_dense_layers=1, moe_layer_start_index=1,
            moe_layer_end_index=1, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)


def tiny(kind):
    """A random model of a type."""
    known = transformers.CONFIG_MAPPING[kind]().to_dict()
    given = {k: v for k, v in TINY.items() if k in known}
    if "qk_rope_head_dim" in known:
        given.pop("head_dim", None)  # follows from it
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(transformers.CONFIG_MAPPING[kind](**given))
