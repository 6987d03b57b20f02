"""What reads and writes words."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import patch

import torch
from cases import Case, shaken, tokens
from conversion import carried, fused, picture
from stubs import bare


class _Ended(torch.nn.Sequential):
    """A module, and what its output goes through."""

    def forward(self, *inputs):
        return self[1](self[0](*inputs))


def prelayernorm(load):
    from transformers import RobertaPreLayerNormConfig, RobertaPreLayerNormModel

    config = RobertaPreLayerNormConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=128,
        hidden_act="gelu_new",
        max_position_embeddings=512,
        type_vocab_size=3,
        pad_token_id=0,
    )
    reference = shaken(RobertaPreLayerNormModel(config, add_pooling_layer=False))
    package = load("bert_pytorch.model")
    norm = load("bert_pytorch.model.utils").LayerNorm
    encoder = package.BERT(64, hidden=32, n_layers=3, attn_heads=4)
    encoder.embedding.dropout = norm(32)
    port = _Ended(encoder, norm(32))
    names = [
        (r"^embeddings\.(\w+?)_embeddings\.weight", r"0.embedding.\1.weight"),
        (r"word|token_type", lambda m: {"word": "token", "token_type": "segment"}[m[0]]),
        (r"position\.weight", "position.pe"),
        (r"^embeddings\.LayerNorm", "0.embedding.dropout"),
        (r"^LayerNorm", "1"),
        (r"^encoder\.layer", "0.transformer_blocks"),
        (r"attention\.self\.(\w+)", lambda m: f"attention.linear_layers.{['query', 'key', 'value'].index(m[1])}"),
        (r"attention\.output\.dense", "attention.output_linear"),
        (r"attention\.LayerNorm", "input_sublayer.norm"),
        (r"intermediate\.LayerNorm", "output_sublayer.norm"),
        (r"intermediate\.dense", "feed_forward.w_1"),
        (r"output\.dense", "feed_forward.w_2"),
        (r"(norm|dropout|^1)\.weight", r"\1.a_2"),
        (r"(norm|dropout|^1)\.bias", r"\1.b_2"),
    ]

    def cut(weights):  # the port divides by the deviation of a sample
        weights = {name: each * (32 / 31) ** 0.5 if "Norm.weight" in name else each for name, each in weights.items()}
        weights["embeddings.position_embeddings.weight"] = weights["embeddings.position_embeddings.weight"][None]
        return weights

    ids = tokens(64)
    ids[1, 8:] = 0
    kinds, mask = torch.arange(12).expand(2, 12) // 5, ids != 0
    places = torch.arange(12).expand(2, 12)
    inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": kinds, "position_ids": places}
    return Case(reference, carried(port, reference, names, cut), (), inputs, (ids, kinds))


def bigcode(load):
    from transformers import GPTBigCodeConfig, GPTBigCodeForCausalLM

    sizes = {"vocab_size": 64, "n_positions": 32, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_inner": 48}
    sizes |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False}
    reference = shaken(GPTBigCodeForCausalLM(GPTBigCodeConfig(**sizes)))
    package = load("instructlab.dolomite.hf_models")
    settings = load("instructlab.dolomite.hf_models.config").CommonConfig(**sizes, attn_implementation="eager")
    port = package.GPTDolomiteForCausalLM(settings)
    ids, mask = tokens(64), torch.ones(2, 12, dtype=torch.long)
    mask[1, 8:] = 0
    inputs = {"input_ids": ids, "attention_mask": mask, "position_ids": torch.arange(12).expand(2, 12)}
    inputs |= {"use_cache": False}
    port = carried(port, reference, [(r"^", "")])
    return Case(reference, port, (), inputs, (), inputs)


def granite(load):
    from transformers import GraniteConfig, GraniteModel

    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5}
    sizes |= {"bos_token_id": 1, "eos_token_id": 2}
    long = {"long_factor": [1.0, 1.5, 2.5, 4.0], "short_factor": [1.0] * 4, "original_max_position_embeddings": 8}
    turns = {"rope_type": "longrope", "rope_theta": 1e4, "factor": 8.0}
    config = GraniteConfig(
        **sizes,
        rope_parameters=turns | long,
        attention_multiplier=8**-0.5,
        residual_multiplier=1.4 / 3**0.5,
        pad_token_id=0,
    )
    reference = shaken(GraniteModel(config))
    bare("voxcpm", "voxcpm.modules")
    package = load("voxcpm.modules.minicpm4")
    settings = load("voxcpm.modules.minicpm4.config").MiniCPM4Config(
        **sizes,
        rope_scaling=long | {"type": "longrope"},
        scale_emb=1,
        dim_model_base=32,
        scale_depth=1.4,
        rope_theta=1e4,
    )
    port = carried(package.MiniCPMModel(settings), reference, [(r"^", "")])
    embedded = torch.randn(2, 12, 32, generator=torch.Generator().manual_seed(1))
    return Case(reference, port, (), {"inputs_embeds": embedded, "use_cache": False}, (embedded,))


class _Approximate(torch.nn.Module):
    """A layer of an encoder that normalizes what comes out."""

    def __init__(self, package, width):
        super().__init__()
        self.attention = package.NystromAttention(width, dim_head=8, heads=4, num_landmarks=8)
        self.inner, self.outer = torch.nn.LayerNorm(width, eps=1e-5), torch.nn.LayerNorm(width, eps=1e-5)
        self.feed_forward = package.FeedForward(width, mult=2)

    def forward(self, hidden):
        hidden = self.inner(self.attention(hidden) + hidden)
        return self.outer(self.feed_forward(hidden) + hidden)


def nystromformer(load):
    from transformers import NystromformerConfig
    from transformers.models.nystromformer.modeling_nystromformer import NystromformerEncoder

    config = NystromformerConfig(
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=64,
        hidden_act="gelu",
        segment_means_seq_len=40,
        num_landmarks=8,
        conv_kernel_size=33,
    )
    reference = shaken(NystromformerEncoder(config))
    with torch.no_grad():
        for layer in reference.layer:  # the port has no biases there
            for part in (layer.attention.self.query, layer.attention.self.key, layer.attention.self.value):
                part.bias.zero_()
    package = load("nystrom_attention.nystrom_attention")
    port = torch.nn.Sequential(*(_Approximate(package, 32) for _ in range(3)))
    names = [
        (r"^layer\.", ""),
        (r"attention\.self\.conv", "attention.res_conv"),
        (r"attention\.self\.to_qkv", "attention.to_qkv"),
        (r"attention\.output\.dense", "attention.to_out.0"),
        (r"attention\.output\.LayerNorm", "inner"),
        (r"intermediate\.dense", "feed_forward.net.0"),
        (r"output\.dense", "feed_forward.net.3"),
        (r"output\.LayerNorm", "outer"),
    ]

    def cut(weights):
        return fused(weights, [f"self.{kind}" for kind in ("query", "key", "value")], "self.to_qkv")

    hidden = torch.randn(2, 40, 32, generator=torch.Generator().manual_seed(1))
    return Case(reference, carried(port, reference, names, cut), (hidden,), {}, (hidden,))


def clip(load):
    from transformers import CLIPConfig, CLIPModel

    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    words = sizes | {"vocab_size": 64, "max_position_embeddings": 16, "eos_token_id": 63}
    pictures = sizes | {"image_size": 16, "patch_size": 4}
    special = {"pad_token_id": 0, "bos_token_id": 1}
    config = CLIPConfig(text_config=words | special, vision_config=pictures, projection_dim=24)
    reference = shaken(CLIPModel(config))
    package = load("nanoclip")
    settings = package.CLIPConfig(package.CLIPTextConfig(**words), package.CLIPVisionConfig(**pictures), 24)
    ids = tokens(63)
    ids[0, 11], ids[1, 8], ids[1, 9:] = 63, 63, 0
    inputs = {"input_ids": ids, "pixel_values": picture(16)}
    port = carried(package.CLIPModel(settings), reference, [(r"^", "")])
    return Case(reference, port, (), inputs, (), inputs, arranged=lambda out: out["logits_per_image"])


def _as_it_is(function=None, **options):
    return function or (lambda function: function)


def minimax_m2(load):
    from transformers import MiniMaxM2Config, MiniMaxM2ForCausalLM

    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 24, "num_hidden_layers": 3, "head_dim": 8}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 6, "num_experts_per_tok": 2}
    sizes |= {"rms_norm_eps": 1e-6, "max_position_embeddings": 64, "tie_word_embeddings": False}
    turns = {"rope_theta": 1e4, "rope_type": "default", "partial_rotary_factor": 0.5}
    config = MiniMaxM2Config(**sizes, rope_parameters=turns, bos_token_id=1, eos_token_id=2)
    reference = shaken(MiniMaxM2ForCausalLM(config))
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for layer in reference.model.layers:
            layer.mlp.e_score_correction_bias.copy_(torch.randn(6, generator=generator) * 0.1)
            for weight in layer.mlp.experts.parameters():  # one expert's size, not that of all
                weight.mul_(weight.shape[1] ** 0.5)
    bare("nemo_automodel", "nemo_automodel.components", "nemo_automodel.components.models")
    settings = SimpleNamespace(**sizes, rope_parameters=turns, use_qk_norm=True, torch_dtype="float32")
    with patch.object(torch, "compile", _as_it_is):  # its norms and gates would be compiled anew for each edit
        port = load("nemo_automodel.components.models.minimax_m2.model").MiniMaxM2ForCausalLM(settings)
    names = [
        (r"mlp\.e_score", "mlp.gate.e_score"),
        (r"gate_up_proj", "gate_and_up_projs"),
        (r"experts\.down_proj", "experts.down_projs"),
    ]

    def cut(weights):
        return {name: each.transpose(1, 2) if "experts" in name else each for name, each in weights.items()}

    ids = tokens(64)
    port = carried(port, reference, names, cut)
    return Case(reference, port, (), {"input_ids": ids, "use_cache": False}, (ids,))


def qwen3(load):
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        tie_word_embeddings=False,
    )
    reference = shaken(Qwen3ForCausalLM(config))
    package = load("fish_speech.models.text2semantic.llama")
    settings = package.BaseModelArgs(
        vocab_size=64,
        n_layer=3,
        n_head=4,
        dim=32,
        intermediate_size=48,
        n_local_heads=2,
        head_dim=8,
        norm_eps=1e-6,
        max_seq_len=16,
        tie_word_embeddings=False,
        attention_qk_norm=True,
        codebook_size=4,
        num_codebooks=1,
    )
    port = package.BaseTransformer(settings, SimpleNamespace(semantic_id_to_token_id={0: 63}))
    turns = torch.outer(torch.arange(16.0), 1e4 ** (-torch.arange(0, 8, 2) / 8))
    port.freqs_cis = torch.stack([turns.cos(), turns.sin()], -1)  # the port's are of half precision
    names = [
        (r"^model\.embed_tokens", "embeddings"),
        (r"^lm_head", "output"),
        (r"^model\.", ""),
        (r"input_layernorm", "attention_norm"),
        (r"post_attention_layernorm", "ffn_norm"),
        (r"self_attn\.o_proj", "attention.wo"),
        (r"self_attn", "attention"),
        (r"mlp\.gate_proj", "feed_forward.w1"),
        (r"mlp\.down_proj", "feed_forward.w2"),
        (r"mlp\.up_proj", "feed_forward.w3"),
    ]

    def cut(weights):  # the port turns neighbours
        order = torch.arange(8).view(2, 4).T.flatten()
        for name in [name for name in weights if "q_proj" in name or "k_proj" in name]:
            weights[name] = weights[name].unflatten(0, (-1, 8))[:, order].flatten(0, 1)
        for name in [name for name in weights if "q_norm" in name or "k_norm" in name]:
            weights[name] = weights[name][order]
        return fused(weights, [f"self_attn.{kind}_proj" for kind in "qkv"], "attention.wqkv")

    ids, mask = tokens(63), torch.ones(2, 12, dtype=torch.bool)
    mask[1, 8:] = False
    port = carried(port, reference, names, cut, kept=("codebook",))
    inputs = {"input_ids": ids, "attention_mask": mask, "use_cache": False}
    return Case(reference, port, (), inputs, (torch.stack([ids, torch.zeros_like(ids)], 1), ~mask))
