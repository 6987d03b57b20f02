"""What happens on every text architecture of the installed transformers that a small configuration can be made of.

Each model is traced, the trace is written, read and compared with a second forward; the model runs under
``overflow_guard``; its call is repeated with padding. It is compared with itself under other kernels too: eager
attention, each implementation of experts, two threads; by the tolerance of the dtype, and by floors. Then one linear
layer is changed, chosen by a seed, and the comparison has to name it. Printed are every finding by name, and how often
each outcome was. What the padding check finds are leaks of the architectures: look at the lines that it names.
"""

from __future__ import annotations

import argparse
import copy
import random
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
from transformers.models.auto import modeling_auto

import pytest_tfdebug
from pytest_tfdebug.tracing.values.floors import measure_floors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_tfdebug.parity.tensors.tolerance import ToleranceBy

    Inputs = dict[str, torch.Tensor]

_FAMILIES = {
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


def small(kind: str, class_name: str) -> tuple[torch.nn.Module, Inputs]:
    """Return a seeded model of an architecture in eval mode, and inputs that its forward takes.

    Raises:
        ValueError: If none of the small configurations gives a model that runs.
    """
    config_class, model_class = transformers.CONFIG_MAPPING[kind], getattr(transformers, class_name)
    problems = []
    for without in _WITHOUT:
        try:
            return _running(config_class, model_class, without)
        except Exception as error:  # noqa: BLE001, PERF203 - every architecture has refusals of its own
            problems.append(f"{type(error).__name__}: {error}")
    raise ValueError(problems[0].strip().splitlines()[0][:100])


def _running(config_class: type, model_class: Any, without: tuple[str, ...]) -> tuple[torch.nn.Module, Inputs]:  # noqa: ANN401
    config = _config(config_class, without)
    with torch.device("meta"):
        size = sum(parameter.numel() for parameter in model_class(config).parameters())
    if size > _LARGEST:
        raise ValueError(f"{size:,} parameters at these sizes")
    torch.manual_seed(0)
    model = model_class(config).eval()
    inputs = _inputs(has_decoder=config.is_encoder_decoder)
    with torch.no_grad():
        model(**inputs)
    return model, inputs


def findings(model: torch.nn.Module, inputs: Inputs) -> Iterator[tuple[str, str]]:
    """Yield what was looked at, and what was found: nothing, where all is as it should be."""
    steps: dict[str, Callable[[], str]] = {
        "golden": lambda: _golden(model, inputs),
        "overflow": lambda: _overflow(model, inputs),
        "kernels": lambda: _kernels(model, inputs),
        "floors": lambda: _kernels(model, inputs, "fp64"),
        "culprit": lambda: _culprit(model, inputs),
        "padding": lambda: _padding(model, inputs),
    }
    for name, step in steps.items():
        try:
            yield name, step()
        except Exception as error:  # noqa: BLE001, PERF203 - whatever goes wrong is the finding
            yield name, f"{type(error).__name__}: {error}"


def _golden(model: torch.nn.Module, inputs: Inputs) -> str:
    expected = _through_a_file(model, inputs)
    report = pytest_tfdebug.compare(expected, pytest_tfdebug.trace(model, **inputs), internal="fail")
    return "" if report.ok and report.tensors else str(report)


def _overflow(model: torch.nn.Module, inputs: Inputs) -> str:
    with torch.no_grad(), pytest_tfdebug.overflow_guard(model):
        model(**inputs)
    return ""


def _kernels(model: torch.nn.Module, inputs: Inputs, tolerance: ToleranceBy = "dtype") -> str:
    """Compare the model with itself under other kernels: these are not faults, whatever their inner shapes."""
    expected = _through_a_file(model, inputs)
    for name, other in _variants(model):
        if not _runs(other, inputs):
            continue
        report = pytest_tfdebug.compare(expected, pytest_tfdebug.trace(other, **inputs), tolerance=tolerance)
        if not report.ok or not report.tensors:
            return f"{name}: {report}"
    torch.set_num_threads(2)
    try:
        report = pytest_tfdebug.compare(expected, pytest_tfdebug.trace(model, **inputs), tolerance=tolerance)
    finally:
        torch.set_num_threads(1)
    return "" if report.ok and report.tensors else f"two threads: {report}"


def _runs(model: torch.nn.Module, inputs: Inputs) -> bool:
    """Tell whether a model runs under these kernels: some do not at these sizes."""
    try:
        with torch.no_grad():
            model(**inputs)
    except (RuntimeError, ValueError, NotImplementedError):
        return False
    return True


def _variants(model: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - a pretrained model
    """Yield copies of a model that use other kernels, with the name of these."""
    if model.config._attn_implementation == "sdpa":  # noqa: SLF001 - transformers' own name for it
        eager = copy.deepcopy(model)
        eager.set_attn_implementation("eager")
        yield "eager attention", eager
    for name in ("eager", "batched_mm", "grouped_mm") if _has_experts(model) else ():
        other = copy.deepcopy(model)
        other.set_experts_implementation(name)
        yield f"{name} experts", other


def _has_experts(model: Any) -> bool:  # noqa: ANN401 - a pretrained model
    return hasattr(model, "_can_set_experts_implementation") and model._can_set_experts_implementation()  # noqa: SLF001


def _culprit(model: torch.nn.Module, inputs: Inputs) -> str:
    """Change one linear layer that the model calls, and ask which it was."""
    expected = _through_a_file(model, inputs)
    wrong = copy.deepcopy(model)
    shared = Counter(id(parameter) for module in wrong.modules() for parameter in module._parameters.values())  # noqa: SLF001
    linear = {
        path: module
        for path, module in wrong.named_modules()
        if isinstance(module, torch.nn.Linear) and shared[id(module.weight)] == 1
    }
    called = sorted({call.path for call in expected if call.path in linear and call.outputs and _is_used(call)})
    if not called:
        return ""
    path = random.Random(0).choice(called)  # noqa: S311 - the same layer every time
    with torch.no_grad():
        linear[path].weight.mul_(1.5)
    report = pytest_tfdebug.compare(expected, pytest_tfdebug.trace(wrong, **inputs), internal="fail")
    named = report.culprit.path if report.culprit is not None else "nothing"
    return "" if named == path else f"{path} is wrong, and {named} was named\n{report}"


def _is_used(call: Any) -> bool:  # noqa: ANN401 - a call of a trace
    """Tell whether the layer's weight has an effect: its input is not 0 throughout."""
    return all(record.tensor is not None and bool(record.tensor.any()) for record in call.inputs)


def _padding(model: torch.nn.Module, inputs: Inputs) -> str:
    pytest_tfdebug.assert_padding_invariant(model, inputs)
    return ""


def _through_a_file(model: torch.nn.Module, inputs: Inputs) -> pytest_tfdebug.Trace:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "trace.safetensors"
        recorded = pytest_tfdebug.trace(model, **inputs)
        measure_floors(recorded)
        recorded.save(path)
        loaded = pytest_tfdebug.Trace.load(path)
        for record in loaded.records():  # the file is mapped, and about to go
            record.tensor = None if record.tensor is None else record.tensor.clone()
        return loaded


def _config(config_class: type, without: tuple[str, ...]) -> Any:  # noqa: ANN401 - a configuration
    default = config_class()
    settings: dict[str, Any] = {
        name: value for name, value in _SIZES.items() if name not in without and hasattr(default, name)
    }
    kinds = getattr(default, "layer_types", None)
    if "layer_types" not in without and isinstance(kinds, list) and kinds:
        settings["layer_types"] = [kinds[0], kinds[-1]]
    return config_class(**settings, pad_token_id=0, bos_token_id=1, eos_token_id=2)


def _inputs(*, has_decoder: bool) -> Inputs:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, _VOCABULARY, (2, 9), generator=generator)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if has_decoder:
        inputs["decoder_input_ids"] = torch.randint(5, _VOCABULARY, (2, 6), generator=generator)
    return inputs


def main() -> int:
    """Look at every architecture; the exit status is 1 if anything but padding was found."""
    assert __doc__ is not None  # noqa: S101 - it is above
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", help="model types, with commas")
    only = parser.parse_args().only
    wanted = only.split(",") if only else None
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    torch.set_num_threads(1)
    outcomes: dict[str, Counter[str]] = {}
    for family, names in _FAMILIES.items():
        counted = outcomes.setdefault(family, Counter())
        for kind, classes in names.items():
            if wanted is not None and kind not in wanted:
                continue
            try:
                model, inputs = small(kind, classes if isinstance(classes, str) else classes[0])
            except ValueError as error:
                counted["not built"] += 1
                print(f"{kind}: not built: {error}")
                continue
            counted["models"] += 1
            for name, found in findings(model, inputs):
                counted[name] += bool(found)
                if found:
                    print(f"{kind}: {name}: {found}")
            sys.stdout.flush()
    print()
    print(f"{'':22} models  golden  overflow  kernels  floors  culprit  padding  (not built)")
    looked_at = ("golden", "overflow", "kernels", "floors", "culprit")
    for family, counted in outcomes.items():
        columns = (counted[name] for name in ("models", *looked_at, "padding", "not built"))
        print("{:22} {:6}  {:6}  {:8}  {:7}  {:6}  {:7}  {:7}  ({})".format(family, *columns))
    return int(any(counted[name] for counted in outcomes.values() for name in looked_at))


if __name__ == "__main__":
    sys.exit(main())
