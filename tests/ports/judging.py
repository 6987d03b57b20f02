"""Run one bug of a port, or the clean port, and say what the report was worth."""

from __future__ import annotations

import importlib.util
import linecache
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from editing import EditedFile, imported

import pytest_tfdebug
from pytest_tfdebug.tracing.values.rerun import Recorded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cases import Bug, Case, Port

    from pytest_tfdebug import Trace
    from pytest_tfdebug.records import Culprit, SourceRange

#: A range of more lines than this does not name a line. One call of a function may be written over as many.
WIDEST = 10
#: The clean port agrees to this relative L2 difference; a bug must make one greater than the second.
AGREES, DIFFERS = 1e-5, 1e-4


@dataclass(frozen=True)
class Outcome:
    """What came of one bug.

    Attributes:
        port: Name of the port.
        bug: The bug.
        verdict: ``line``: the edited line, or the reference's line for what is left out; ``module``: the module;
            ``unsure``: another place, but said to be uncertain, or one that holds the right module; ``wrong``: another
            place; ``missed``: no culprit; ``error``: the comparison raised.
        culprit: What the report names.
        text: The report, or the error.
        suggested: The rules that the report suggests.
    """

    port: str
    bug: Bug
    verdict: str
    culprit: Culprit | None
    text: str
    suggested: dict[str, str]


def is_installed(port: Port) -> bool:
    """Whether the package of a port can be imported."""
    return importlib.util.find_spec(port.package) is not None


def built(port: Port) -> Case:
    """Return the clean pair of models, which must agree.

    Raises:
        AssertionError: If they do not.
    """
    case = seeded(port)
    difference = relative_l2(case)
    assert difference < AGREES, f"{port.name}: the clean port differs by {difference:.1e}."
    return case


def infected(port: Port, bug: Bug) -> tuple[Case, EditedFile | None]:
    """Return the pair of models with a bug in the port, which must show in its output.

    Raises:
        AssertionError: If it does not.
    """
    case = seeded(port)
    edited = None
    if bug.change is not None:
        bug.change(case.port.get_submodule(port.layer) if bug.in_layer else case.port)
    else:
        edited = EditedFile(bug.module, bug.old, bug.new, after=bug.after, reloaded=port.reloaded)
        with edited.in_place():
            wrong = seeded(port).port
        if bug.in_layer:
            case.port.set_submodule(port.layer, wrong.get_submodule(port.layer))
        else:
            case.port = wrong
    difference = relative_l2(case)
    assert difference > DIFFERS, f"{port.name}, {bug.name}: changes the output by {difference:.1e} only."
    return case, edited


def seeded(port: Port) -> Case:
    """Return the pair of models with the same random numbers in every process."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return port.build(imported)


def relative_l2(case: Case) -> float:
    """Return the relative L2 difference of the port's main output from the reference's."""
    expected, actual = case.reference_output(), case.port_output()
    assert expected.shape == actual.shape, f"{tuple(actual.shape)}, expected {tuple(expected.shape)}"
    return float((actual - expected).norm() / expected.norm())


def recorded(port: Port) -> Trace:
    """Return the forward of a port's reference with the values of its operators, as a golden has them.

    A bug that is held to it does not run the reference again; so no proof changes the reference.
    """
    expected = _traced_reference(built(port))
    outputs = [record.tensor for record in expected.calls[0].outputs or ()]
    values = expected.again.values(outputs)
    assert values is not None, f"{port.name}: the reference cannot be run again."
    expected.again = Recorded(values)
    return expected


def _traced_reference(case: Case) -> Trace:
    return pytest_tfdebug.trace(case.reference, *case.reference_args, **case.reference_kwargs)


def compared(case: Case, rename: dict[str, str] | None = None, expected: Trace | None = None) -> Any:
    """Return the report on a pair of models; ``expected`` is the reference's forward, where that is recorded."""
    expected = _traced_reference(case) if expected is None else expected
    actual = pytest_tfdebug.trace(case.port, *case.port_args, **case.port_kwargs)
    return pytest_tfdebug.compare(expected, actual, rename=rename, outputs=case.outputs)


def judged(port: Port, bug: Bug, expected: Trace | None = None, hold: Callable[..., Any] | None = None) -> Outcome:
    """Run one bug without ``rename=`` and judge the report.

    ``expected`` is as in :func:`compared`; ``hold`` compares the pair of models instead of that.
    """
    case, edited = infected(port, bug)
    try:
        report = compared(case, expected=expected) if hold is None else hold(case)
        text = str(report)
    except Exception as error:  # noqa: BLE001 - whatever is raised is the outcome
        return Outcome(port.name, bug, "error", None, f"{type(error).__name__}: {error}", {})
    culprit = getattr(report, "inner", None) or report.culprit
    places = expected_paths(port, bug, case)
    verdict = (
        "missed"
        if culprit is None
        else verdict_of(culprit, bug, [] if edited is None else [edited], places, type(case.port).__name__)
    )
    return Outcome(port.name, bug, verdict, culprit, text, dict(getattr(report, "suggested", None) or {}))


def alarm(port: Port, rename: dict[str, str] | None = None) -> str:
    """Return what the report says of the clean port; empty where it finds nothing."""
    case = built(port)
    try:
        report = compared(case, rename)
        return "" if report.culprit is None else str(report)
    except Exception as error:  # noqa: BLE001 - a clean port that raises alarms too
        return f"{type(error).__name__}: {error}"


def expected_paths(port: Port, bug: Bug, case: Case) -> set[str]:
    """Return the module paths of which any is right."""
    layer = port.layer if bug.in_layer else ""
    paths = {".".join(part for part in (layer, place) if part) for place in bug.at}
    return {path or type(case.port).__name__ for path in paths}


def verdict_of(culprit: Culprit, bug: Bug, edited: Sequence[EditedFile], places: set[str], root: str) -> str:
    """Return what an entry of a report is worth for a bug, see :class:`Outcome`; ``edited`` are its copies of a file."""
    is_module = culprit.path in places and culprit.kind != "inputs"
    reference = getattr(culprit, "reference", None)
    if bug.kind == "weights" and culprit.kind == "weights" and is_module:
        return "line"
    if any(_is_at(culprit.source, file) for file in edited) and _is_narrow(culprit.source):
        return "line"
    if (_is_narrow(culprit.source) and _shows(culprit.source, bug.shows)) or (
        _is_narrow(reference) and _shows(reference, bug.reference_lines)
    ):
        return "line"
    if is_module:
        return "module"
    holds = culprit.path == root or any(path.startswith(f"{culprit.path}.") for path in places)
    is_unsure = (holds and not _is_narrow(culprit.source)) or not culprit.certain
    return "unsure" if is_unsure else "wrong"


def _is_at(source: SourceRange | None, edited: EditedFile) -> bool:
    if source is None or source.file != str(edited.path):
        return False
    return any(source.first <= line <= source.last for line in edited.lines)


def _is_narrow(source: SourceRange | None) -> bool:
    return source is not None and source.last - source.first < WIDEST


def _shows(source: SourceRange, texts: tuple[str, ...]) -> bool:
    lines = "".join(linecache.getline(source.file, number) for number in range(source.first, source.last + 1))
    return any(text in lines for text in texts)
