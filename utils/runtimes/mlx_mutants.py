"""How often random edits of mlx-lm's files are named.

Each edit changes one expression of a model file; what the reference calls that is known by the kind of the edit. An
edit that raises or changes no output is none.
"""

from __future__ import annotations

import importlib.util
import random
import re
import sys
from functools import cache, partial
from pathlib import Path
from tempfile import mkdtemp
from types import ModuleType
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_corpus import IDS, QUIET, mlx_model, reference
from mlx_lm.utils import _get_classes
from scoring import Trial, measure

import command
from pytest_tfdebug import Trace, trace
from pytest_tfdebug.mlx import arrays

_ROPE = r"rotate_half|cos|sin|rotary|rope|freqs"
_ATTENTION = r"attention_interface|matmul|scaled_dot|softmax|scaling|bmm|mask"
_NORM = r"norm|\bln_\w+|rsqrt|variance|pow\(2\)|weight \*"
_RESIDUAL = r"residual|hidden_states \+|\+ hidden_states|attn_output \+"
_MLP = r"act_fn|gate|up_proj|down_proj|fc1|fc2|chunk|activation"
_EXPERTS = r"expert|router|top_?k|gate|routing|weights|scores|moe"
_MIXER = r"conv|ssm|scan|dt|gate|B\b|C\b|A\b|mixer|hidden_states|state"
#: What is looked for in a file, what takes its place, and what the reference's line looks like.
EDITS: tuple[tuple[str, str, str], ...] = (
    (r"(?<== )(\w+) \+ (r|h|attn_out\w*|ff_out\w*)$", r"\2", _RESIDUAL),
    (r"(?<== )(\w+) \+ (r|h|attn_out\w*|ff_out\w*)$", r"\1 - \2", _RESIDUAL),
    (r"(?<== )(\w+) \+ (r|h)$", r"\1 + 1.05 * \2", _RESIDUAL),
    (r"self\.rope\((\w+)\)", r"\1", _ROPE),
    (r"self\.rope\((\w+)\)", r"self.rope(\1, offset=1)", _ROPE),
    (r"args\.rope_theta", r"(args.rope_theta / 2)", _ROPE),
    (r"traditional=False", r"traditional=True", _ROPE),
    (r"args\.rope_traditional", r"(not args.rope_traditional)", _ROPE),
    (r"scale=self\.scale", r"scale=1.1 * self.scale", _ATTENTION),
    (r"mask=mask(?=[,\s)])", r"mask=None", _ATTENTION),
    (r"\.transpose\(0, 2, 1, 3\)\.reshape\(B, L, -1\)", r".reshape(B, L, -1)", _ATTENTION + "|transpose|reshape"),
    (r"self\.k_proj\(x\), self\.v_proj\(x\)", r"self.v_proj(x), self.k_proj(x)", "k_proj|v_proj"),
    (r"self\.(q|k|v|o)_proj\(", r"1.1 * self.\1_proj(", r"[qkvo]_proj|_proj\(|_rot = |_split_heads"),
    (r"swiglu\(self\.gate_proj\(x\), self\.up_proj\(x\)\)", r"swiglu(self.up_proj(x), self.gate_proj(x))", _MLP),
    (r"nn\.silu\(", r"nn.gelu(", _MLP + "|silu|" + _MIXER),
    (r"swiglu\(", r"1.1 * swiglu(", _MLP + "|silu"),
    (r"nn\.gelu_approx\(", r"nn.silu(", _MLP + "|gelu"),
    (r"self\.((?:\w*layer)?norm\w*|\w+norm)\((\w+)\)", r"\2", _NORM),
    (r"self\.((?:\w*layer)?norm\w*|\w+norm)\((\w+)\)", r"self.\1(1.05 * \2 + 0.1)", _NORM + "|" + _RESIDUAL),
    (r"eps=args\.\w+", r"eps=0.01", _NORM),
    (r"self\.embed_tokens\(inputs\)", r"1.1 * self.embed_tokens(inputs)", "embed"),
    (r"self\.lm_head\(out\)", r"1.01 * self.lm_head(out)", "lm_head|logits"),
    (r"\.as_linear\((\w+)\)", r".as_linear(1.01 * \1)", "lm_head|logits|norm"),
    (r"\* scores\[\.\.\., None\]", r"* 1.1 * scores[..., None]", _EXPERTS),
    (r"k = self\.(\w+)$", r"k = self.\1 - 1", _EXPERTS),
    (r"mx\.softmax\(gates, axis=-1", r"mx.softmax(1.1 * gates, axis=-1", _EXPERTS),
    (r"self\.mlp\(", r"1.1 * self.mlp(", _RESIDUAL + "|" + _MLP),
    (r"self\.self_attn\(", r"1.1 * self.self_attn(", _RESIDUAL + "|o_proj|attn"),
    (r"\* self\.(residual_multiplier|embedding_multiplier|embed_scale)", r"", _RESIDUAL + "|embed"),
    (r"nn\.softplus\(", r"nn.silu(", _MIXER),
    (r"-mx\.exp\(", r"-1.1 * mx.exp(", _MIXER),
)


@cache
def source(kind: str) -> tuple[str, str]:
    """Return the name and the text of the module that implements a type."""
    name = _get_classes({"model_type": kind})[0].__module__
    found = importlib.util.find_spec(name)
    assert found is not None and found.origin is not None  # noqa: PT018
    return name, Path(found.origin).read_text(encoding="utf-8")


def edited(name: str, text: str) -> ModuleType:
    """Return a module of mlx-lm with another text."""
    module = ModuleType(f"{name}_edited")
    module.__package__ = "mlx_lm.models"
    sys.modules[module.__name__] = module
    exec(compile(text, f"{name}.py", "exec"), vars(module))  # noqa: S102 - it is the point
    return module


@cache
def subject(kind: str, dtype: str) -> tuple[Any, Trace, Any]:
    """Return a reference, its golden with the floors of a dtype, and what the clean port gives."""
    model, path = reference(kind), Path(mkdtemp()) / "golden.safetensors"
    trace(model, input_ids=IDS, use_cache=False).save(path, dtypes=() if dtype == "float32" else (dtype,))
    return model, Trace.load(path), output(mlx_model(model, dtype=dtype))


def draw(rng: random.Random, dtype: str) -> Trial | None:
    """Make a random edit."""
    kind = rng.choice(QUIET)
    name, text = source(kind)
    edits = [(each, new, told) for old, new, told in EDITS for each in re.finditer(old, text, re.MULTILINE)]
    each, new, told = rng.choice(edits)
    try:
        model, golden, right = subject(kind, dtype)
        port = mlx_model(model, edited(name, text[: each.start()] + each.expand(new) + text[each.end() :]), dtype=dtype)
        found, wrong = arrays(port, mx.array(IDS.numpy())), output(port)
    except Exception:  # noqa: BLE001 - no model comes of it, or MLX has no such kernel on a CPU
        return None
    if wrong.shape != right.shape or not np.isfinite(wrong).all():
        return None
    if np.abs(wrong - right).max() <= (1e-4 if dtype == "float32" else 0.05) * np.abs(right).max():
        return None
    line = 1 + text[: each.start()].count("\n")
    where = f"{kind:16} {name.rpartition('.')[2]}.py:{line} {each.group()!r} -> {each.expand(new)!r}"
    return Trial(where, golden, found, lambda text: bool(re.search(told, text)))


def output(port: Any) -> Any:
    """Return what a model of MLX gives, in float32."""
    return np.array(port(mx.array(IDS.numpy())).astype(mx.float32))


if __name__ == "__main__":
    options = command.parser(__doc__, "dtype", "edits", "seed").parse_args()
    command.quiet()
    mx.set_default_device(mx.cpu)
    measure(partial(draw, dtype=options.dtype), options)
