"""Model types that both transformers and mlx-lm implement, at tiny seeded configurations.

As a script it prints which ports of mlx-lm are quiet as they are.

``--edits N``       how many random edits of mlx-lm's files are named, where each changes one expression: what the
                    reference calls that is known by the kind of the edit; one that raises or changes no output is none
``--fixes CLONE``   replays real fixes of mlx-lm: the parent of each is to be loud in an interval that holds the line
                    which it fixed, the fix itself quiet; each runs in a process of its own, with the package as it was
"""

from __future__ import annotations

import argparse
import logging
import random
import re
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from types import ModuleType
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np
import torch
from mlx_lm import utils as mlx_utils
from scoring import Trial, measure, score
from transformers import AutoModelForCausalLM, PreTrainedModel

import command

# isort: split
from editing import EditedFile

from pytest_tfdebug import Trace, compare, trace
from pytest_tfdebug.mlx import arrays
from sweep import EXPERTS, LOCAL_EXPERTS, saved, small_config

# fmt: off
_FEW = {**EXPERTS, "moe_intermediate_size": 32}
_DEEPSEEK = {
    "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_shared_experts": 1, "n_group": 2,
    "topk_group": 1, "first_k_dense_replace": 1, "num_key_value_heads": 4, "kv_lora_rank": 16, "q_lora_rank": 24,
    "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "head_dim": 8,
}
_GLM = {**_DEEPSEEK, "head_dim": 16, "num_key_value_heads": 2}
_SCALED = {"logits_scaling": 2.0, "residual_multiplier": 0.5}
#: Model type -> what its configuration needs beside the sizes. mlx-lm agrees on the first, differs on the rest.
TYPES: dict[str, dict[str, Any]] = {
    "llama": {"rms_norm_eps": 1e-5}, "mistral": {}, "qwen2": {}, "qwen3": {},
    "gemma3_text": {"query_pre_attn_scalar": 16, "sliding_window": 4, "sliding_window_pattern": 2},
    "phi": {}, "phi3": {}, "stablelm": {}, "cohere": {}, "olmo2": {}, "olmoe": {**_FEW, "num_key_value_heads": 4},
    "granite": {**_SCALED, "embedding_multiplier": 3.0, "attention_multiplier": 0.2},
    "granitemoe": {**LOCAL_EXPERTS, **_SCALED}, "glm4": {}, "glm4_moe": _GLM, "nemotron": {}, "mixtral": LOCAL_EXPERTS,
    "qwen2_moe": {**_FEW, "shared_expert_intermediate_size": 48},
    **{kind: {} for kind in ("helium", "smollm3", "ernie4_5", "seed_oss", "hunyuan_v1_dense")},
    "deepseek_v3": _DEEPSEEK, "mamba": {"state_size": 8, "expand": 2, "use_mambapy": False},
    "mamba2": {"head_dim": 16, "intermediate_size": 96, "state_size": 8, "num_heads": 8, "expand": 2, "n_groups": 1,
               "chunk_size": 4},
    "dots1": _GLM, "falcon_h1": {"head_dim": 16, "mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16,
                                 "mamba_d_state": 8},
    "ministral3": {}, "lfm2_moe": {**_FEW, "layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "nemotron_h": {"hybrid_override_pattern": "*-"},
    "gptj": {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128, "rotary_dim": 8, "n_inner": None},
    "laguna": _FEW, "gemma": {}, "gemma2": {"query_pre_attn_scalar": 16, "sliding_window": 4}, "starcoder2": {},
    "glm": {}, "jamba": {**_FEW, "mamba_d_state": 8, "mamba_dt_rank": 4, "use_mamba_kernels": False,
                         "attn_layer_period": 2, "attn_layer_offset": 1},
    "ernie4_5_moe": {"moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 32, "moe_layer_start_index": 1},
    "glm4_moe_lite": _DEEPSEEK, "internlm3": {},
    "olmo3": {"sliding_window": 4, "num_hidden_layers": 4},  # every fourth has full attention, and mlx-lm asks for one
}
# fmt: on
QUIET = [*TYPES][:33]
IDS = torch.arange(1, 13)[None] * 7 % 99


def reference(kind: str, **more: Any) -> PreTrainedModel:
    """Return a tiny seeded model of a type, with every one-dimensional parameter off its 0 or 1."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = small_config(kind, {"initializer_range": 0.1, **TYPES[kind], **more})
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval().float()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() == 1:
                    parameter.add_(0.1 * torch.randn_like(parameter))
                elif not parameter.any():
                    parameter.normal_(0, 0.1)
    return model


def mlx_model(model: PreTrainedModel, module: ModuleType | None = None, *, dtype: str = "float32") -> Any:
    """Return mlx-lm's model with the weights of a reference, through its own loader.

    Args:
        model: The reference.
        module: The module that holds its classes; that of mlx-lm without one.
        dtype: Name of the dtype of its weights.
    """
    classes = {} if module is None else {"get_model_classes": lambda **_: (module.Model, module.ModelArgs)}
    with saved(model, model.config) as folder:
        port, *_ = mlx_utils.load_model(folder, **classes)
    port.set_dtype(getattr(mx, dtype))
    mx.eval(port.parameters())
    return port


_ROPE = r"rotate_half|cos|sin|rotary|rope|freqs"
_ATTENTION = r"attention_interface|matmul|scaled_dot|softmax|scaling|bmm|mask"
_NORM = r"norm|\bln_\w+|rsqrt|variance|pow\(2\)|weight \*"
_RESIDUAL = r"residual|hidden_states \+|\+ hidden_states|attn_output \+"
_MLP = r"act_fn|gate|up_proj|down_proj|fc1|fc2|chunk|activation"
_ROUTING = r"expert|router|top_?k|gate|routing|weights|scores|moe"
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
    (r"\* scores\[\.\.\., None\]", r"* 1.1 * scores[..., None]", _ROUTING),
    (r"k = self\.(\w+)$", r"k = self.\1 - 1", _ROUTING),
    (r"mx\.softmax\(gates, axis=-1", r"mx.softmax(1.1 * gates, axis=-1", _ROUTING),
    (r"self\.mlp\(", r"1.1 * self.mlp(", _RESIDUAL + "|" + _MLP),
    (r"self\.self_attn\(", r"1.1 * self.self_attn(", _RESIDUAL + "|o_proj|attn"),
    (r"\* self\.(residual_multiplier|embedding_multiplier|embed_scale)", r"", _RESIDUAL + "|embed"),
    (r"nn\.softplus\(", r"nn.silu(", _MIXER),
    (r"-mx\.exp\(", r"-1.1 * mx.exp(", _MIXER),
)


class Fix(NamedTuple):
    """A fix, and a model that shows it."""

    commit: str
    what: str
    kind: str
    more: dict[str, Any]
    truth: str


_PLAIN = {"rope_type": "default", "rope_theta": 10000.0}
_WINDOWS: dict[str, Any] = {
    "sliding_attention": _PLAIN,
    "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
}
_DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
_GEMMA2 = {"hidden_activation": "gelu_pytorch_tanh", "sliding_window": 64}
_ROTARY = r"rot|cos|sin|freq"
FIXES = (
    Fix("04a19108", "routing by sigmoid", "lfm2_moe", {"use_expert_bias": True}, r"sigmoid|top_?k|rout|gather"),
    Fix("5261ab85", "order of swiglu's operands", "mixtral", {}, r"act_fn|gate|chunk"),
    Fix("b8bbbca6", "partial rotary", "phi3", {"partial_rotary_factor": 0.5}, _ROTARY),
    Fix("1dc5de4f", "a mask of truth values", "gemma2", _GEMMA2, r"mask|softmax"),
    Fix("cff94b7f", "partial rotary", "glm4", {}, _ROTARY),
    Fix("b343a055", "scaled rotary in windows", "gemma3_text", {"rope_parameters": _WINDOWS}, _ROTARY),
    Fix("13425df6", "dynamic rotary", "internlm3", {"rope_parameters": _DYNAMIC}, _ROTARY),
)


def output(port: Any) -> Any:
    """Return what a model of MLX gives, in float32."""
    return np.array(port(mx.array(IDS.numpy())).astype(mx.float32))


def compared(kind: str, dtype: str = "float32", **more: Any) -> Any:
    """Return the report on the port of a type."""
    model = reference(kind, **more)
    found = arrays(mlx_model(model, dtype=dtype), mx.array(IDS.numpy()))
    return compare(trace(model, input_ids=IDS, use_cache=False), found)


def quiet(options: argparse.Namespace) -> None:
    """Print a row for each type."""
    table = command.Table("mlx-lm", "quiet", "differs", "paired", "arrays", "farthest", "")
    for kind in options.only:
        try:
            report = compared(kind, options.dtype)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a kernel that MLX has not
            print(f"{kind}: not run: {type(error).__name__}: {str(error).splitlines()[0][:90]}")
            continue
        farthest = max((array.distance for array in report.arrays if array.partners), default=0.0)
        told = "" if report.ok else str(report).splitlines()[0]
        quiet = int(report.ok), int(not report.ok)
        table.add(kind, (*quiet, report.tensors, len(report.arrays), f"{farthest:.1e}", told))
    table.total()


@cache
def golden(kind: str, dtype: str) -> tuple[Any, Trace, Any]:
    """Return a reference, its golden with the floors of a dtype, and what the clean port gives."""
    model, path = reference(kind), Path(mkdtemp()) / "golden.safetensors"
    trace(model, input_ids=IDS, use_cache=False).save(path, dtypes=() if dtype == "float32" else (dtype,))
    return model, Trace.load(path), output(mlx_model(model, dtype=dtype))


def draw(rng: random.Random, dtype: str) -> Trial | None:
    """Make a random edit."""
    kind = rng.choice(QUIET)
    name = mlx_utils._get_classes({"model_type": kind})[0].__module__  # noqa: SLF001 - the only table of classes
    text = Path(import_module(name).__file__ or "").read_text(encoding="utf-8")
    edits = [(each, new, told) for old, new, told in EDITS for each in re.finditer(old, text, re.MULTILINE)]
    each, new, told = rng.choice(edits)
    edited = text[: each.start()] + each.expand(new) + text[each.end() :]
    try:
        model, expected, right = golden(kind, dtype)
        with EditedFile(name, text, edited, after="", reloaded=[name]).in_place():
            port = mlx_model(model, import_module(name), dtype=dtype)
        found, wrong = arrays(port, mx.array(IDS.numpy())), output(port)
    except Exception:  # noqa: BLE001 - no model comes of it, or MLX has no such kernel on a CPU
        return None
    if wrong.shape != right.shape or not np.isfinite(wrong).all():
        return None
    if np.abs(wrong - right).max() <= (1e-4 if dtype == "float32" else 0.05) * np.abs(right).max():
        return None
    line = 1 + text[: each.start()].count("\n")
    where = f"{kind:16} {name.rpartition('.')[2]}.py:{line} {each.group()!r} -> {each.expand(new)!r}"
    return Trial(where, expected, found, lambda text: bool(re.search(told, text)))


def replay(options: argparse.Namespace) -> None:
    """Print a line for the parent of each fix and for the fix."""
    for fix in (fix for fix in FIXES if fix.kind in options.only):
        for revision in (f"{fix.commit}^", fix.commit):
            with TemporaryDirectory() as folder, ProcessPoolExecutor(1, get_context("spawn")) as pool:
                sys.path.insert(0, _unpacked(options.fixes, revision, folder))  # which the new process has as well
                try:
                    told = pool.submit(judge, fix).result()
                except (Exception, SystemExit) as error:  # noqa: BLE001 - an old package may not fit
                    told = f"not run: {error}"
                del sys.path[0]
            print(f"{revision:10} {fix.kind:12} {fix.what:28} {told}", flush=True)


def _unpacked(clone: str, revision: str, folder: str) -> str:
    """Write the package as it was at a revision, and return the folder that it is imported from."""
    git: Any = partial(subprocess.run, check=True, capture_output=True)
    listed = git(["git", "-C", clone, "ls-tree", "-d", "--name-only", revision]).stdout.decode().split()
    inside = "mlx_lm" if "mlx_lm" in listed else "llms/mlx_lm"
    git(["tar", "-x", "-C", folder], input=git(["git", "-C", clone, "archive", revision, inside]).stdout)
    return str((Path(folder) / inside).parent)


def judge(fix: Fix) -> str:
    """Return the score of the mlx-lm on the path."""
    settle()
    report = compared(fix.kind, **fix.more)
    if report.ok:
        return "quiet"
    got = " ".join(map(str, score(report, lambda text: bool(re.search(fix.truth, text)))))
    return f"{got:10} {str(report).splitlines()[0]}"


def settle() -> None:
    """Run on the processor, and print nothing but what the script prints."""
    command.quiet()
    logging.disable(logging.WARNING)
    mx.set_default_device(mx.cpu)


def main() -> None:
    """Print what is asked for."""
    parser = command.parser(__doc__, "only", "dtype", "edits", "seed", only=[*TYPES], edits=0)
    parser.add_argument("--fixes", metavar="CLONE", help="of mlx-lm, whose fixes are replayed")
    options = parser.parse_args()
    settle()
    if options.fixes:
        replay(options)
    elif options.edits:
        measure(partial(draw, dtype=options.dtype), options)
    else:
        quiet(options)


if __name__ == "__main__":
    main()
