"""What reads and writes, words and proteins."""

from __future__ import annotations

import torch
from cases import Case, shaken, to_edit, tokens
from conversion import carried, fused


class _Plain(torch.nn.Module):
    """Layers without what connects their streams, which the two compute in other ways."""

    def __init__(self, model, mask=None):
        super().__init__()
        self.embed, self.layers, self.mask = model.embed_tokens, model.layers, mask
        self.rotary = getattr(model, "rotary_emb", None)
        for layer in self.layers:
            del layer.attn_hc, layer.ffn_hc


class _PlainReference(_Plain):
    def forward(self, ids, places):
        hidden = self.embed(ids)
        turns = {kind: self.rotary(hidden, position_ids=places, layer_type=kind) for kind in ("main", "compress")}
        for layer in self.layers:
            normal = layer.input_layernorm(hidden)
            hidden = (
                hidden
                + layer.self_attn(normal, position_embeddings=turns, position_ids=places, attention_mask=self.mask)[0]
            )
            hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden), input_ids=ids)
        return hidden


class _PlainPort(_Plain):
    def forward(self, ids, places):
        hidden = self.embed(ids)
        for layer in self.layers:
            hidden = hidden + layer.self_attn(layer.attn_norm(hidden), places)
            hidden = hidden + layer.moe(layer.ffn_norm(hidden), ids)[0]
        return hidden


def deepseek_v4(load):
    from transformers import DeepseekV4Config, DeepseekV4Model

    sizes = {"vocab_size": 64, "hidden_size": 32, "moe_intermediate_size": 24, "num_hidden_layers": 3}
    sizes |= {"num_attention_heads": 4, "head_dim": 16, "q_lora_rank": 16, "n_routed_experts": 6}
    sizes |= {"num_experts_per_tok": 2, "rope_theta": 1e4, "compress_rope_theta": 1e4, "partial_rotary_factor": 0.5}
    sizes |= {"compress_rates": {"compressed_sparse_attention": 2, "heavily_compressed_attention": 6}}
    sizes |= {"layer_types": ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"]}
    sizes |= {"mlp_layer_types": ["hash_moe", "moe", "moe"], "sliding_window": 8, "o_groups": 2, "o_lora_rank": 8}
    sizes |= {"index_n_heads": 2, "index_head_dim": 8, "index_topk": 4, "hc_mult": 2, "swiglu_limit": 1.0}
    reference = shaken(DeepseekV4Model(DeepseekV4Config(**sizes, attn_implementation="eager")))
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        reference.layers[0].mlp.gate.tid2eid.copy_(torch.randint(0, 6, (64, 2), generator=generator))
        for layer in reference.layers:
            for weight in layer.mlp.experts.parameters():  # one expert's size, not that of all
                weight.mul_(weight.shape[1] ** 0.5)
    for layer in reference.layers[1:]:
        layer.mlp.gate.e_score_correction_bias.copy_(torch.randn(6, generator=generator) * 0.1)
    package = load("nano_deepseek_v4.modeling")
    port = package.DeepSeekV4Model(load("nano_deepseek_v4.config").DeepSeekV4Config(**sizes))
    names = [
        (r"input_layernorm", "attn_norm"),
        (r"post_attention_layernorm", "ffn_norm"),
        (r"self_attn\.sinks", "self_attn.attention_sink"),
        (r"layers\.1\.self_attn\.compressor", "layers.1.self_attn.csa"),
        (r"layers\.2\.self_attn\.compressor", "layers.2.self_attn.hca"),
        (r"(csa|hca|indexer)\.kv_norm", r"\1.norm"),
        (r"indexer\.scorer\.", "indexer."),
        (r"mlp\.gate\.(tid2eid|e_score)", r"moe.\1"),
        (r"mlp\.gate", "moe.gate"),
        (r"mlp\.shared_experts", "moe.shared_experts.0"),
        (r"mlp\.experts", "moe.experts"),
    ]

    def cut(weights):
        for name in [name for name in weights if name.endswith("o_a_proj.weight")]:
            weights[name] = weights[name].unflatten(0, (2, 8))
        for name in [name for name in weights if ".mlp.experts." in name]:
            of, _, kind = name.rpartition(".")
            weights |= {f"{of}.{n}.{kind}.weight": each for n, each in enumerate(weights.pop(name))}
        return fused(weights, ["shared_experts.gate_proj", "shared_experts.up_proj"], "shared_experts.gate_up_proj")

    ids, places = tokens(64, length=20), torch.arange(20).expand(2, 20)
    apart = places[0][:, None] - places[0]
    mask = torch.zeros(2, 1, 20, 20).masked_fill((apart < 0) | (apart >= 8), torch.finfo(torch.float32).min)
    del reference.hc_head, reference.norm, port.hc_head, port.norm
    reference, port = _PlainReference(reference, mask), _PlainPort(port)
    return Case(reference, carried(port, reference, names, cut), (ids, places), {}, (ids, places))


PORTS = (to_edit("nano-deepseek-v4", "nano_deepseek_v4", deepseek_v4),)
