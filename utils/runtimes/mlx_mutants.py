"""How often random edits of mlx-lm's files are named: ``python utils/runtimes/mlx_mutants.py [how many] [dtype]``.

Each edit changes one expression of a model file; what the reference calls that is known by the kind of the edit. An
edit that raises or changes no output is none.
"""

from __future__ import annotations

import importlib.util
import random
import re
import sys
import warnings
from collections import Counter
from functools import cache, partial
from pathlib import Path
from tempfile import mkdtemp
from types import ModuleType
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_corpus import IDS, mlx_model, reference
from scoring import Score, score

from pytest_tfdebug import Trace, compare, trace
from pytest_tfdebug.runtimes.mlx import arrays

#: Types whose port is quiet as it is.
QUIET = (
    *(
        "llama",
        "mistral",
        "qwen2",
        "qwen3",
        "gemma3_text",
        "phi",
        "phi3",
        "stablelm",
        "cohere",
        "olmo2",
        "olmoe",
        "granite",
    ),
    *(
        "granitemoe",
        "glm4",
        "glm4_moe",
        "nemotron",
        "mixtral",
        "qwen2_moe",
        "helium",
        "smollm3",
        "ernie4_5",
        "seed_oss",
    ),
    *(
        "hunyuan_v1_dense",
        "deepseek_v3",
        "mamba",
        "mamba2",
        "dots1",
        "falcon_h1",
        "ministral3",
        "lfm2_moe",
        "nemotron_h",
    ),
    *("gptj", "laguna"),
)
_ROPE = r"rotate_half|cos|sin|rotary|rope|freqs"
_ATTENTION = r"attention_interface|matmul|scaled_dot|softmax|scaling|bmm|mask"
_NORM = r"norm|rsqrt|variance|pow\(2\)|weight \*"
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
    (r"swiglu\(", r"1.1 * swiglu(", _MLP),
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
    from mlx_lm.utils import _get_classes

    name = _get_classes({"model_type": kind})[0].__module__
    found = importlib.util.find_spec(name)
    assert found is not None and found.origin is not None  # noqa: S101, PT018
    return name, Path(found.origin).read_text(encoding="utf-8")


def edited(name: str, text: str) -> ModuleType:
    """Return a module of mlx-lm with another text."""
    module = ModuleType(f"{name}_edited")
    module.__package__ = "mlx_lm.models"
    sys.modules[module.__name__] = module
    exec(compile(text, f"{name}.py", "exec"), vars(module))  # noqa: S102 - it is the point
    return module


def edits(text: str) -> list[tuple[int, int, str, str]]:
    """Return every edit of a text: where, what takes the place, and the reference's words."""
    return [
        (each.start(), each.end(), each.expand(new), told)
        for old, new, told in EDITS
        for each in re.finditer(old, text, re.MULTILINE)
    ]


def main() -> None:
    """Print the score."""
    warnings.simplefilter("ignore")
    mx.set_default_device(mx.cpu)
    wanted, dtype = int(sys.argv[1]) if len(sys.argv) > 1 else 100, sys.argv[2] if len(sys.argv) > 2 else "float32"  # noqa: PLR2004
    rng, scores, widths, folder = random.Random(0), Counter[Score](), [], Path(mkdtemp())  # noqa: S311
    subjects: dict[str, tuple[Any, Any, Any]] = {}
    while sum(scores.values()) < wanted:
        kind = rng.choice(QUIET)
        name, text = source(kind)
        first, last, new, told = rng.choice(edits(text))
        try:
            if kind not in subjects:
                model = reference(kind)
                subjects[kind] = model, golden_of(model, folder / kind, dtype), output(mlx_model(model, dtype=dtype))
            model, golden, right = subjects[kind]
            port = mlx_model(model, edited(name, text[:first] + new + text[last:]), dtype=dtype)
            found = arrays(port, mx.array(IDS.numpy()))
            wrong = output(port)
        except Exception:  # noqa: BLE001, S112 - no model comes of it, or MLX has no such kernel on a CPU
            continue
        if wrong.shape != right.shape or not np.isfinite(wrong).all():
            continue
        if np.abs(wrong - right).max() <= (1e-4 if dtype == "float32" else 0.05) * np.abs(right).max():
            continue
        got, width = score(compare(golden, found), partial(_matches, told))
        scores[got] += 1
        widths.append(width)
        line = 1 + text[:first].count("\n")
        print(
            f"{got:8} {width:3} {kind:16} {name.rpartition('.')[2]}.py:{line} {text[first:last]!r} -> {new!r}",
            flush=True,
        )
    print(dict(scores), "median statements", np.median(widths), "most", max(widths))


def golden_of(model: Any, path: Path, dtype: str) -> Trace:  # noqa: ANN401 - of transformers
    """Return a trace of a model as it is read from a file, with the floors of a dtype."""
    trace(model, input_ids=IDS, use_cache=False).save(path, dtypes=() if dtype == "float32" else (dtype,))
    return Trace.load(path)


def _matches(told: str, text: str) -> bool:
    return bool(re.search(told, text))


def output(port: Any) -> Any:  # noqa: ANN401
    """Return what a model of MLX gives, in float32."""
    return np.array(port(mx.array(IDS.numpy())).astype(mx.float32))


if __name__ == "__main__":
    main()
