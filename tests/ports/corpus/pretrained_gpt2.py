"""GPT-2 in pytorch-pretrained-bert, of 2019: (in, out) weights, attention written out, keys transposed early."""

from __future__ import annotations

import torch
from cases import Bug, Case, Port, shaken, tokens
from transformers import GPT2Config, GPT2LMHeadModel

MODEL = "pytorch_pretrained_bert.modeling_gpt2"


def build(load):
    config = GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=3, n_head=4, bos_token_id=1, eos_token_id=2)
    reference = shaken(GPT2LMHeadModel(config))
    module = load(MODEL)
    own = module.GPT2Config(64, n_positions=32, n_ctx=32, n_embd=32, n_layer=3, n_head=4)
    port = module.GPT2LMHeadModel(own).eval()
    weights = reference.state_dict() | {"lm_head.decoder.weight": reference.lm_head.weight}
    weights.pop("lm_head.weight")
    unknown = port.load_state_dict(weights, strict=False)
    assert not unknown.unexpected_keys, unknown
    ids = tokens(64)
    return Case(reference, port, reference_kwargs={"input_ids": ids, "use_cache": False}, port_args=(ids,))


def transpose_output(block):
    """Load the output matrix transposed, as if it were stored (out, in)."""
    with torch.no_grad():
        block.attn.c_proj.weight.copy_(block.attn.c_proj.weight.T.clone())


def roll_fused_columns(block):
    """Load key, value, query where query, key, value are expected."""
    with torch.no_grad():
        block.attn.c_attn.weight.copy_(block.attn.c_attn.weight.roll(-32, 1))


RESIDUAL = ("hidden_states = attn_output + residual", "hidden_states = residual + feed_forward_hidden_states")

BUGS = (
    Bug(
        "gelu without tanh",
        ("transformer.h.0.mlp",),
        MODEL,
        "return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3))))",
        "return torch.nn.functional.gelu(x)",
        in_layer=False,
        shows=("h = self.act(self.c_fc(x))",),
    ),
    Bug("first residual missing", ("",), MODEL, "        x = x + a\n", "        x = a\n", reference_lines=RESIDUAL),
    Bug("second residual after the norm", ("",), MODEL, "x = x + m", "x = self.ln_2(x) + m", reference_lines=RESIDUAL),
    Bug(
        "second norm skipped",
        ("",),
        MODEL,
        "m = self.mlp(self.ln_2(x))",
        "m = self.mlp(x)",
        reference_lines=("self.ln_2(hidden_states)",),
    ),
    Bug("first norm used twice", ("",), MODEL, "m = self.mlp(self.ln_2(x))", "m = self.mlp(self.ln_1(x))"),
    Bug(
        "scale missing",
        ("attn",),
        MODEL,
        "w = w / math.sqrt(v.size(-1))",
        "w = w / 1",
        shows=("nn.Softmax(dim=-1)(w)", "w = w * b - 1e4 * (1 - b)"),
    ),
    Bug("scale of all heads", ("attn",), MODEL, "w = w / math.sqrt(v.size(-1))", "w = w / math.sqrt(self.split_size)"),
    Bug(
        "mask off by one",
        ("attn",),
        MODEL,
        "b = self.bias[:, :, ns-nd:ns, :ns]",
        "b = self.bias[:, :, ns-nd+1:ns+1, :ns]",
    ),
    Bug(
        "key and query swapped",
        ("attn",),
        MODEL,
        "query, key, value = x.split(self.split_size, dim=2)",
        "key, query, value = x.split(self.split_size, dim=2)",
    ),
    Bug(
        "heads merged before the transposition",
        ("attn",),
        MODEL,
        "x = x.permute(0, 2, 1, 3).contiguous()\n        new_x_shape = x.size()[:-2]",
        "x = x.permute(0, 2, 3, 1).contiguous()\n        new_x_shape = x.size()[:-2]",
    ),
    Bug("softmax over the queries", ("attn",), MODEL, "w = nn.Softmax(dim=-1)(w)", "w = nn.Softmax(dim=-2)(w)"),
    Bug("bias missing", ("attn.c_attn",), MODEL, "torch.addmm(self.bias, x.view", "torch.addmm(self.bias * 0, x.view"),
    Bug(
        "positions offset",
        ("transformer",),
        MODEL,
        "position_ids = torch.arange(past_length, input_ids.size(-1) + past_length,",
        "position_ids = torch.arange(past_length + 1, input_ids.size(-1) + past_length + 1,",
        "class GPT2Model(",
        in_layer=False,
        shows=("self.wpe(position_ids)",),
    ),
    Bug(
        "position embeddings missing",
        ("transformer",),
        MODEL,
        "hidden_states = inputs_embeds + position_embeds + token_type_embeds",
        "hidden_states = inputs_embeds + token_type_embeds",
        in_layer=False,
        reference_lines=("inputs_embeds + position_embeds",),
    ),
    Bug(
        "last norm missing",
        ("transformer",),
        MODEL,
        "hidden_states = self.ln_f(hidden_states)",
        "pass",
        in_layer=False,
        reference_lines=("self.ln_f(hidden_states)",),
    ),
    Bug("output matrix transposed", ("attn.c_proj", "attn"), change=transpose_output),
    Bug("fused columns in another order", ("attn.c_attn", "attn"), change=roll_fused_columns),
)

PORT = Port(
    "pretrained-gpt2",
    "pytorch_pretrained_bert",
    (MODEL,),
    build,
    BUGS,
    "transformer.h.1",
    {"lm_head.decoder": "lm_head"},
)
