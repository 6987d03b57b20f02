"""What is measured: models, and what is done to their forwards by this package, or instead of it, each with its budget.

A candidate that checks is run once first, and must have checked something.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from transformers import LlamaConfig, LlamaForCausalLM, model_addition_debugger_context
from transformers.debug_utils import DebugUnderflowOverflow

import pytest_tfdebug
from edits import without_names
from padding_models import SENTENCES, minilm, minilm_inputs
from pytest_tfdebug import Trace, assert_padding_invariant, compare
from pytest_tfdebug.goldens.golden_file import load, save
from pytest_tfdebug.goldens.held_model import compare_with
from pytest_tfdebug.goldens.port_call import PortCall
from pytest_tfdebug.goldens.settings import CheckSettings
from pytest_tfdebug.parity.tensors.tolerance import Tolerances
from pytest_tfdebug.tracing.record.modules import Selection
from pytest_tfdebug.tracing.trace import in_float32, recorded_forward
from pytest_tfdebug.tracing.values.rerun import Rerun


@dataclass(frozen=True)
class Work:
    """A model in eval mode, its name in tables, and the keyword inputs of its forward."""

    name: str
    model: torch.nn.Module
    inputs: dict[str, torch.Tensor]

    @torch.no_grad()
    def forward(self) -> Any:
        """Run the bare forward, the floor of every ratio."""
        return self.model(**self.inputs)


def llama(name: str, *, hidden: int, layers: int, heads: int, vocabulary: int, shape: tuple[int, int]) -> Work:
    """Return a Llama with random weights; its MLP is 2.7 times as wide as its hidden states."""
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=hidden,
        intermediate_size=hidden * 43 // 16,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        vocab_size=vocabulary,
        pad_token_id=0,
    )
    inputs = {"input_ids": torch.randint(3, vocabulary, shape), "attention_mask": torch.ones(shape, dtype=torch.int64)}
    return Work(name, LlamaForCausalLM(config).eval(), inputs)


#: The work that budgets judge.
LLAMA = "Llama, 8 layers"
WORKS: dict[str, Callable[[], Work]] = {
    "llama": partial(llama, LLAMA, hidden=512, layers=8, heads=8, vocabulary=8000, shape=(2, 128)),
    "minilm": lambda: Work("all-MiniLM-L6-v2", minilm()[0], minilm_inputs(2 * SENTENCES)),  # its real weights
}


def heavy() -> Work:
    """Return a Llama of 0.94 billion parameters in bfloat16, whose largest weight is its head."""
    work = llama("Llama of 1B in bfloat16", hidden=2048, layers=16, heads=16, vocabulary=32000, shape=(1, 16))
    return replace(work, model=work.model.bfloat16())


#: A Llama of any depth, for growth.
growing = partial(llama, hidden=256, heads=4, vocabulary=2000)


Run = Callable[[], object]


def traced(work: Work) -> Trace:
    """Return a trace."""
    found: Trace = pytest_tfdebug.trace(work.model, **work.inputs)
    return found


def _trace(work: Work, _folder: Path) -> Run:
    return partial(traced, work)


def _trace_and_compare(work: Work, _folder: Path) -> Run:
    expected = traced(work)
    assert compare(expected, traced(work)).tensors
    return lambda: compare(expected, traced(work))


def _golden(work: Work, path: Path) -> Path:
    save(path, traced(work), work.model, "test_bench.py::test")
    return path


def _update(work: Work, folder: Path) -> Run:
    return lambda: _golden(work, folder / "updated")


def _check(work: Work, folder: Path, *, is_loaded: bool = False) -> Run:
    """Return the check of a golden, or of one that is open: torch's profiler counts the mapping of a file as memory."""
    path = _golden(work, folder / "checked")
    loaded = load(path) if is_loaded else None

    def check() -> None:
        settings = CheckSettings(Tolerances(), None, (), (), "all")
        report = compare_with(loaded or load(path), work.model, PortCall((), dict(work.inputs)), settings)
        assert report.ok
        assert report.tensors

    return check


def _record_in_half(work: Work, path: Path) -> None:
    recorded = recorded_forward(work.model, (), dict(work.inputs), Selection(), is_sampled=True)
    assert in_float32(recorded, is_sampled=True) is not None
    save(path, recorded, work.model, "test_bench.py::test")


def _update_in_half(work: Work, folder: Path) -> Run:
    return lambda: _record_in_half(work, folder / "updated")


def _check_in_half(work: Work, folder: Path, *, fails: bool) -> Run:
    """Return the check of a model in half precision, or of one with a wrong weight, the reference at hand."""
    _record_in_half(work, folder / "checked")
    golden, port = load(folder / "checked"), copy.deepcopy(work.model)
    if fails:
        next(port.parameters()).data *= 1.05

    def check() -> None:
        call = PortCall((), dict(work.inputs), reference=lambda: Rerun(work.model, (), dict(work.inputs)))
        report = compare_with(golden, port, call, CheckSettings(Tolerances()))
        assert report.ok != fails
        assert report.tensors

    return check


def _guard(work: Work, _folder: Path) -> Run:
    def guarded() -> None:
        with pytest_tfdebug.overflow_guard(work.model):
            work.forward()

    return guarded


def _explain(work: Work, folder: Path, *, fails: bool, renamed: bool) -> Run:
    """Return what holds a model to a golden: after one layer a function too many, or all modules under other names."""
    port = copy.deepcopy(work.model)
    if fails:
        linear = [module for module in port.modules() if isinstance(module, torch.nn.Linear)]
        linear[len(linear) // 2].register_forward_hook(lambda _module, _inputs, output: torch.tanh(output))
    golden, actual = load(_golden(work, folder / "explained")).trace, pytest_tfdebug.trace(port, **work.inputs)
    actual = without_names(actual) if renamed else actual

    def explain() -> object:
        report = compare(golden, actual)
        assert report.ok != fails  # it must find what is wrong, and nothing else
        assert port is not None  # it has to be alive
        return report

    return explain


def _hooks(work: Work, _folder: Path, keep: Callable[[torch.Tensor], object]) -> Run:
    """Return hooks on every module that keep what ``keep`` makes of each input and output."""

    def hooked() -> list[Any]:
        kept: list[Any] = []

        def hook(_module: object, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            values = (*args, *kwargs.values(), *(output if isinstance(output, tuple) else (output,)))
            kept.append([keep(value) for value in values if isinstance(value, torch.Tensor)])

        handles = [module.register_forward_hook(hook, with_kwargs=True) for module in work.model.modules()]
        work.forward()
        for handle in handles:
            handle.remove()
        return kept

    return hooked


def _transformers_debugger(work: Work, folder: Path) -> Run:
    context: Any = model_addition_debugger_context(work.model, str(folder), do_prune_layers=False)
    return cast("Run", context(work.forward))


def _debug_underflow_overflow(work: Work, _folder: Path) -> Run:
    def debugged() -> None:
        DebugUnderflowOverflow(work.model)
        try:
            work.forward()
        finally:
            for module in work.model.modules():  # it has no removal of its own
                module._forward_hooks.clear()  # noqa: SLF001

    return debugged


def _localize_divergence(work: Work, _folder: Path) -> Run:
    from pytest_torch import localize_divergence

    return lambda: localize_divergence(work.model, work.model, work.inputs, leaf_only=False)


def _torchlens(work: Work, _folder: Path) -> Run:
    import torchlens

    def run() -> Any:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torchlens.trace(work.model, input_kwargs=dict(work.inputs))

    return run


@dataclass(frozen=True)
class Kind:
    """One way to do a thing, and the most that it may cost on the Llama of 8 layers.

    ``floor``: the name of one that cannot be undercut. The limit is 1.2 times its figure where that is more.
    """

    section: str
    name: str
    make: Callable[[Work, Path], Run]  # gets ready, may write to a folder, and returns what is timed
    limit: float | None = None
    reason: str = ""
    floor: str = ""
    is_ours: bool = True


_Peer = partial(Kind, is_ours=False)
BARE = "bare forward"
#: The least that a trace can cost: a tensor that is kept cannot lend its memory to the next one.
KEEPING = "hooks that keep references"
_TRACED = "tensors are captured copy-on-write: nothing is copied"
_READ = "each distinct tensor is read and written once, and a second forward is looked at operator by operator"
_SEARCH = "a second forward, its operators, and the search among them"
_LET_GO = "looks at a call's tensors and lets them go"
_ONE_CAST = "a weight is cast where an operator uses it, and let go of"
# fmt: off
KINDS: tuple[Kind, ...] = (
    *(Kind(section, BARE, lambda work, _: work.forward) for section in ("core", "goldens", "explaining", "overflow")),
    Kind("core", "trace", _trace, 1.15, _TRACED, KEEPING),
    Kind("core", "trace and compare", _trace_and_compare, 2.0, "reads every tensor of both sides, equality first"),
    _Peer("core", KEEPING, partial(_hooks, keep=lambda tensor: tensor)),
    _Peer("core", "hooks that clone", partial(_hooks, keep=torch.clone)),
    _Peer("core", "transformers debugger", _transformers_debugger),
    _Peer("core", "pytest-torch localize_divergence", _localize_divergence),
    _Peer("core", "torchlens trace", _torchlens),
    Kind("goldens", "golden, update", _update, 6.0, _READ),
    Kind("goldens", "golden, check", _check, 2.5, "the file is mapped, and read as the forward goes"),
    *(Kind("explaining", f"golden, check that {what}", partial(_explain, fails=fails, renamed=renamed), 10.0, _SEARCH)
      for what, fails, renamed in (("fails", True, False), ("fails, no name shared", True, True),
                                   ("agrees, no name shared", False, True))),
    Kind("overflow", "overflow_guard", _guard, 1.25, "each tensor is read once, where it is"),
    _Peer("overflow", "transformers DebugUnderflowOverflow", _debug_underflow_overflow),
    Kind("memory", "golden, check (the file apart)", partial(_check, is_loaded=True), 1.0, _LET_GO),
    Kind("weights", "golden, update", _update_in_half, 2.0, _ONE_CAST),
    Kind("weights", "golden, check", partial(_check_in_half, fails=False), 2.0, _ONE_CAST),
    Kind("weights", "golden, check that fails", partial(_check_in_half, fails=True), 2.0, _ONE_CAST),
    Kind("memory", "overflow_guard", _guard, 1.0, _LET_GO),
    Kind("memory", "trace", _trace),
    _Peer("memory", "hooks that clone", partial(_hooks, keep=torch.clone)),
    *(Kind("growth", name, make, 1.25, "every call is looked at once, whatever came before")
      for name, make in (
          ("trace", _trace), ("golden, update", _update), ("golden, check", _check), ("overflow_guard", _guard),
          ("padding_invariant", lambda work, _: partial(assert_padding_invariant, work.model, work.inputs)))),
)
# fmt: on
