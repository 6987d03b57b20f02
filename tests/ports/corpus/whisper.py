"""Whisper of OpenAI: ``forward(mel, tokens)``, activations as functions, the head tied in the decoder's forward."""

from __future__ import annotations

import torch
from cases import Bug, Case, Port, shaken, tokens
from conversion import carried, names_of
from transformers import WhisperConfig, WhisperForConditionalGeneration

MODEL = "whisper.model"


def build(load):
    config = WhisperConfig(
        vocab_size=64,
        num_mel_bins=8,
        d_model=32,
        encoder_layers=2,
        encoder_attention_heads=4,
        decoder_layers=3,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        max_source_positions=10,
        max_target_positions=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    reference = shaken(WhisperForConditionalGeneration(config))
    module = load(MODEL)
    port = module.Whisper(module.ModelDimensions(8, 10, 32, 4, 2, 64, 16, 32, 4, 3)).eval()
    names = [
        *names_of(PORT.rename),
        (r"^model\.(\w+)\.embed_positions\.weight", r"\1.positional_embedding"),
        (r"^model\.decoder\.embed_tokens", "decoder.token_embedding"),
        (r"^model\.encoder\.layer_norm", "encoder.ln_post"),
        (r"^model\.decoder\.layer_norm", "decoder.ln"),
        (r"\bfc1", "mlp.0"),
        (r"\bfc2", "mlp.2"),
    ]
    port = carried(port, reference, names)
    mel = torch.randn(2, 8, 20, generator=torch.Generator().manual_seed(2))
    ids = tokens(64)
    kwargs = {"input_features": mel, "decoder_input_ids": ids, "use_cache": False}
    return Case(reference, port, reference_kwargs=kwargs, port_args=(mel, ids), outputs={"": "logits"})


NAMES = {
    "attn.query": "self_attn.q_proj",
    "attn.key": "self_attn.k_proj",
    "attn.value": "self_attn.v_proj",
    "attn.out": "self_attn.out_proj",
    "attn_ln": "self_attn_layer_norm",
    "mlp.0": "fc1",
    "mlp.2": "fc2",
    "mlp_ln": "final_layer_norm",
}
CROSS = {
    "cross_attn.query": "encoder_attn.q_proj",
    "cross_attn.key": "encoder_attn.k_proj",
    "cross_attn.value": "encoder_attn.v_proj",
    "cross_attn.out": "encoder_attn.out_proj",
    "cross_attn_ln": "encoder_attn_layer_norm",
}


def swap_cross_weights(block):
    """Load the weight of the cross attention's key into its value, and the reverse."""
    key, value = block.cross_attn.key.weight, block.cross_attn.value.weight
    with torch.no_grad():
        kept = key.clone()
        key.copy_(value)
        value.copy_(kept)


RESIDUAL = ("hidden_states = residual + hidden_states",)
SDPA = "q, k, v, is_causal=mask is not None and n_ctx > 1"

BUGS = (
    Bug("silu instead of gelu", ("mlp", "mlp.1"), MODEL, "nn.GELU()", "nn.SiLU()", shows=("self.mlp(self.mlp_ln(x))",)),
    Bug(
        "self residual missing",
        ("",),
        MODEL,
        "x = x + self.attn(self.attn_ln(x)",
        "x = self.attn(self.attn_ln(x)",
        reference_lines=RESIDUAL,
    ),
    Bug(
        "cross residual after the norm",
        ("",),
        MODEL,
        "x = x + self.cross_attn(",
        "x = self.cross_attn_ln(x) + self.cross_attn(",
        reference_lines=RESIDUAL,
    ),
    Bug(
        "cross norm skipped",
        ("",),
        MODEL,
        "self.cross_attn(self.cross_attn_ln(x), xa",
        "self.cross_attn(x, xa",
        reference_lines=("self.encoder_attn_layer_norm(hidden_states)",),
    ),
    Bug(
        "cross norm of the self attention",
        ("",),
        MODEL,
        "self.cross_attn(self.cross_attn_ln(x), xa",
        "self.cross_attn(self.attn_ln(x), xa",
        shows=(),
    ),
    Bug("mask missing", ("attn",), MODEL, SDPA, "q, k, v"),
    Bug(
        "cross attention to the decoder itself",
        ("cross_attn",),
        MODEL,
        "k = self.key(x if xa is None else xa)",
        "k = self.key(x)",
    ),
    Bug("scale of the whole width", ("attn",), MODEL, SDPA, f"{SDPA}, scale=n_state**-0.5"),
    Bug(
        "heads split by the wrong dimension",
        ("attn",),
        MODEL,
        "k = k.view(*k.shape[:2], self.n_head, -1).permute(0, 2, 1, 3)",
        "k = k.view(*k.shape[:2], -1, self.n_head).permute(0, 3, 1, 2)",
    ),
    Bug(
        "biases missing",
        ("attn.query",),
        MODEL,
        "None if self.bias is None else self.bias.to(x.dtype),",
        "None,",
        "class Linear",
        reference_lines=("self.q_proj(hidden_states)", "self.v_proj("),
    ),
    Bug(
        "epsilon",
        ("attn_ln",),
        MODEL,
        "return super().forward(x.float()).type(x.dtype)",
        "return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, 1e-2)",
    ),
    Bug(
        "second activation of the encoder missing",
        ("encoder",),
        MODEL,
        "x = F.gelu(self.conv2(x))",
        "x = self.conv2(x)",
        in_layer=False,
        reference_lines=("nn.functional.gelu(self.conv2",),
    ),
    Bug(
        "positions of the encoder missing",
        ("encoder",),
        MODEL,
        "x = (x + self.positional_embedding).to(x.dtype)",
        "x = x.to(x.dtype)",
        in_layer=False,
        reference_lines=("inputs_embeds + self.embed_positions(",),
    ),
    Bug(
        "positions of the decoder offset",
        ("decoder",),
        MODEL,
        "self.positional_embedding[offset : offset + x.shape[-1]]",
        "self.positional_embedding[offset + 1 : offset + 1 + x.shape[-1]]",
        in_layer=False,
    ),
    Bug(
        "last norm missing",
        ("decoder",),
        MODEL,
        "        x = self.ln(x)\n",
        "",
        in_layer=False,
        reference_lines=("self.layer_norm(hidden_states)",),
    ),
    Bug(
        "weights of the cross key and value swapped",
        ("cross_attn.key", "cross_attn.value", "cross_attn"),
        change=swap_cross_weights,
    ),
)

PORT = Port(
    "whisper",
    "whisper",
    (MODEL,),
    build,
    BUGS,
    "decoder.blocks.1",
    {
        f"{side}.blocks.*{name and '.' + name}": f"model.{side}.layers.*{theirs and '.' + theirs}"
        for side, names in (("encoder", NAMES), ("decoder", NAMES | CROSS))
        for name, theirs in ({"": ""} | names).items()
        if not name.startswith("mlp.")
    }
    | {"encoder.conv1": "model.encoder.conv1", "encoder.conv2": "model.encoder.conv2"},
)
