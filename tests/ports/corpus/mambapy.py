"""Mamba in mambapy: a scan of its own inside an autograd function, fewer modules' calls than the reference."""

from __future__ import annotations

import torch
from cases import Bug, Case, Port, shaken, tokens
from conversion import carried, names_of
from transformers import MambaConfig, MambaForCausalLM

MODEL, HEAD = "mambapy.mamba", "mambapy.lm"


def build(load):
    config = MambaConfig(
        vocab_size=64, hidden_size=16, num_hidden_layers=3, state_size=4, tie_word_embeddings=False, time_step_rank=3
    )
    reference = shaken(MambaForCausalLM(config))
    own = load(MODEL).MambaConfig(d_model=16, n_layers=3, d_state=4, dt_rank=3, pscan=False)
    port = load(HEAD).LM(own, 64).eval()
    port = carried(port, reference, names_of(PORT.rename))
    ids = tokens(64)
    return Case(reference, port, reference_kwargs={"input_ids": ids, "use_cache": False}, port_args=(ids,))


def negate_decay(layer):
    """Load the decay rates as they are used, not their logarithm."""
    with torch.no_grad():
        layer.mixer.A_log.copy_(layer.mixer.A_log.exp())


RESIDUAL = ("hidden_states = residual + hidden_states",)
SEQUENTIAL = "def selective_scan_seq"

BUGS = (
    Bug(
        "residual missing",
        ("",),
        MODEL,
        "output = self.mixer(self.norm(x)) + x",
        "output = self.mixer(self.norm(x))",
        reference_lines=RESIDUAL,
    ),
    Bug(
        "residual after the norm",
        ("",),
        MODEL,
        "output = self.mixer(self.norm(x)) + x",
        "output = self.mixer(self.norm(x)) + self.norm(x)",
        reference_lines=RESIDUAL,
    ),
    Bug(
        "norm skipped",
        ("",),
        MODEL,
        "output = self.mixer(self.norm(x)) + x",
        "output = self.mixer(x) + x",
        reference_lines=("self.norm(hidden_states", "torch.rsqrt(variance"),
    ),
    Bug("gate and input swapped", ("mixer",), MODEL, "x, z = xz.chunk(2, dim=-1)", "z, x = xz.chunk(2, dim=-1)"),
    Bug(
        "convolution looks ahead",
        ("mixer",),
        MODEL,
        "x = self.conv1d(x)[:, :, :L]",
        "x = self.conv1d(x)[:, :, 1 : L + 1]",
    ),
    Bug(
        "activation of the convolution missing",
        ("mixer",),
        MODEL,
        "x = F.silu(x)\n        y = self.ssm(x, z)",
        "y = self.ssm(x, z)",
        reference_lines=("causal_conv1d", "activation"),
    ),
    Bug(
        "gelu on the gate",
        ("mixer",),
        MODEL,
        "z = F.silu(z)\n\n        output = y * z",
        "z = F.gelu(z)\n\n        output = y * z",
        "# the rest of the operations are done in the ssm",
    ),
    Bug(
        "sign of the decay",
        ("mixer",),
        MODEL,
        "A = -torch.exp(self.A_log.float()) # (ED, N)\n        D",
        "A = -self.A_log.float().abs() # (ED, N)\n        D",
    ),
    Bug("B and C swapped", ("mixer",), MODEL, "delta, B, C = torch.split(", "delta, C, B = torch.split(", "def ssm("),
    Bug(
        "bias of the step missing",
        ("mixer",),
        MODEL,
        "F.softplus(delta + self.dt_proj.bias)\n\n            if",
        "F.softplus(delta)\n\n            if",
    ),
    Bug(
        "exponential instead of softplus",
        ("mixer",),
        MODEL,
        "F.softplus(delta + self.dt_proj.bias)\n\n            if",
        "torch.exp(delta + self.dt_proj.bias)\n\n            if",
    ),
    Bug(
        "state not carried",
        ("mixer",),
        MODEL,
        "h = deltaA[:, t] * h + BX[:, t]",
        "h = deltaA[:, t] + BX[:, t]",
        SEQUENTIAL,
    ),
    Bug(
        "skip connection missing",
        ("mixer",),
        MODEL,
        "y = y + D * x",
        "y = y + 0 * x",
        SEQUENTIAL,
        reference_lines=("D[", "* D"),
    ),
    Bug(
        "norm without its weight",
        ("norm",),
        MODEL,
        "return output * self.weight",
        "return output * 1",
        reference_lines=("self.weight * hidden_states",),
    ),
    Bug(
        "last norm missing",
        ("",),
        HEAD,
        "x = self.norm_f(x)",
        "pass",
        "def forward",
        in_layer=False,
        reference_lines=("self.norm_f(", "torch.rsqrt(variance"),
    ),
    Bug("decay rates without logarithm", ("mixer",), change=negate_decay),
)

PORT = Port(
    "mambapy",
    "mambapy",
    ("mambapy",),
    build,
    BUGS,
    "mamba.layers.1",
    {"embedding": "backbone.embeddings", "mamba.layers.*": "backbone.layers.*", "norm_f": "backbone.norm_f"},
)
