"""``pytest_tfdebug.sweep``: which fields of a configuration matter, and which does a port follow?"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from pytest_tfdebug.data.sweep import FAILING
from pytest_tfdebug.errors import TFDebugError, a_or_an, listed, second_look
from pytest_tfdebug.goldens.port_call import port_call
from pytest_tfdebug.parity.compare import compare
from pytest_tfdebug.sweeping.fields import fields, plain
from pytest_tfdebug.sweeping.result import FieldRow, SweepReport
from pytest_tfdebug.sweeping.variants import (
    LARGEST,
    Answer,
    FieldSearch,
    Forward,
    Inputs,
    Reference,
    answer,
    apart,
    called,
    is_small,
    quiet,
)
from pytest_tfdebug.tracing.trace import trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_tfdebug.parity.result import ParityReport
    from pytest_tfdebug.sweeping.fields import Field
    from pytest_tfdebug.sweeping.variants import Move, Variant


#: Yields fields as they are, and shows how far that is: the fields, and whose they are.
Progress = Callable[[Sequence["Field"], str], Iterable["Field"]]
Build = Callable[[Any], Any]
Load = Callable[[Any, torch.nn.Module], object]

#: A port that agrees may be so many times as far from its reference as it is at the given configuration.
_SPREAD = 4.0
#: The output by which a port is judged that returns fewer than its reference.
_MAIN = (".logits", ".last_hidden_state")


class _Held(NamedTuple):
    """A port of one variant, beside the reference whose weights it has."""

    port: Any
    reference: torch.nn.Module
    unmatched: str  # parameters that it has otherwise than the reference, in words
    answer: Answer | None  # what it gives; None where its parameters are not those of the reference

    def error(self, variant: Variant) -> float:
        """Return how far the port is from its reference."""
        return float("inf") if self.answer is None else apart(*_shared(variant.answer, self.answer))

    def moved(self, before: _Held) -> float:
        """Return how far the port moved; inf where its parameters or shapes changed."""
        if _shapes(before.port) != _shapes(self.port):
            return float("inf")
        return 0.0 if before.answer is None or self.answer is None else apart(before.answer, self.answer)


class Port:
    """How a port is built, given weights, and called.

    Raises:
        TFDebugError: If it cannot be run with the configuration as it is, or differs there.
    """

    def __init__(self, build: Build, reference: Reference, load: Load | None, forward: Forward) -> None:
        self._build, self._reference, self._load, self._forward = build, reference, load, forward
        try:
            self._base = self._hold(reference.base)
        except Exception as error:
            raise TFDebugError(f"The port cannot be run with the configuration as it is: {_told(error)}") from error
        if self._base.unmatched:
            raise TFDebugError(
                f"The port's parameters are not the reference's: {self._base.unmatched}.\n"
                "Give load=lambda port, reference: ..., which copies the weights."
            )
        own = self._base.error(reference.base)
        if not own <= reference.bound:
            report = self._compared(self._base)
            told = f"\n{report}" if report is not None and not report.ok else ""
            raise TFDebugError(
                f"The port differs from {reference.name} by {own:.2g} of its output before any field changes, "
                f"so no field was compared.{told}"
            )
        self._bound = max(reference.bound, _SPREAD * own)

    def judged(self, row: FieldRow, move: Move) -> FieldRow | None:
        """Return a row with the verdict on the port; None where the port cannot be judged there."""
        if move.distance <= 2 * self._bound:
            return None
        try:
            before = self._hold(move.base) if move.changes else self._base
            after = self._hold(move.variant)
        except Exception as error:  # noqa: BLE001 - every port refuses in its own way
            return replace(row, verdict="refused", note=_told(error))
        if before.error(move.base) > self._bound:
            return None
        off, moved = after.error(move.variant), after.moved(before)
        row = replace(row, port_moved=moved, error=off, note="; ".join(filter(None, (row.note, after.unmatched))))
        if off <= self._bound:
            return replace(row, verdict="agrees")
        return replace(row, verdict="ignored" if moved <= self._bound else "differs", report=self._compared(after))

    def _hold(self, variant: Variant) -> _Held:
        reference, port = variant.build(), self._build(variant.config)
        unmatched = ""
        if isinstance(port, torch.nn.Module):
            port = port.float().eval()
        if self._load is not None:
            self._load(port, reference)
        elif isinstance(port, torch.nn.Module):
            unmatched = load_strictly(port, reference)
        else:
            raise TFDebugError(f"{type(port).__name__} is not a torch.nn.Module: give load=lambda port, reference: ...")
        given = None if unmatched else answer(port, self._reference.inputs, self._forward)
        return _Held(port, reference, unmatched, given)

    def _compared(self, held: _Held) -> ParityReport | None:
        """Return what a comparison of both forwards says; None where the port is called in a way of its own."""
        if held.unmatched or self._forward is not called or not isinstance(held.port, torch.nn.Module):
            return None
        inputs = dict(self._reference.inputs)
        with second_look([]):
            call = port_call(held.port, (), inputs)
            return compare(trace(held.reference, **inputs), trace(held.port, *call.args, **call.kwargs))
        return None


def _shared(expected: Answer, actual: Answer) -> tuple[Answer, Answer]:
    """Return two answers by the outputs that both have: by path, else the main output of each."""
    if _main(expected) not in actual:
        return {"": expected[_main(expected)]}, {"": actual[_main(actual)]}
    paths = expected.keys() & actual.keys()
    return {path: expected[path] for path in paths}, {path: actual[path] for path in paths}


def _main(given: Answer) -> str:
    return next((path for path in _MAIN if path in given), next(iter(given)))


def _told(error: Exception) -> str:
    """Return the first line of an error that says something: one that ends in a colon says what the next one is."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = next((line for line in lines if not line.endswith(":")), lines[0] if lines else "")
    return f"{type(error).__name__}: {told}" if told else type(error).__name__


def load_strictly(port: torch.nn.Module, reference: torch.nn.Module) -> str:
    """Give a port the weights of its reference by name; return what does not fit in words, and then load nothing.

    A name that the port lacks is no matter where it has another name of the same tensor: tied weights. Tables that a
    model computes it has itself.
    """
    own, theirs = (dict(each.named_parameters(remove_duplicate=False)) for each in (port, reference))
    taken = {id(theirs[name]) for name in own if name in theirs}
    wrong = {
        "the reference alone has": [name for name in theirs if name not in own and id(theirs[name]) not in taken],
        "the port alone has": [name for name in own if name not in theirs],
        "other shapes:": [name for name in own if name in theirs and own[name].shape != theirs[name].shape],
    }
    told = [f"{which} {listed(names, 2)}" for which, names in wrong.items() if names]
    for name in () if told else own:
        own[name].data.copy_(theirs[name])
    return "; ".join(told)


def _shapes(port: Any) -> dict[str, torch.Size]:  # noqa: ANN401 - of any runtime
    named = port.named_parameters(remove_duplicate=False) if isinstance(port, torch.nn.Module) else ()
    return {name: tensor.shape for name, tensor in named}


_UNJUDGED = "it shows only together with another field, and with that one the port is wrong already."
_UNHELD = ("refused", "never")
#: Names of fields that make a model large.
_SIZES = "size|dim|layers|d_model|d_ff|n_embd|n_inner|experts$"
_ORDER = ("ignored", "differs", "refused", "agrees", "matters", "never")


def sweep(
    reference: type,
    config: Any,  # noqa: ANN401 - a configuration of transformers
    *,
    build: Build | None = None,
    inputs: Inputs | None = None,
    known: Mapping[str, str] | None = None,
    load: Load | None = None,
    forward: Forward = called,
    progress: Progress | None = None,
) -> SweepReport:
    """Move each field of a configuration, and see what the reference does, and whether a port does the same.

    Without ``build`` the report says which fields matter, and which of them these inputs cannot see at their own value.

    Args:
        reference: Class of the reference: ``Phi3ForCausalLM``.
        config: Its configuration; a small one.
        build: Returns the port for a configuration: a module whose state dict has the reference's names and shapes, or
            anything that ``load`` and ``forward`` know.
        inputs: Keyword inputs of the reference; None for seeded ones that fit it.
        known: Field -> why the port does not follow it. One that agrees by now fails.
        load: Gives the port the reference's weights: ``load(port, reference)``.
        forward: Calls the port: ``forward(port, inputs)``.
        progress: Yields the fields that it is given, and shows how far that is: ``progress(fields, "phi3")``. None for
            a bar on standard error.

    Returns:
        The report: false if the port ignores a field, or differs at another value of it.

    Raises:
        TFDebugError: If the reference is large or cannot be run, the port differs before any field moves or refuses
            every move, or ``known`` names no field.

    Example:
        >>> assert pytest_tfdebug.sweep(LlamaForCausalLM, LlamaConfig(...), build=lambda config: MyLlama(config))
    """
    if isinstance(reference, torch.nn.Module):
        kind = type(reference).__name__
        raise TFDebugError(
            f"sweep builds the reference for each value, and got {a_or_an(kind)}: give its class, {kind}."
        )
    if build is None and (load is not None or forward is not called or known):
        raise TFDebugError("load=, forward= and known= are for a port: give build=lambda config: ...")
    shown = progress or _on_stderr
    with quiet():
        _refuse_large(reference, config)
        search = FieldSearch(Reference(reference, config, inputs))
        port = None if build is None else Port(build, search.reference, load, forward)
        report = SweepReport(search.reference.name, [], [], has_port=port is not None)
        if inputs is None:
            report.notes.append(_told_inputs(search.reference.inputs))
        search.move_all(lambda fields: shown(fields, search.reference.name))
        for field in shown(search.fields, "the port") if port else search.fields:
            moves = search.moves(field)
            spot = search.blind_spot(field) if moves else None
            report.blind += [spot] if spot else []
            rows = [row for move in moves if (row := port.judged(_row(move), move) if port else _row(move))]
            if moves and not rows:
                report.notes.append(f"{field.name} was not compared: {_UNJUDGED}")
            report.rows += rows if moves else [FieldRow(field.name, "never", plain(field.value), None)]
    if port is not None and all(row.verdict in _UNHELD for row in report.rows):
        refused = next((f", {row.field} with {row.note}" for row in report.rows if row.verdict == "refused"), "")
        raise TFDebugError(f"Nothing was compared: no field moves the reference, or the port refuses it{refused}.")
    return _with_known(report, known or {})


def _refuse_large(reference: type, config: Any) -> None:  # noqa: ANN401
    with torch.device("meta"):
        is_large = not is_small(reference(config))
    if is_large:
        sizes = (field for field in fields(config.to_dict()) if re.search(_SIZES, field.name))
        told = [f"{field.name}={field.value}" for field in sizes if type(field.value) is int]
        raise TFDebugError(
            f"{reference.__name__} has more than {LARGEST:,} parameters with this configuration, and a sweep runs it "
            f"again and again.\nGive a small configuration, such as hidden_size=32 and two layers. This one has "
            f"{listed(told, len(told))}."
        )


def _on_stderr(fields: Sequence[Field], name: str) -> Iterator[Field]:
    from tqdm import tqdm

    yield from tqdm(fields, f"sweep of {name}", unit="field", leave=False, disable=None)


def _told_inputs(inputs: Inputs) -> str:
    shapes = ", ".join(f"{name} {tuple(each.shape)}" for name, each in inputs.items() if isinstance(each, torch.Tensor))
    return f"Inputs were made for this sweep: {shapes}. Shorter ones see less: inputs= takes those of your golden."


def _row(move: Move) -> FieldRow:
    """Return the row of a field at another value, on which nothing is said yet but that it matters."""
    beside = ", ".join(f"{name}={value!r}" for name, value in move.beside.items())
    own, value = plain(move.field.value), plain(move.value)
    return FieldRow(move.field.name, "matters", own, value, move.distance, note=f"with {beside}" if beside else "")


def _with_known(report: SweepReport, known: Mapping[str, str]) -> SweepReport:
    names = {row.field for row in report.rows}
    unknown = [name for name in known if name not in names]
    if unknown:
        raise TFDebugError(
            f"known= names {listed(unknown)}, which are not fields here.\nFields: {', '.join(sorted(names))}"
        )
    failing = {row.field for row in report.rows if row.verdict in FAILING}
    report.outdated = [name for name in known if name not in failing]
    rows = [replace(row, known=known.get(row.field, "")) if row.verdict in FAILING else row for row in report.rows]
    report.rows = sorted(
        rows, key=lambda row: (not row.fails, _ORDER.index(row.verdict), -min(row.reference_moved, 9.9))
    )
    return report
