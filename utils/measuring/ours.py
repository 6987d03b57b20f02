"""What this package does, as candidates. A candidate that checks is run once first and must have checked something."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

import pytest_tfdebug
from measuring.work import Kind, Place
from pytest_tfdebug.goldens.check.held_model import compare_with
from pytest_tfdebug.goldens.check.port_call import PortCall
from pytest_tfdebug.goldens.settings import CheckSettings
from pytest_tfdebug.goldens.store.golden_file import load, save
from pytest_tfdebug.parity.tensors.tolerance import Tolerances

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from measuring.work import Work
    from pytest_tfdebug.tracing.file.codec import TraceFile
    from pytest_tfdebug.tracing.trace import Trace


def _trace(work: Work, _place: Place) -> Callable[[], object]:
    return lambda: pytest_tfdebug.trace(work.model, **work.inputs)


def _trace_and_compare(work: Work, _place: Place) -> Callable[[], object]:
    expected = _fresh_trace(work)
    compare = pytest_tfdebug.compare
    assert compare(expected, _fresh_trace(work)).tensors  # noqa: S101 - what is measured must compare something
    return lambda: compare(expected, pytest_tfdebug.trace(work.model, **work.inputs))


def _golden_update(work: Work, place: Place) -> Callable[[], object]:
    golden = place.scratch / "golden.safetensors"
    return lambda: save(golden, _fresh_trace(work), work.model, "test_bench.py::test")


def _golden_check(work: Work, place: Place) -> Callable[[], object]:
    golden = _golden(work, place)

    def check() -> None:
        _check(load(golden), work)

    return check


def _loaded_golden_check(work: Work, place: Place) -> Callable[[], object]:
    """Return the check of a golden that is open already: torch's profiler counts the mapping of a file as memory."""
    golden = load(_golden(work, place))
    return lambda: _check(golden, work)


def _check(golden: TraceFile, work: Work) -> None:
    settings = CheckSettings(Tolerances(), None, (), (), "all")
    report = compare_with(golden, work.model, PortCall((), dict(work.inputs)), settings)
    assert report.ok  # noqa: S101 - what is measured must compare something
    assert report.tensors  # noqa: S101


def _guard(**settings: Any) -> Any:  # noqa: ANN401 - what makes a candidate
    def make(work: Work, _place: Place) -> Callable[[], object]:
        def guarded() -> None:
            with torch.no_grad(), pytest_tfdebug.overflow_guard(work.model, **settings):
                work.model(**work.inputs)

        return guarded

    return make


def padding_check(work: Work) -> tuple[Callable[[], object], list[dict[str, Any]]]:
    """Return the check, its own forward included, and the inputs that it repeats."""

    def check() -> None:
        pytest_tfdebug.assert_padding_invariant(work.model, work.inputs)

    seen: list[dict[str, Any]] = []
    watching = work.model.register_forward_pre_hook(lambda *call: seen.append(call[-1]), with_kwargs=True)
    check()
    watching.remove()
    assert len(seen) > 1  # noqa: S101 - what is measured must have repeated something
    return check, seen[1:]


def _fresh_trace(work: Work) -> Trace:
    traced: Trace = pytest_tfdebug.trace(work.model, **work.inputs)
    return traced


def _golden(work: Work, place: Place) -> Path:
    golden = place.kept / "golden.safetensors"
    save(golden, _fresh_trace(work), work.model, "test_bench.py::test")
    return golden


def _explaining(*, fails: bool, renamed: bool) -> Callable[[Work, Place], Callable[[], object]]:
    """Return what holds a model to a golden: after one layer a function too many, or all modules under other names."""

    def make(work: Work, place: Place) -> Callable[[], object]:
        port = copy.deepcopy(work.model)
        if fails:
            linear = [module for module in port.modules() if isinstance(module, torch.nn.Linear)]
            linear[len(linear) // 2].register_forward_hook(lambda _module, _inputs, output: torch.tanh(output))
        golden, actual = load(_golden(work, place)).trace, pytest_tfdebug.trace(port, **work.inputs)
        if renamed:
            root = actual.calls[0].path
            for call in actual.calls:
                call.path = call.path if call.path == root else _other_name(call.path)
            actual = replace(actual, modules=tuple(map(_other_name, actual.modules)))

        def explain() -> object:
            report = pytest_tfdebug.compare(golden, actual)
            assert report.ok != fails  # noqa: S101 - what is measured must find what is wrong, and nothing else
            assert port is not None  # noqa: S101 - it has to be alive
            return report

        return explain

    return make


def _other_name(path: str) -> str:
    return ".".join(part if part.isdigit() else f"own_{part}" for part in path.split("."))


FAILS = "golden, check that fails"
FAILS_WITHOUT_NAMES = "golden, check that fails, no name shared"
AGREES_WITHOUT_NAMES = "golden, check that agrees, no name shared"
EXPLAINING = (FAILS, FAILS_WITHOUT_NAMES, AGREES_WITHOUT_NAMES)
LOADED_CHECK = "golden, check (the file apart)"
OURS: tuple[Kind, ...] = (
    Kind("core", "trace", _trace),
    Kind("core", "trace and compare", _trace_and_compare),
    Kind("goldens", "golden, update", _golden_update),
    Kind("goldens", "golden, check", _golden_check),
    Kind("explaining", FAILS, _explaining(fails=True, renamed=False)),
    Kind("explaining", FAILS_WITHOUT_NAMES, _explaining(fails=True, renamed=True)),
    Kind("explaining", AGREES_WITHOUT_NAMES, _explaining(fails=False, renamed=True)),
    Kind("overflow", "overflow_guard", _guard()),
    Kind("overflow", "overflow_guard, headroom", _guard(dtype="float16", headroom=1.0)),
)
#: What is followed as models grow, beside these.
PADDING = Kind("padding", "padding_invariant", lambda work, _place: padding_check(work)[0])
#: What must let tensors go as soon as it has looked at them.
STREAMING: tuple[Kind, ...] = (
    Kind("memory", LOADED_CHECK, _loaded_golden_check),
    Kind("memory", "overflow_guard", _guard()),
)
