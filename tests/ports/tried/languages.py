"""What reads or writes text."""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace

import torch
from cases import Case, shaken, tokens
from conversion import carried, fused
from stubs import bare


def neox(load):
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    config = GPTNeoXConfig(
        vocab_size=64,
        hidden_size=64,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=32,
        tie_word_embeddings=False,
    )
    reference = shaken(GPTNeoXForCausalLM(config))
    package = load("labml_nn.neox.model")
    layers = [package.TransformerLayer(64, 4) for _ in range(2)]
    port = torch.nn.Sequential(package.Embedding(64, 64), *layers, package.FinalNorm(64), package.ReadoutLayer(64, 64))
    names = [
        (r"^gpt_neox\.embed_in", "0.emb"),
        (r"^gpt_neox\.layers\.0", "1"),
        (r"^gpt_neox\.layers\.1", "2"),
        (r"^gpt_neox\.final_layer_norm", "3.ln"),
        (r"^(lm_head|embed_out)", "4.linear"),
        (r"input_layernorm", "pre_ln_attn"),
        (r"post_attention_layernorm", "pre_ln_ffn"),
        (r"attention\.dense", "attention.output"),
        (r"attention\.query_key_value", "attention.qkv_lin"),
        (r"mlp\.dense_h_to_4h", "ffn.dense_h_h4"),
        (r"mlp\.dense_4h_to_h", "ffn.dense_h4_h"),
    ]
    ids = tokens(64)
    return Case(reference, carried(port, reference, names), (), {"input_ids": ids, "use_cache": False}, (ids,))


def umt5(load):
    from transformers import UMT5Config, UMT5EncoderModel

    config = UMT5Config(
        vocab_size=64,
        d_model=32,
        d_kv=12,
        d_ff=48,
        num_layers=3,
        num_heads=4,
        relative_attention_num_buckets=8,
        feed_forward_proj="gated-gelu",
    )
    reference = shaken(UMT5EncoderModel(config))
    bare("diffsynth", "diffsynth.models")
    sizes = {"vocab": 64, "dim": 32, "dim_attn": 48, "dim_ffn": 48, "num_heads": 4, "num_layers": 3}
    port = load("diffsynth.models.wan_video_text_encoder").WanTextEncoder(**sizes, num_buckets=8)
    names = [
        (r"^shared", "token_embedding"),
        (r"^encoder\.final_layer_norm", "norm"),
        (r"^encoder\.block", "blocks"),
        (r"layer\.0\.SelfAttention\.relative_attention_bias", "pos_embedding.embedding"),
        (r"layer\.0\.SelfAttention", "attn"),
        (r"layer\.([01])\.layer_norm", lambda found: f"norm{int(found[1]) + 1}"),
        (r"layer\.1\.DenseReluDense\.wi_0", "ffn.gate.0"),
        (r"layer\.1\.DenseReluDense\.wi_1", "ffn.fc1"),
        (r"layer\.1\.DenseReluDense\.wo", "ffn.fc2"),
    ]
    ids, seen = tokens(64, length=20), torch.ones(2, 20, dtype=torch.long)
    seen[1, 15:] = 0
    inputs = {"input_ids": ids, "attention_mask": seen}
    return Case(reference, carried(port, reference, names), (), inputs, (ids, seen))


@contextmanager
def _standing_in(**modules):
    """Let a port import what it asks for and cannot be installed here."""
    made = {name: ModuleType(name) for name in modules}
    for name, contents in modules.items():
        vars(made[name]).update(contents)
    sys.modules.update(made)
    try:
        yield
    finally:
        for name in made:
            del sys.modules[name]


class _Blocks(torch.nn.ModuleList):
    def forward(self, hidden, *more):
        for block in self:
            hidden = block(hidden, *more)
        return hidden


#: What one device needs of bmtrain, which is installed with CUDA alone.
_BMTRAIN = {
    "DistributedModule": torch.nn.Module,
    "TransformerBlockList": _Blocks,
    "CheckpointBlock": lambda block: block,
    "DistributedParameter": lambda data, init_method=None: torch.nn.Parameter(data),
    "ParameterInitializer": lambda *_, **__: None,
    "store": SimpleNamespace(_save_to_rank0=lambda model, *_: torch.nn.Module.state_dict(model)),
}


def gptj(load):
    from transformers import GPTJConfig, GPTJForCausalLM

    config = GPTJConfig(
        vocab_size=64,
        n_positions=32,
        n_embd=32,
        n_layer=2,
        n_head=4,
        rotary_dim=4,
        n_inner=48,
        bos_token_id=1,
        eos_token_id=2,
    )
    reference = shaken(GPTJForCausalLM(config))
    with _standing_in(bmtrain=_BMTRAIN):
        package = load("model_center.model")
    settings = package.GPTjConfig(
        vocab_size=64,
        dim_model=32,
        num_heads=4,
        dim_head=8,
        dim_ff=48,
        num_layers=2,
        pos_rotary_dim=4,
        ffn_activate_fn="gelu_new",
        half=False,
    )
    names = [
        (r"^transformer\.wte", "input_embedding"),
        (r"^transformer\.ln_f", "encoder.output_layernorm"),
        (r"^lm_head", "output_projection"),
        (r"^transformer\.h", "encoder.layers"),
        (r"ln_1", "self_att.layernorm_before_attention"),
        (r"attn\.out_proj", "self_att.self_attention.attention_out"),
        (r"attn\.([qkv])_proj", r"self_att.self_attention.project_\1"),
        (r"mlp\.fc_in", "ffn.ffn.w_in.w"),
        (r"mlp\.fc_out", "ffn.ffn.w_out"),
    ]

    def cut(weights):  # the port normalizes twice with the same weights
        return weights | {
            re.sub(r"ln_1", "ffn.layernorm_before_ffn", name): each for name, each in weights.items() if "ln_1" in name
        }

    ids = tokens(64)
    port = carried(package.GPTj(settings), reference, names, cut)
    return Case(
        reference,
        port,
        (),
        {"input_ids": ids, "use_cache": False},
        (),
        {"input_ids": ids, "output_logits": True},
        arranged=lambda out: out.logits,
    )


def gpt_neo(load):
    from transformers import GPTNeoConfig, GPTNeoForCausalLM

    config = GPTNeoConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_layers=2,
        num_heads=4,
        attention_types=[[["global", "local"], 1]],
        window_size=4,
        max_position_embeddings=32,
        bos_token_id=1,
        eos_token_id=2,
    )
    reference = shaken(GPTNeoForCausalLM(config))
    bare("sat", "sat.model", "sat.model.official")
    regions, model = load("sat.mpu.mappings"), load("sat.model.transformer")
    for name in ("_reduce", "_split", "_gather"):  # nothing is spread over devices
        setattr(regions, name, lambda given: given)
    for module in (load("sat.mpu.layers"), model):
        module.get_model_parallel_world_size = lambda: 1
    load("sat.arguments")._simple_init = lambda **_: True
    settings = SimpleNamespace(
        num_layers=2,
        vocab_size=64,
        hidden_size=32,
        inner_hidden_size=48,
        num_attention_heads=4,
        max_sequence_length=32,
        layernorm_order="pre",
        attention_types=["global", "local"],
        window_size=4,
        skip_init=False,
        model_parallel_size=1,
    )
    port = load("sat.model.official.gptneo_model").GPTNeoModel(settings)
    names = [
        (r"^transformer\.wte", "transformer.word_embeddings"),
        (r"^transformer\.wpe", "transformer.position_embeddings"),
        (r"^transformer\.ln_f", "transformer.final_layernorm"),
        (r"^transformer\.h", "transformer.layers"),
        (r"ln_1", "input_layernorm"),
        (r"ln_2", "post_attention_layernorm"),
        (r"attn\.attention\.out_proj", "attention.dense"),
        (r"attn\.attention\.query_key_value", "attention.query_key_value"),
        (r"mlp\.c_fc", "mlp.dense_h_to_4h"),
        (r"mlp\.c_proj", "mlp.dense_4h_to_h"),
    ]

    def cut(weights):
        whole = fused(weights, [f"attention.{kind}_proj" for kind in "qkv"], "attention.query_key_value")
        return whole | {f"transformer.h.{n}.attn.attention.query_key_value.bias": torch.zeros(96) for n in range(2)}

    ids = tokens(64)
    port = carried(port, reference, names, cut)
    return Case(
        reference, port, (), {"input_ids": ids, "use_cache": False}, (ids, torch.arange(12)[None], torch.ones(1, 1))
    )


def nllb(load):
    from transformers import M2M100Config, M2M100ForConditionalGeneration

    config = M2M100Config(
        vocab_size=64,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        max_position_embeddings=32,
    )
    reference = shaken(M2M100ForConditionalGeneration(config))
    package, here = load("fairseq2.models.nllb"), torch.device("cpu")
    alone = load("fairseq2.gang").create_fake_gangs(here)
    for part in (load("fairseq2.nn.projection"), load("fairseq2.nn.embedding")):
        part.get_current_gangs, part.get_current_device = lambda device=None: alone, lambda: here
    settings = package.NllbConfig(
        model_dim=32,
        max_seq_len=32,
        vocab_size=64,
        pad_idx=1,
        num_encoder_layers=2,
        num_decoder_layers=2,
        num_encoder_attn_heads=4,
        num_decoder_attn_heads=4,
        ffn_inner_dim=48,
    )
    names = [
        (r"^model\.", ""),
        (r"^lm_head", "final_proj"),
        (r"^(encoder|decoder)\.embed_tokens", r"\1_frontend.embed"),
        (r"^(encoder|decoder)\.layer_norm", r"\1.layer_norm"),
        (r"encoder_attn", "encoder_decoder_attn"),
        (r"out_proj", "output_proj"),
        (r"fc1", "ffn.inner_proj"),
        (r"fc2", "ffn.output_proj"),
        (r"layers\.(\d)\.final_layer_norm", r"layers.\1.ffn_layer_norm"),
    ]
    ids, made = tokens(64), tokens(64, length=7).flip(0)
    ids[1, 9:] = 1
    inputs = {"input_ids": ids, "attention_mask": (ids != 1).long(), "decoder_input_ids": made, "use_cache": False}
    layout = load("fairseq2.nn").BatchLayout
    read, written = layout(ids.shape, [12, 9]), layout.of(made)
    return Case(
        reference,
        carried(package.create_nllb_model(settings), reference, names),
        (),
        inputs,
        (ids, read, made, written),
    )


def _flash_attention(query, key, value, cu_seqlens_q, max_seqlen_q, **_):
    """What the kernel computes: sequences of one length, one after the other."""
    parts = (each.unflatten(0, (-1, max_seqlen_q)).transpose(1, 2) for each in (query, key, value))
    return torch.nn.functional.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(0, 1)


def esmc(load):
    from transformers import EsmcConfig, EsmcForMaskedLM

    config = EsmcConfig(
        hidden_size=32, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=32
    )
    reference = shaken(EsmcForMaskedLM(config))
    flash = {"flash_attn_varlen_func": _flash_attention}
    padding = {"pad_input": None, "unpad_input": None}  # what is packed needs none
    with _standing_in(**{"flash_attn": flash, "flash_attn.bert_padding": padding}):
        package = load("esme.esm")
    port = package.ESMC(num_layers=2, embed_dim=32, attention_heads=4, dtype=torch.float32)
    names = [
        (r"^esmc\.norm", "emb_layer_norm_after"),
        (r"^esmc\.", ""),
        (r"lm_head\.decoder", "lm_head.final"),
        (r"input_layernorm", "self_attn.norm"),
        (r"post_attention_layernorm", "final.0"),
        (r"self_attn\.([qkv])_proj", r"self_attn.\1"),
        (r"self_attn\.o_proj", "self_attn.out"),
        (r"self_attn\.([qk])_norm", r"self_attn.layernorm_\1"),
        (r"mlp\.gate_proj", "final.1.activation"),
        (r"mlp\.up_proj", "final.1.fc"),
        (r"mlp\.down_proj", "final.2"),
    ]
    ids, starts = tokens(64), torch.tensor([0, 12, 24])
    return Case(
        reference,
        carried(port, reference, names),
        (),
        {"input_ids": ids},
        (ids.flatten(), (starts, 12)),
        arranged=lambda out: out.view(2, 12, 64),
    )


def mamba(load):
    from transformers import MambaConfig
    from transformers.models.mamba.modeling_mamba import MambaMixer

    config = MambaConfig(hidden_size=32, state_size=8, conv_kernel=4, expand=2, time_step_rank=4, num_hidden_layers=1)
    reference = shaken(MambaMixer(config, layer_idx=0))
    port = load("torchmamba").Mamba1Block(32, d_state=8, dt_rank=4, bias=False)
    hidden = 1.5 * torch.randn(2, 12, 32, generator=torch.Generator().manual_seed(1))
    port = carried(port, reference, [(r"^conv1d\.", "conv_"), (r"^D$", "D_skip")])
    return Case(reference, port, (), {"hidden_states": hidden}, (hidden,))


class _Mpt(torch.nn.Module):
    """What holds the blocks of MPT: that of their package is a model of transformers."""

    def __init__(self, blocks, norm, biased):
        super().__init__()
        self.wte, self.blocks, self.norm_f = torch.nn.Embedding(64, 32), torch.nn.ModuleList(blocks), norm
        self.biased = biased

    def forward(self, ids):
        hidden = self.wte(ids)
        bias = self.biased("torch", hidden.new_zeros(1, 4, 1, 12), 4, 12, causal=True, alibi=True)
        for block in self.blocks:
            hidden, *_ = block(hidden, attn_bias=bias)
        return self.norm_f(hidden)


def mpt(load):
    from transformers import MptConfig, MptModel

    config = MptConfig(d_model=32, n_heads=4, n_layers=2, max_seq_len=32, vocab_size=64, attn_config={"clip_qkv": 1.5})
    reference = shaken(MptModel(config))
    bare(*(f"llmfoundry{part}" for part in ("", ".models", ".models.layers", ".models.utils", ".utils")))
    attention, blocks = load("llmfoundry.models.layers.attention"), load("llmfoundry.models.layers.blocks")
    norms = load("llmfoundry.models.layers.norm")
    load("llmfoundry.models.layers.fc"), load("llmfoundry.models.layers.ffn")  # they register what a block is made of
    how = {"attn_type": "multihead_attention", "attn_impl": "torch", "attn_pdrop": 0.0, "clip_qkv": 1.5}
    layers = [blocks.MPTBlock(32, 4, 4, attn_config=how, no_bias=True, attention_bias=False) for _ in range(2)]
    port = _Mpt(layers, norms.LPLayerNorm(32), attention.build_attn_bias)
    for module in port.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.register_parameter("bias", None)
    ids = tokens(64)
    port = carried(port, reference, [(r"^", "")])
    return Case(reference, port, (), {"input_ids": ids, "use_cache": False}, (ids,))
