"""Names and shapes of the tensors of Llama 3 models, as published with them."""

VOCABULARY, HEAD, KV_HEADS = 128256, 128, 8


def weights(layers, hidden, ffn, query_heads):
    """(name, shape) of every tensor, in the order of the files."""
    layer_weights = [
        ("self_attn.q_proj", [query_heads * HEAD, hidden]),
        ("self_attn.k_proj", [KV_HEADS * HEAD, hidden]),
        ("self_attn.v_proj", [KV_HEADS * HEAD, hidden]),
        ("self_attn.o_proj", [hidden, query_heads * HEAD]),
        ("mlp.gate_proj", [ffn, hidden]),
        ("mlp.up_proj", [ffn, hidden]),
        ("mlp.down_proj", [hidden, ffn]),
        ("input_layernorm", [hidden]),
        ("post_attention_layernorm", [hidden]),
    ]
    yield "model.embed_tokens.weight", [VOCABULARY, hidden]
    for layer in range(layers):
        for name, shape in layer_weights:
            yield f"model.layers.{layer}.{name}.weight", shape
    yield "model.norm.weight", [hidden]
    yield "lm_head.weight", [VOCABULARY, hidden]
