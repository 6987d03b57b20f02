"""What happens on every text architecture of the installed transformers that a small configuration can be made of.

Each model is traced, the trace is written, read and compared with a second forward; the model runs under
``overflow_guard``; its call is repeated with padding. It is compared with itself under other kernels too: eager
attention, each implementation of experts, two threads; by the tolerance of the dtype, and by floors. Then one linear
layer is changed, chosen by a seed, and the comparison has to name it. It is held to the promise ``accumulation``, as it
is and with a backward of that layer that averages over the rows of a batch. Its forward and backward are held to
those of a copy, of other kernels, and of checkpointing, in float32 and in bfloat16. Printed are every finding by name,
and how often each outcome was. What the padding check finds are leaks of the architectures: look at the lines that it
names. ``--look "train step,half step"`` looks at these columns only. ``dead`` is what no output of a call depends on,
with positions and kinds of tokens among its inputs: each is to be read in the model's source. ``unseen`` is what a
comparison of the model with itself says that it does not show.
"""

from __future__ import annotations

import copy
import inspect
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.models.auto import modeling_auto

import command
import pytest_tfdebug
from pytest_tfdebug import Trace
from pytest_tfdebug.conform.mixin import PROMISES
from pytest_tfdebug.conform.subject import Subject
from pytest_tfdebug.goldens.blind_spots import _by_module, _weights
from pytest_tfdebug.goldens.dead import find_dead
from pytest_tfdebug.steps.api import held
from pytest_tfdebug.steps.run import TrainedModel, plain_run
from pytest_tfdebug.tracing.values.precision import measure_floors
from pytest_tfdebug.tracing.values.rerun import Rerun

Inputs = dict[str, torch.Tensor]

_ACCUMULATION = next(promise for promise in PROMISES if promise.name == "accumulation")

FAMILIES = {
    "causal": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    "masked": modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    "sequence to sequence": modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
}
_VOCABULARY = 99
#: Configuration entries and their small values; an architecture takes those that it has.
_SIZES = {
    "vocab_size": _VOCABULARY,
    "max_position_embeddings": 128,
    "n_positions": 128,
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "num_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "embedding_size", "word_embed_proj_dim"), 32),
    **dict.fromkeys(("intermediate_size", "d_ff", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim"), 64),
    **dict.fromkeys(("num_key_value_heads", "num_experts_per_tok"), 2),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("n_group", "topk_group"), 1),
    **dict.fromkeys(("head_dim", "d_kv", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"), 8),
    **dict.fromkeys(("kv_lora_rank", "q_lora_rank", "moe_intermediate_size", "state_size", "rotary_dim"), 8),
    **dict.fromkeys(("linear_num_key_heads", "linear_num_value_heads"), 4),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim"), 8),
}
#: Entries that some architectures derive, or refuse at these sizes; left out in turn until a forward succeeds.
_WITHOUT: tuple[tuple[str, ...], ...] = (
    (),
    ("layer_types",),
    ("head_dim",),
    ("layer_types", "head_dim"),
    ("num_key_value_heads",),
    ("num_key_value_heads", "layer_types", "v_head_dim", "head_dim"),
    ("num_hidden_layers", "num_layers"),
)
_LARGEST = 8_000_000


def small(kind: str, families: Iterable[str] = FAMILIES) -> tuple[torch.nn.Module, Inputs]:
    """Return a seeded model of an architecture in eval mode, and inputs that its forward takes.

    Raises:
        ValueError: If none of the small configurations gives a model that runs.
    """
    found = next(FAMILIES[family][kind] for family in families if kind in FAMILIES[family])
    model_class = getattr(transformers, found if isinstance(found, str) else found[0])
    config_class, problems = transformers.CONFIG_MAPPING[kind], []
    for without in _WITHOUT:
        try:
            return _running(config_class, model_class, without)
        except Exception as error:  # noqa: BLE001, PERF203 - every architecture has refusals of its own
            problems.append(f"{type(error).__name__}: {error}")
    raise ValueError(problems[0].strip().splitlines()[0][:100])


def _running(config_class: type, model_class: Any, without: tuple[str, ...]) -> tuple[torch.nn.Module, Inputs]:
    config = _config(config_class, without)
    with torch.device("meta"):
        size = sum(parameter.numel() for parameter in model_class(config).parameters())
    if size > _LARGEST:
        raise ValueError(f"{size:,} parameters at these sizes")
    torch.manual_seed(0)
    model = model_class(config).eval()
    inputs = _inputs(model)
    with torch.no_grad():
        model(**inputs)
    return model, inputs


def findings(model: torch.nn.Module, inputs: Inputs, look: Iterable[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield what was looked at, all or what is asked for, and what was found: nothing, where all is as it should be."""
    for name in look or _STEPS:
        step = _STEPS[name]
        with tempfile.TemporaryDirectory() as directory:
            try:
                recorded, path = pytest_tfdebug.trace(model, **inputs), Path(directory) / "trace.safetensors"
                measure_floors(recorded)
                recorded.save(path)
                yield name, step(Trace.load(path), model, inputs)
            except Exception as error:  # noqa: BLE001 - whatever goes wrong is the finding
                yield name, f"{type(error).__name__}: {error}"


def _told(expected: Trace, model: torch.nn.Module, inputs: Inputs, **settings: Any) -> str:
    """Return the report on a model, where it is not one that agrees."""
    report = pytest_tfdebug.compare(expected, pytest_tfdebug.trace(model, **inputs), **settings)
    return "" if report.ok and report.tensors else str(report)


def _train_step(_: Trace, model: torch.nn.Module, inputs: Inputs, dtype: torch.dtype = torch.float32) -> str:
    """Hold forward and backward to those of a copy, of other kernels and of checkpointing: none is a fault."""
    batch = {**inputs, "labels": inputs.get("decoder_input_ids", inputs["input_ids"])}
    reference = copy.deepcopy(model).to(dtype)
    made: dict[bool, Any] = {}  # the reference's run, of each mode
    for name, other in _trained_variants(reference):
        reference.train(other.training)
        try:
            other(**batch).loss.backward()
        except (RuntimeError, ValueError, NotImplementedError):  # some do not run at these sizes
            continue
        if other.training not in made:
            made[other.training] = TrainedModel(reference, plain_run, batch, "reference").made()
        port = TrainedModel(other, plain_run, batch, "port")
        report = held(made[other.training], port.made(), port.backward)
        if not report:
            return f"{name}: {report}"
    return ""


def _trained_variants(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield models whose gradients are to be those of a model, with the name of what is otherwise."""
    yield "a copy", copy.deepcopy(model)
    yield from ((name, other) for name, other in _variants(model) if other is not model)
    if model.supports_gradient_checkpointing:
        for reentrant in (False, True):
            other = copy.deepcopy(model).train()
            other.gradient_checkpointing_enable({"use_reentrant": reentrant})
            yield f"checkpointing{', reentrant' * reentrant}", other


def _overflow(_: Trace, model: torch.nn.Module, inputs: Inputs) -> str:
    with torch.no_grad(), pytest_tfdebug.overflow_guard(model):
        model(**inputs)
    return ""


def _kernels(expected: Trace, model: torch.nn.Module, inputs: Inputs, **settings: Any) -> str:
    """Compare the model with itself under other kernels: these are not faults, whatever their inner shapes."""
    for name, other in _variants(model):
        try:
            with torch.no_grad():
                other(**inputs)
        except (RuntimeError, ValueError, NotImplementedError):  # some do not run at these sizes
            continue
        found = _told(expected, other, inputs, **settings)
        if found:
            return f"{name}: {found}"
    return ""


def _variants(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield models that use other kernels, with the name of these."""
    if model.config._attn_implementation == "sdpa":  # noqa: SLF001 - transformers' own name for it
        eager = copy.deepcopy(model)
        eager.set_attn_implementation("eager")
        yield "eager attention", eager
    has_experts = getattr(model, "_can_set_experts_implementation", lambda: False)()
    for name in ("eager", "batched_mm", "grouped_mm") if has_experts else ():
        other = copy.deepcopy(model)
        other.set_experts_implementation(name)
        yield f"{name} experts", other
    torch.set_num_threads(2)
    try:
        yield "two threads", model
    finally:
        torch.set_num_threads(1)


def _culprit(expected: Trace, model: torch.nn.Module, inputs: Inputs) -> str:
    """Change one linear layer that the model calls, and ask which it was."""
    wrong = copy.deepcopy(model)
    path = _chosen(expected, wrong)
    if path is None:
        return ""
    with torch.no_grad():
        wrong.get_parameter(f"{path}.weight").mul_(1.5)
    report = pytest_tfdebug.compare(expected, pytest_tfdebug.trace(wrong, **inputs), internal="fail")
    named = report.culprit.path if report.culprit is not None else "nothing"
    return "" if named == path else f"{path} is wrong, and {named} was named\n{report}"


def _chosen(expected: Trace, model: torch.nn.Module) -> str | None:
    """Return one linear layer that a model calls and whose weights have an effect; None where there is none."""
    shared = Counter(id(parameter) for module in model.modules() for parameter in module._parameters.values())  # noqa: SLF001
    linear = {
        path: module
        for path, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and shared[id(module.weight)] == 1
    }
    calls = [(call.path, call.inputs) for call in expected if call.path in linear and call.outputs]
    fed = {path for path, given in calls if all(each.tensor is not None and each.tensor.any() for each in given)}
    return random.Random(0).choice(sorted(fed)) if fed else None  # noqa: S311 - the same layer every time


class _Averaged(torch.autograd.Function):
    """The same values, and a gradient that is averaged over the rows of its batch."""

    @staticmethod
    def forward(_: Any, values: torch.Tensor) -> torch.Tensor:
        return values * 1.0

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient / gradient.shape[0]


class _AveragingLinear(torch.nn.Linear):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        averaged: torch.Tensor = _Averaged.apply(super().forward(values))  # type: ignore[no-untyped-call]
        return averaged


def _accumulation(_: Trace, model: torch.nn.Module, inputs: Inputs) -> str:
    """Return why a model does not keep the promise, or why that does not apply."""
    found = _ACCUMULATION.find(Subject(type(model), model.config, inputs))
    return found.failure or found.absent


def _backward(expected: Trace, model: torch.nn.Module, inputs: Inputs) -> str:
    """Give one linear layer a backward that depends on its batch, and ask which it was."""
    path = _chosen(expected, model)
    call = next((each for each in expected if each.path == path), None)
    if path is None or call is None or call.outputs[0].shape[0] != len(inputs["input_ids"]):
        return ""
    weight = model.get_parameter(f"{path}.weight")
    if torch.autograd.grad(model(**inputs)[0].sum(), [weight], allow_unused=True)[0] is None:
        return ""  # a pooler that no output needs
    subject = Subject(type(model), model.config, inputs)
    subject.model.get_submodule(path).__class__ = _AveragingLinear
    found = _ACCUMULATION.find(subject)
    named = found.culprit.path if found.culprit is not None else "nothing"
    return "" if named == path else f"the backward of {path} is wrong, and {named} was named\n{found.failure}"


def _dead(_: Trace, model: torch.nn.Module, inputs: Inputs) -> str:
    """Return what has no effect in a call of the filled model."""
    model, ids = pytest_tfdebug.fill(copy.deepcopy(model)), inputs["input_ids"]
    more = {"token_type_ids": ids % 2, "position_ids": torch.arange(ids.shape[1]).expand_as(ids).contiguous()}
    given = inputs | {
        name: value for name, value in more.items() if name in inspect.signature(model.forward).parameters
    }
    try:
        with torch.no_grad():
            model(**given)
    except Exception:  # noqa: BLE001 - some take kinds or positions of another form
        given = inputs
    found = find_dead(Rerun(model, (), given), _weights(model))
    kinds = {"inputs": found.inputs, "modules": found.modules, "weights": _by_module(model, found.weights)}
    return "; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds.items() if names)


def _unseen(expected: Trace, model: torch.nn.Module, inputs: Inputs) -> str:
    """Return what would pass in place of the model's outputs."""
    return "\n".join(pytest_tfdebug.compare(expected, pytest_tfdebug.trace(model, **inputs)).unseen)


#: What is looked at -> what tells of it, given a trace of the model that was read from a file.
_STEPS: dict[str, Callable[[Trace, torch.nn.Module, Inputs], str]] = {
    "golden": partial(_told, internal="fail"),
    "overflow": _overflow,
    "kernels": _kernels,
    "floors": partial(_kernels, tolerance="fp64"),
    "culprit": _culprit,
    "accumulation": _accumulation,
    "backward": _backward,
    "train step": _train_step,
    "half step": partial(_train_step, dtype=torch.bfloat16),
    "dead": _dead,
    "unseen": _unseen,
    "padding": lambda _, model, inputs: pytest_tfdebug.assert_padding_invariant(model, inputs) or "",
}

#: What is a trait of an architecture where it is found, and no fault of the tool.
_OF_ARCHITECTURES = {"dead", "unseen", "padding"}


def _config(config_class: type, without: tuple[str, ...]) -> Any:
    default = config_class()
    settings: dict[str, Any] = {
        name: value for name, value in _SIZES.items() if name not in without and hasattr(default, name)
    }
    kinds = getattr(default, "layer_types", None)
    if "layer_types" not in without and isinstance(kinds, list) and kinds:
        settings["layer_types"] = [kinds[0], kinds[-1]]
    return config_class(**settings, pad_token_id=0, bos_token_id=1, eos_token_id=2)


def _inputs(model: torch.nn.Module) -> Inputs:
    """Return the inputs that a model's forward takes by name: its ``**kwargs`` would swallow the others."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, _VOCABULARY, (2, 9), generator=generator)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    inputs["decoder_input_ids"] = torch.randint(5, _VOCABULARY, (2, 6), generator=generator)
    taken = inspect.signature(model.forward).parameters
    return {name: value for name, value in inputs.items() if name in taken}


def main() -> int:
    """Look at every architecture; the exit status is 1 if anything was found that an architecture may not have."""
    options = command.parser(__doc__, "only", "look").parse_args()
    command.quiet()
    look = options.look or list(_STEPS)
    table, has_found = command.Table("architectures", "models", *look, "not built"), False
    for family, classes in FAMILIES.items():
        counted = Counter[str]()
        for kind in (kind for kind in classes if kind in (options.only or classes)):
            try:
                model, inputs = small(kind, [family])
            except ValueError as error:
                counted["not built"] += 1
                print(f"{kind}: not built: {error}")
                continue
            counted["models"] += 1
            for name, found in findings(model, inputs, look):
                counted[name] += bool(found)
                if found:
                    print(f"{kind}: {name}: {found}", flush=True)
        table.add(family, counted)
        has_found = has_found or any(counted[name] for name in look if name not in _OF_ARCHITECTURES)
    return int(has_found)


if __name__ == "__main__":
    sys.exit(main())
