"""What reads and writes, words and proteins."""

from __future__ import annotations

import sys
import warnings
from copy import deepcopy
from types import SimpleNamespace
from unittest.mock import patch

import torch
from cases import Case, shaken, to_edit, tokens
from conversion import carried, fused
from stubs import bare


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


def luke(load):
    from transformers import BertConfig, LukeConfig, LukeModel

    sizes = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
    sizes |= {"intermediate_size": 48, "max_position_embeddings": 32, "type_vocab_size": 2, "layer_norm_eps": 1e-6}
    config = LukeConfig(**sizes, entity_vocab_size=20, entity_emb_size=16, pad_token_id=0, bos_token_id=1)
    reference = shaken(LukeModel(config, add_pooling_layer=False))
    bare("daluke")
    port = load("daluke.model").DaLUKE(BertConfig(**sizes), 20, 16)
    data = load("daluke.data")
    names = [
        (r"^embeddings", "word_embeddings"),
        (r"^entity_embeddings\.entity_embeddings", "entity_embeddings.ent_embeds"),
        (r"^entity_embeddings\.entity_embedding_dense", "entity_embeddings.ent_embeds_dense"),
        (r"^entity_embeddings\.position_embeddings", "entity_embeddings.pos_embeds"),
        (r"^entity_embeddings\.token_type_embeddings", "entity_embeddings.typ_embeds"),
        (r"^entity_embeddings\.LayerNorm", "entity_embeddings.lnorm"),
        (r"^encoder\.layer", "encoder"),
        (r"self\.query", "Q_w"),
        (r"self\.e2e_query", "Q_e"),
        (r"self\.(w2e|e2w)_query", r"Q_\1"),
        (r"self\.(key|value)", lambda m: m[1][0].upper()),
        (r"attention\.output", "self_output"),
    ]

    def cut(weights):  # the port adds something there
        return weights | {"entity_embeddings.entity_embedding_dense.bias": torch.zeros(32)}

    ids, entities = tokens(64), tokens(20, length=4)
    read, named = torch.ones_like(ids), torch.ones_like(entities)
    read[1, 9:] = named[1, 3:] = 0
    places = torch.full((2, 4, 3), -1)
    for entity, (first, last) in enumerate(((1, 3), (4, 5), (5, 8), (2, 3))):
        places[:, entity, : last - first] = torch.arange(first, last)
    inputs = {"input_ids": ids, "attention_mask": read, "position_ids": torch.arange(12).expand(2, 12)}
    inputs |= {"entity_ids": entities, "entity_attention_mask": named, "entity_position_ids": places}
    words = data.Words(ids, read, 12, None)
    of = data.Entities(entities, named, 4, None, places)
    example = data.BatchedExamples(words, of)
    return Case(reference, carried(port, reference, names, cut), (), inputs, (example,))


def gated_delta(load):
    from transformers import Qwen3NextConfig
    from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet

    config = Qwen3NextConfig(
        hidden_size=32,
        num_hidden_layers=2,
        layer_types=["linear_attention"] * 2,
        linear_num_value_heads=1,
        linear_num_key_heads=1,
        linear_key_head_dim=16,
        linear_value_head_dim=16,
        linear_conv_kernel_dim=4,
    )
    reference = shaken(torch.nn.Sequential(*(Qwen3NextGatedDeltaNet(config, place) for place in range(2))))
    with torch.no_grad():
        for layer in reference:
            layer.A_log.zero_()  # the port's decay is a sigmoid
    package = load("opengdn.mixer")
    with warnings.catch_warnings():  # that it is slow
        warnings.simplefilter("ignore")
        options = {"head_dim": 16, "norm_eps": 16e-6, "backend": "chunkwise", "chunk_size": 8}
        port = torch.nn.Sequential(*(package.GatedDeltaMixer(32, 1, **options) for _ in range(2)))
    names = [(r"\.norm\.", ".output_norm.")]

    def cut(weights):
        for place in range(2):
            taken = weights.pop(f"{place}.in_proj_qkvz.weight").split(16)
            beta, alpha = weights.pop(f"{place}.in_proj_ba.weight").split(1)
            kernels = weights.pop(f"{place}.conv1d.weight").split(16)
            given = dict(zip(("q_proj", "k_proj", "v_proj", "gate_proj"), taken, strict=True))
            given |= {"beta_proj": beta, "alpha_proj": -alpha}
            given |= dict(zip(("q_conv.conv", "k_conv.conv", "v_conv.conv"), kernels, strict=True))
            weights |= {f"{place}.{name}.weight": each for name, each in given.items()}
            weights |= {f"{place}.{name}.bias": each.new_zeros(len(each)) for name, each in given.items()}
            weights[f"{place}.out_proj.bias"] = torch.zeros(32)
            weights[f"{place}.alpha_proj.bias"] = -weights.pop(f"{place}.dt_bias")
        return weights

    hidden = torch.randn(2, 20, 32, generator=torch.Generator().manual_seed(1))
    return Case(reference, carried(port, reference, names, cut), (hidden,), {}, (hidden,))


class _Offloaded(torch.nn.Module):
    """What a device computes with weights that it is given."""

    def __init__(self, backend, vocabulary, width, *, inner, layers, heads):
        super().__init__()
        backend.fix_recursive_import()
        self.device, self.held, self.heads = backend.TorchDevice("cpu"), backend.TorchTensor.create_from_torch, heads
        self.words, self.places = torch.nn.Embedding(vocabulary, width), torch.nn.Embedding(18, width)
        self.norm = torch.nn.LayerNorm(width)
        linear, norm = torch.nn.Linear, torch.nn.LayerNorm
        kinds = {"q": linear(width, width), "k": linear(width, width), "v": linear(width, width)}
        kinds |= {"out": linear(width, width), "before": norm(width), "after": norm(width)}
        kinds |= {"up": linear(width, inner), "down": linear(inner, width)}
        self.layers = torch.nn.ModuleList(deepcopy(torch.nn.ModuleDict(kinds)) for _ in range(layers))

    def forward(self, ids, read):
        def given(*modules):
            return [self.held(each, self.device) for part in modules for each in (part.weight, part.bias)]

        kept = [False] * 4
        words, places = (self.held(each.weight, self.device) for each in (self.words, self.places))
        read = self.held(read, self.device)
        hidden = self.device.opt_input_embed(self.held(ids, self.device), read, words, places, 1, kept)
        for layer in self.layers:
            attention = given(*(layer[kind] for kind in ("q", "k", "v", "out", "before")))
            hidden = self.device.mha(hidden, read, *attention, self.heads, kept, False, None)[0]  # noqa: FBT003
            hidden = self.device.mlp(hidden, *given(layer["up"], layer["down"], layer["after"]), kept)
        return self.norm(hidden.data)


def opt(load):
    from transformers import OPTConfig, OPTModel

    sizes = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 3, "ffn_dim": 48, "num_attention_heads": 4}
    config = OPTConfig(**sizes, max_position_embeddings=16, word_embed_proj_dim=32, bos_token_id=2, eos_token_id=2)
    reference = shaken(OPTModel(config))
    bare("flexgen")
    port = _Offloaded(load("flexgen.pytorch_backend"), 64, 32, inner=48, layers=3, heads=4)
    names = [
        (r"^decoder\.embed_tokens", "words"),
        (r"^decoder\.embed_positions", "places"),
        (r"^decoder\.final_layer_norm", "norm"),
        (r"^decoder\.", ""),
        (r"self_attn_layer_norm", "before"),
        (r"final_layer_norm", "after"),
        (r"self_attn\.(\w+)_proj", r"\1"),
        (r"fc1", "up"),
        (r"fc2", "down"),
    ]
    ids, read = tokens(64), torch.ones(2, 12, dtype=torch.bool)
    ids[1, 9:], read[1, 9:] = 1, False
    inputs = {"input_ids": ids, "attention_mask": read.long(), "use_cache": False}
    return Case(reference, carried(port, reference, names), (), inputs, (ids, read))


class _Windowed(torch.nn.Module):
    """A layer of an encoder around the attention that looks at neighbours, and at some from everywhere."""

    def __init__(self, package, settings, place):
        super().__init__()
        self.attention = package.LongformerSelfAttention(settings, place)
        self.merge, self.inner, self.outer = torch.nn.Linear(32, 32), torch.nn.LayerNorm(32), torch.nn.LayerNorm(32)
        self.up, self.down = torch.nn.Linear(32, 48), torch.nn.Linear(48, 32)

    def forward(self, hidden, mask):
        hidden = self.inner(self.merge(self.attention(hidden, mask)[0]) + hidden)
        return self.outer(self.down(torch.nn.functional.gelu(self.up(hidden))) + hidden)


class _Long(torch.nn.Module):
    def __init__(self, package, settings):
        super().__init__()
        self.layers = torch.nn.ModuleList(_Windowed(package, settings, place) for place in range(3))

    def forward(self, hidden, mask):
        for layer in self.layers:
            hidden = layer(hidden, mask[:, None, None])
        return hidden


def longformer(load):
    from transformers import LongformerConfig
    from transformers.models.longformer.modeling_longformer import LongformerEncoder

    sizes = {"hidden_size": 32, "num_attention_heads": 4, "attention_probs_dropout_prob": 0.0}
    config = LongformerConfig(
        **sizes, num_hidden_layers=3, intermediate_size=48, attention_window=[4, 8, 4], layer_norm_eps=1e-5
    )
    reference = shaken(LongformerEncoder(config))
    bare("longformer")
    with patch.object(sys.modules["transformers"], "AdamW", torch.optim.AdamW, create=True):  # its trainer's
        package = load("longformer.longformer")
    settings = {"output_attentions": False, "attention_mode": "sliding_chunks", "autoregressive": False}
    port = _Long(package, SimpleNamespace(**sizes, **settings, attention_window=[2, 4, 2]))
    names = [
        (r"^layer", "layers"),
        (r"attention\.self", "attention"),
        (r"attention\.output\.dense", "merge"),
        (r"attention\.output\.LayerNorm", "inner"),
        (r"intermediate\.dense", "up"),
        (r"output\.dense", "down"),
        (r"output\.LayerNorm", "outer"),
    ]
    hidden, mask = torch.randn(2, 24, 32, generator=torch.Generator().manual_seed(1)), torch.zeros(2, 24)
    mask[:, 0], mask[0, 13], mask[1, 20:] = 1e4, 1e4, -1e4
    return Case(reference, carried(port, reference, names), (hidden, mask), {}, (hidden, mask))


PORTS = (
    to_edit("daluke", "daluke", luke),
    to_edit("flexgen-opt", "flexgen", opt, "flexgen.pytorch_backend", "flexgen.compression"),
    to_edit("longformer-chinese", "longformer", longformer),
    to_edit("nano-deepseek-v4", "nano_deepseek_v4", deepseek_v4),
    to_edit("opengdn", "opengdn", gated_delta),
)
