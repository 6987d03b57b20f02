"""Texts: decoders."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import torch
from cases import Case, shaken, tokens
from conversion import carried, fused, named


def hooked_gpt2(load):
    from transformers import GPT2Config, GPT2LMHeadModel

    sys.modules["transformers"].TRANSFORMERS_CACHE = ""  # as it was before version 5
    config = GPT2Config(n_layer=3, n_embd=32, n_head=4, vocab_size=64, n_positions=32)
    reference = shaken(GPT2LMHeadModel(config))
    package = load("transformer_lens")
    sizes = {"n_layers": 3, "d_model": 32, "n_ctx": 32, "d_head": 8, "n_heads": 4, "d_mlp": 128, "d_vocab": 64}
    cfg = package.HookedTransformerConfig(**sizes, act_fn="gelu_new", normalization_type="LN", seed=0, device="cpu")
    port = package.HookedTransformer(cfg, move_to_device=False)
    weights = load("transformer_lens.pretrained.weight_conversions").convert_gpt2_weights(reference, cfg)
    port.load_state_dict({**port.state_dict(), **weights, "unembed.b_U": torch.zeros(64)})
    ids = tokens(64)
    return Case(reference, port.eval(), (), {"input_ids": ids, "use_cache": False}, (ids,))


def kosmos2_text(load):
    from transformers import Kosmos2Config
    from transformers.models.kosmos2.modeling_kosmos2 import Kosmos2TextForCausalLM

    sizes = {"vocab_size": 64, "embed_dim": 32, "layers": 2, "ffn_dim": 64, "attention_heads": 4}
    config = Kosmos2Config(text_config={**sizes, "max_position_embeddings": 32})
    reference = shaken(Kosmos2TextForCausalLM(config.text_config))
    args = load("torchscale.architecture.config").DecoderConfig(
        vocab_size=64,
        decoder_embed_dim=32,
        decoder_layers=2,
        decoder_ffn_embed_dim=64,
        decoder_attention_heads=4,
        share_decoder_input_output_embed=True,
        subln=True,
        no_scale_embedding=False,
    )
    embedding = load("torchscale.component.embedding")
    places = reference.model.embed_positions.weights
    port = load("torchscale.architecture.decoder").Decoder(
        args, embedding.TextEmbedding(64, 32), embedding.PositionalEmbedding(*places.shape)
    )
    cut = lambda weights: {**weights, "embed_positions.weight": places}  # noqa: E731 - the reference's are no weights
    port = carried(port, reference, [(r"^model\.", ""), (r"^lm_head", "output_projection")], cut)
    ids = tokens(64)
    return Case(reference, port, (), {"input_ids": ids, "use_cache": False}, (ids,))


def olmo2(load):
    from transformers import Olmo2Config, Olmo2ForCausalLM

    sizes = {"hidden_size": 32, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 64}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    rope = {"rope_type": "default", "rope_theta": 10000.0}
    config = Olmo2Config(**sizes, **heads, **special, rms_norm_eps=1e-6, rope_parameters=rope)
    reference = shaken(Olmo2ForCausalLM(config))
    package = load("olmo_core.nn.transformer")
    settings = package.TransformerConfig.llama_like(
        d_model=32,
        vocab_size=64,
        n_layers=2,
        n_heads=4,
        n_kv_heads=2,
        hidden_size_multiple_of=128,
        block_name=package.TransformerBlockType.reordered_norm,
        qk_norm=True,
        layer_norm_eps=1e-6,
        rope_theta=10000,
    )
    port = settings.build(init_device="cpu")
    names = [
        (r"^model\.embed_tokens", "embeddings"),
        (r"^model\.norm", "lm_head.norm"),
        (r"^lm_head\.weight", "lm_head.w_out.weight"),
        (r"^model\.layers", "blocks"),
        (r"self_attn\.([qkv])_proj", r"attention.w_\1"),
        (r"self_attn\.o_proj", "attention.w_out"),
        (r"self_attn", "attention"),
        (r"mlp\.gate_proj", "feed_forward.w1"),
        (r"mlp\.down_proj", "feed_forward.w2"),
        (r"mlp\.up_proj", "feed_forward.w3"),
        (r"post_attention_layernorm", "attention_norm"),
        (r"post_feedforward_layernorm", "feed_forward_norm"),
    ]
    ids = tokens(64)
    return Case(reference, carried(port, reference, names), (), {"input_ids": ids, "use_cache": False}, (ids,))


def recurrent_gemma(load):
    from transformers import RecurrentGemmaConfig, RecurrentGemmaForCausalLM

    sizes = {"vocab_size": 64, "lru_width": 32}
    config = RecurrentGemmaConfig(
        attention_window_size=8,
        num_hidden_layers=3,
        hidden_size=32,
        intermediate_size=96,
        num_attention_heads=4,
        num_key_value_heads=1,
        pad_token_id=0,
        **sizes,
    )
    reference = shaken(RecurrentGemmaForCausalLM(config))
    sys.modules.setdefault("recurrentgemma.jax", SimpleNamespace(complex_lib=None, layers=None, scan=None))
    common = load("recurrentgemma.common")
    kinds = common.TemporalBlockType
    settings = common.GriffinConfig(
        width=32,
        mlp_expanded_width=48,
        num_heads=4,
        block_types=(kinds.RECURRENT, kinds.RECURRENT, kinds.ATTENTION),
        embeddings_scale_by_sqrt_dim=True,
        logits_soft_cap=30.0,
        attention_window_size=7,  # a window holds as many tokens as this before its own
        **sizes,
    )
    port = load("recurrentgemma.torch.griffin").Griffin(settings, dtype=torch.float32)
    names = [
        (r"^model\.embed_tokens\.weight", "embedder.input_embedding"),
        (r"^model\.final_norm\.weight", "final_norm.scale"),
        (r"^model\.layers", "blocks"),
        (r"pre_norm\.weight", "pre_norm.scale"),
        (r"temporal_block\.([qkv])_proj", r"attention_block.proj_\1"),
        (r"temporal_block\.o_proj", "attention_block.proj_final"),
        (r"temporal_block", "recurrent_block"),
        (r"conv_1d\.(w|b)\w+", r"conv_1d.\1"),
        (r"recurrent_param", "a_param"),
        (r"recurrent_gate_(w|b)\w+", r"a_gate.\1"),
        (r"input_gate_(w|b)\w+", r"input_gate.\1"),
        (r"down_proj", "ffw_down"),
    ]

    def cut(weights):
        for name in [name for name in weights if "conv_1d.weight" in name]:
            weights[name] = weights[name].squeeze(1).T
        for name in [name for name in weights if "gate_proj" in name]:
            both = torch.stack([weights.pop(name), weights.pop(name.replace("gate_proj", "up_proj"))])
            is_weight = name.endswith("weight")
            at = name.replace("gate_proj.weight", "ffw_up.w").replace("gate_proj.bias", "ffw_up.b")
            weights[at] = both.transpose(1, 2) if is_weight else both[:, None, None]
        return weights

    ids = tokens(64)
    places = torch.arange(12).expand(2, 12)
    port = carried(port, reference, names, cut)
    return Case(reference, port, (), {"input_ids": ids, "use_cache": False}, (ids, places))


def rwkv(load):
    from transformers import RwkvConfig, RwkvForCausalLM

    os.environ.setdefault("RWKV_JIT_ON", "0")
    config = RwkvConfig(
        vocab_size=64, context_length=32, hidden_size=32, num_hidden_layers=3, intermediate_size=64, use_cache=False
    )
    reference = shaken(RwkvForCausalLM(config))
    names = [
        (r"^rwkv\.embeddings", "emb"),
        (r"^rwkv\.ln_out", "ln_out"),
        (r"^rwkv\.", ""),
        (r"attention\.time_mix_(key|value|receptance)", lambda m: f"att.time_mix_{m[1][0]}"),
        (r"feed_forward\.time_mix_(key|receptance)", lambda m: f"ffn.time_mix_{m[1][0]}"),
        (r"attention", "att"),
        (r"feed_forward", "ffn"),
        (r"pre_ln", "ln0"),
    ]
    weights = named(reference.state_dict(), names)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tiny.pth"
        torch.save(weights, file)
        port = load("rwkv.model").RWKV(str(file), "cpu fp32", verbose=False)
    ids = tokens(64, batch=1)
    return Case(
        reference,
        port.eval(),
        (),
        {"input_ids": ids},
        (ids[0].tolist(), None),
        {"full_output": True},
        arranged=lambda out: out[0][None],
    )


def olmo(load):
    from transformers import OlmoConfig, OlmoForCausalLM

    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 64}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    rope = {"rope_type": "default", "rope_theta": 10000.0}
    config = OlmoConfig(**sizes, **heads, **special, clip_qkv=2.0, rope_parameters=rope)
    reference = shaken(OlmoForCausalLM(config))
    settings = load("olmo.config").ModelConfig(
        d_model=32,
        n_heads=4,
        n_kv_heads=2,
        n_layers=2,
        mlp_hidden_size=96,
        clip_qkv=2.0,
        rope=True,
        include_bias=False,
        layer_norm_with_affine=False,
        attention_layer_norm_with_affine=False,
        max_sequence_length=32,
        vocab_size=64,
        embedding_size=64,
        weight_tying=False,
        eos_token_id=2,
        pad_token_id=0,
        init_device="cpu",
    )
    port = load("olmo.model").OLMo(settings)
    names = [
        (r"^model\.embed_tokens", "transformer.wte"),
        (r"^lm_head", "transformer.ff_out"),
        (r"^model\.layers", "transformer.blocks"),
        (r"self_attn\.qkv_proj", "att_proj"),
        (r"self_attn\.o_proj", "attn_out"),
        (r"mlp\.both_proj", "ff_proj"),
        (r"mlp\.down_proj", "ff_out"),
    ]

    def cut(weights):
        weights = fused(weights, [f"self_attn.{kind}_proj" for kind in "qkv"], "self_attn.qkv_proj")
        return fused(weights, ["mlp.up_proj", "mlp.gate_proj"], "mlp.both_proj")

    ids = tokens(64)
    return Case(reference, carried(port, reference, names, cut), (), {"input_ids": ids, "use_cache": False}, (ids,))


def falcon(load):
    from transformers import FalconConfig, FalconModel

    config = FalconConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        multi_query=True,
        parallel_attn=True,
        new_decoder_architecture=False,
        bias=False,
        alibi=False,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    reference = shaken(FalconModel(config))
    port = load("onmt.decoders.transformer").TransformerLMDecoder(
        num_layers=2,
        d_model=32,
        heads=4,
        d_ff=128,
        copy_attn=False,
        self_attn_type="scaled-dot",
        dropout=0.0,
        attention_dropout=0.0,
        embeddings=load("onmt.modules").Embeddings(32, 64, 0),
        max_relative_positions=-1,
        relative_positions_buckets=0,
        aan_useffn=False,
        pos_ffn_activation_fn="gelu",
        num_kv=1,
        add_ffnbias=False,
        parallel_residual=True,
        shared_layer_norm=True,
        norm_eps=1e-5,
        rotary_interleave=False,
    )
    names = [
        (r"^word_embeddings", "embeddings.make_embedding.emb_luts.0"),
        (r"^ln_f", "layer_norm"),
        (r"^h\.", "transformer_layers."),
        (r"input_layernorm", "layer_norm_1"),
        (r"self_attention\.dense", "self_attn.final_linear"),
        (r"self_attention", "self_attn"),
        (r"mlp\.dense_h_to_4h", "feed_forward.w_1"),
        (r"mlp\.dense_4h_to_h", "feed_forward.w_2"),
    ]

    def cut(weights):
        for name in [name for name in weights if "query_key_value" in name]:
            for kind, part in zip(("query", "keys", "values"), weights.pop(name).split([32, 8, 8]), strict=True):
                weights[name.replace("query_key_value", f"linear_{kind}")] = part
        return weights

    ids = tokens(64)
    port = carried(port, reference, names, cut)
    return Case(reference, port, (), {"input_ids": ids, "use_cache": False}, (ids[..., None],))


def gpt2(load):
    from transformers import GPT2Config, GPT2Model

    sizes = {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 32}
    reference = shaken(GPT2Model(GPT2Config(vocab_size=64, **sizes)))
    package = load("bertviz.transformers_neuron_view.modeling_gpt2")
    port = package.GPT2Model(package.GPT2Config(vocab_size_or_config_json_file=64, n_ctx=32, **sizes))
    ids = tokens(64)
    kinds = tokens(64).flip(1)
    inputs = {"input_ids": ids, "token_type_ids": kinds}
    port = carried(port, reference, [(r"^", "")])
    return Case(reference, port, (), {**inputs, "use_cache": False}, (), inputs)


def llama3(load):
    from transformers import LlamaConfig, LlamaForCausalLM

    scaled = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    scaled |= {"original_max_position_embeddings": 8192, "rope_theta": 500000.0}
    config = LlamaConfig(
        hidden_size=32,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=64,
        rms_norm_eps=1e-5,
        max_position_embeddings=131072,
        rope_parameters=scaled,
    )
    reference = shaken(LlamaForCausalLM(config))
    package = load("llama_models.llama3.model")
    package.fs_init = SimpleNamespace(get_model_parallel_world_size=lambda: 1)
    for kind in ("ColumnParallelLinear", "RowParallelLinear"):  # on one device they are what torch has
        setattr(package, kind, lambda inner, outer, bias, **_: torch.nn.Linear(inner, outer, bias))
    package.VocabParallelEmbedding = lambda words, size, **_: torch.nn.Embedding(words, size)
    settings = package.ModelArgs(
        dim=32,
        n_layers=2,
        n_heads=4,
        n_kv_heads=2,
        vocab_size=64,
        multiple_of=32,
        use_scaled_rope=True,
        max_batch_size=2,
        max_seq_len=16,
    )
    names = [
        (r"^model\.embed_tokens", "tok_embeddings"),
        (r"^lm_head", "output"),
        (r"^model\.", ""),
        (r"self_attn\.([qkvo])_proj", r"attention.w\1"),
        (r"mlp\.gate_proj", "feed_forward.w1"),
        (r"mlp\.down_proj", "feed_forward.w2"),
        (r"mlp\.up_proj", "feed_forward.w3"),
        (r"input_layernorm", "attention_norm"),
        (r"post_attention_layernorm", "ffn_norm"),
    ]

    def cut(weights):  # rotary pairs are neighbours in the port, halves in the reference
        for name in [name for name in weights if re.search(r"self_attn\.[qk]_proj", name)]:
            weights[name] = weights[name].reshape(-1, 2, 4, 32).transpose(1, 2).reshape(weights[name].shape)
        return weights

    ids = tokens(64)
    port = carried(package.Transformer(settings), reference, names, cut)
    return Case(reference, port, (), {"input_ids": ids, "use_cache": False}, (ids, 0))


def qwen3_moe(load):
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    config = Qwen3MoeConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=24,
        norm_topk_prob=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )
    reference = shaken(Qwen3MoeForCausalLM(config))
    sizes = {"vocab_size": 64, "context_length": 32, "emb_dim": 32, "n_heads": 4, "n_layers": 2, "head_dim": 8}
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
    settings = {**sizes, **experts, "qk_norm": True, "n_kv_groups": 2, "rope_base": 10000.0, "dtype": torch.float32}
    port = load("llms_from_scratch.qwen3").Qwen3Model(settings).to_empty(device="cpu")
    port.cos, port.sin = load("llms_from_scratch.qwen3").compute_rope_params(8, 10000.0, 32)  # no weights, so emptied
    names = [
        (r"^model\.embed_tokens", "tok_emb"),
        (r"^model\.norm\.weight", "final_norm.scale"),
        (r"^lm_head", "out_head"),
        (r"^model\.layers", "trf_blocks"),
        (r"input_layernorm\.weight", "norm1.scale"),
        (r"post_attention_layernorm\.weight", "norm2.scale"),
        (r"self_attn\.o_proj", "att.out_proj"),
        (r"self_attn\.(q|k)_norm\.weight", r"att.\1_norm.scale"),
        (r"self_attn\.q_proj", "att.W_query"),
        (r"self_attn\.k_proj", "att.W_key"),
        (r"self_attn\.v_proj", "att.W_value"),
        (r"mlp\.", "ff."),
    ]

    def cut(weights):
        for name in [name for name in weights if "experts" in name]:
            parts = weights.pop(name).chunk(2, 1) if "gate_up" in name else (weights.pop(name),)
            at = name.partition("experts")[0]
            for place, part in enumerate(parts, 1 if "gate_up" in name else 3):
                weights |= {f"{at}fc{place}.{n}.weight": each for n, each in enumerate(part)}
        return weights

    ids = tokens(64)
    return Case(reference, carried(port, reference, names, cut), (), {"input_ids": ids, "use_cache": False}, (ids,))


def mixtral(load):
    from transformers import MixtralConfig, MixtralModel

    config = MixtralConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
        num_experts_per_tok=2,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )
    reference = shaken(MixtralModel(config))
    settings = load("eole.config.models").TransformerDecoderConfig(
        hidden_size=32,
        layers=2,
        heads=4,
        heads_kv=2,
        transformer_ff=48,
        moe_transformer_ff=48,
        num_experts=4,
        num_experts_per_tok=2,
        moe_softmax_after=True,
        mlp_activation_fn="gated-silu",
        layer_norm="rms",
        norm_eps=1e-5,
        position_encoding_type="Rotary",
        rope_config={"rotary_interleave": False, "rotary_theta": 10000},
    )
    running = SimpleNamespace(dropout=[0.0], attention_dropout=[0.0], parallel_gpu=1, self_attn_backend="pytorch")
    port = load("eole.decoders.transformer").TransformerDecoder(settings, running)
    names = [
        (r"^layers", "transformer_layers"),
        (r"^norm", "layer_norm"),
        (r"self_attn\.q_proj", "self_attn.linear_query"),
        (r"self_attn\.k_proj", "self_attn.linear_keys"),
        (r"self_attn\.v_proj", "self_attn.linear_values"),
        (r"self_attn\.o_proj", "self_attn.final_linear"),
    ]

    def cut(weights):
        for name in [name for name in weights if "experts" in name]:
            at, is_down = name.partition("experts")[0], name.endswith("down_proj")
            for place, both in enumerate(weights.pop(name)):
                parts = (
                    {"down_proj": both}
                    if is_down
                    else dict(zip(("gate_up_proj", "up_proj"), both.chunk(2), strict=True))
                )
                weights |= {f"{at}experts.{place}.{part}.weight": each for part, each in parts.items()}
        return weights

    embedded = torch.randn(2, 12, 32, generator=torch.Generator().manual_seed(1))
    hidden = torch.zeros(2, 1, 12, dtype=torch.bool)
    port = carried(port, reference, names, cut)
    return Case(
        reference,
        port,
        (),
        {"inputs_embeds": embedded, "use_cache": False},
        (embedded,),
        {"tgt_pad_mask": hidden},
    )


def mamba2(load):
    from transformers import Mamba2Config
    from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

    config = Mamba2Config(
        hidden_size=32,
        expand=2,
        num_heads=8,
        head_dim=8,
        state_size=8,
        n_groups=2,
        conv_kernel=4,
        chunk_size=4,
        num_hidden_layers=1,
        vocab_size=64,
    )
    reference = shaken(Mamba2Mixer(config, layer_idx=0))
    settings = load("niverel_mamba").Mamba2Config(
        d_model=32, d_state=8, d_conv=4, expand=2, headdim=8, ngroups=2, chunk_size=4, norm_before_gate=False
    )
    port = load("niverel_mamba.torch_ops").Mamba2(settings)
    hidden = torch.randn(2, 14, 32, generator=torch.Generator().manual_seed(1))
    port = carried(port, reference, [(r"^", "")])
    return Case(reference, port, (), {"hidden_states": hidden}, (hidden,))


def gpt_oss(load):
    from transformers import GptOssConfig, GptOssForCausalLM

    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 24, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "sliding_window": 4}
    yarn = {"rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0}
    yarn |= {"original_max_position_embeddings": 4096, "truncate": False}
    config = GptOssConfig(**sizes, num_local_experts=4, num_experts_per_tok=2, rope_parameters=yarn)
    reference = shaken(GptOssForCausalLM(config))
    settings = load("gpt_oss.torch.model").ModelConfig(**sizes, num_experts=4, experts_per_token=2)
    port = load("gpt_oss.torch.model").Transformer(settings).float()
    names = [
        (r"^model\.embed_tokens", "embedding"),
        (r"^model\.norm\.weight", "norm.scale"),
        (r"^model\.layers", "block"),
        (r"^lm_head", "unembedding"),
        (r"input_layernorm\.weight", "attn.norm.scale"),
        (r"post_attention_layernorm\.weight", "mlp.norm.scale"),
        (r"self_attn\.o_proj", "attn.out"),
        (r"self_attn", "attn"),
        (r"mlp\.router", "mlp.gate"),
        (r"experts\.gate_up_proj$", "mlp1_weight"),
        (r"experts\.gate_up_proj_bias", "mlp1_bias"),
        (r"experts\.down_proj$", "mlp2_weight"),
        (r"experts\.down_proj_bias", "mlp2_bias"),
    ]

    def cut(weights):
        turned = {name: w.transpose(1, 2) if w.ndim == 3 else w for name, w in weights.items()}
        return fused(turned, [f"self_attn.{kind}_proj" for kind in "qkv"], "self_attn.qkv")

    ids = tokens(64, batch=1)
    port = carried(port, reference, names, cut)
    return Case(reference, port, (), {"input_ids": ids, "use_cache": False}, (ids[0],), arranged=lambda out: out[None])


def gemma4(load):
    from transformers import Gemma4TextConfig, Gemma4TextModel

    config = Gemma4TextConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        global_head_dim=16,
        num_global_key_value_heads=1,
        attention_k_eq_v=True,
        sliding_window=4,
        layer_types=["sliding_attention", "full_attention", "full_attention"],
        vocab_size_per_layer_input=64,
        hidden_size_per_layer_input=4,
        num_kv_shared_layers=1,
    )
    reference = shaken(Gemma4TextModel(config))
    package = load("gemma4_pt_codex.config")
    sliding, full = package.AttentionKind.SLIDING, package.AttentionKind.FULL
    settings = package.TextConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_layers=3,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        global_head_dim=16,
        num_global_kv_heads=1,
        attention_k_eq_v_global=True,
        sliding_window=4,
        layer_types=(sliding, full, full),
        per_layer_input_dim=4,
        kv_sharing=package.KVSharingConfig(1 / 3),
    )
    port = load("gemma4_pt_codex.text").Gemma4TextTower(settings)
    names = [
        (r"^embed_tokens_per_layer\.weight", "per_layer_token_embedding"),
        (r"^embed_tokens", "token_embedding"),
        (r"^norm", "final_norm"),
        (r"self_attn", "attn"),
        (r"input_layernorm", "pre_attn_norm"),
        (r"post_attention_layernorm", "post_attn_norm"),
        (r"pre_feedforward_layernorm", "pre_ffn_norm"),
        (r"post_feedforward_layernorm", "post_ffn_norm"),
    ]

    def cut(weights):
        at = "embed_tokens_per_layer.weight"
        weights["per_layer_model_projection.weight"] = weights["per_layer_model_projection.weight"] * 32**-0.5
        return {**weights, at: weights[at].view(64, 3, 4)}

    ids = tokens(64)
    positions, seen = torch.arange(12).expand(2, 12), torch.ones(12, 12, dtype=torch.bool).tril().expand(2, 12, 12)
    given = {"position_ids": positions, "full_attention_mask": seen}
    port = carried(port, reference, names, cut, kept=("layers.2.attn.",))
    return Case(reference, port, (), {"input_ids": ids, "use_cache": False}, (ids,), given)


def deepseek_v3(load):
    from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

    yarn = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 512}
    yarn |= {"beta_fast": 32.0, "beta_slow": 1.0, "mscale": 0.7, "mscale_all_dim": 0.7}
    config = DeepseekV3Config(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        first_k_dense_replace=2,  # the port's experts compute in bfloat16
        num_attention_heads=4,
        num_key_value_heads=4,
        q_lora_rank=16,
        kv_lora_rank=12,
        qk_nope_head_dim=6,
        qk_rope_head_dim=8,
        v_head_dim=10,
        rms_norm_eps=1e-5,
        max_position_embeddings=2048,
        rope_parameters=yarn,
    )
    reference = shaken(DeepseekV3ForCausalLM(config))
    package, common = load("torchtitan.models.deepseek_v3"), load("torchtitan.models.common")
    layers = package._build_dsv3_layers(
        n_layers=2,
        n_dense_layers=2,
        dim=32,
        n_heads=4,
        q_lora_rank=16,
        kv_lora_rank=12,
        qk_nope_head_dim=6,
        qk_rope_head_dim=8,
        v_head_dim=10,
        mscale=0.7,
        dense_hidden_dim=48,
        moe_hidden_dim=0,
        num_experts=0,
        num_shared_experts=0,
        router_top_k=0,
        router_score_func="sigmoid",
        attn_backend="flex",
        moe_comm_backend="standard",
        non_blocking_capacity_factor=None,
        rope=common.ComplexRoPE.Config(
            dim=8, max_seq_len=2048, theta=10000.0, scaling="yarn", rope_factor=4.0, original_seq_len=512
        ),
    )
    for layer in layers:
        layer.attention.inner_attention = load("torchtitan.models.common.attention").ScaledDotProductAttention.Config()
        layer.attention.q_norm.eps = layer.attention.kv_norm.eps = 1e-6
    settings = package.DeepSeekV3Model.Config(
        vocab_size=64,
        dim=32,
        tok_embeddings=common.Embedding.Config(num_embeddings=64, embedding_dim=32),
        norm=common.RMSNorm.Config(normalized_shape=32),
        lm_head=common.Linear.Config(in_features=32, out_features=64),
        layers=layers,
    )
    port = settings.build()
    names = [
        (r"^model\.", ""),
        (r"^embed_tokens", "tok_embeddings"),
        (r"self_attn\.kv_a_proj_with_mqa", "attention.wkv_a"),
        (r"self_attn\.(q|kv)_a_layernorm", r"attention.\1_norm"),
        (r"self_attn\.(q|kv)_([ab])_proj", r"attention.w\1_\2"),
        (r"self_attn\.o_proj", "attention.wo"),
        (r"input_layernorm", "attention_norm"),
        (r"post_attention_layernorm", "ffn_norm"),
        (r"mlp\.gate_proj", "feed_forward.w1"),
        (r"mlp\.down_proj", "feed_forward.w2"),
        (r"mlp\.up_proj", "feed_forward.w3"),
    ]
    ids = tokens(64)
    return Case(reference, carried(port, reference, names), (), {"input_ids": ids, "use_cache": False}, (ids,))
