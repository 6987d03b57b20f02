"""``pytest_tfdebug.sweep``: which fields of a configuration matter, and which does a port follow?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.errors import TFDebugError, listed
from pytest_tfdebug.sweeping.forwards import Inputs, called, quiet
from pytest_tfdebug.sweeping.port import Port, Refused, error_of, moved
from pytest_tfdebug.sweeping.reference import Reference
from pytest_tfdebug.sweeping.result import FAILING, FieldRow, SweepReport
from pytest_tfdebug.sweeping.search import Search, plain
from pytest_tfdebug.sweeping.small_config import small

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_tfdebug.sweeping.fields import Field
    from pytest_tfdebug.sweeping.forwards import Forward
    from pytest_tfdebug.sweeping.port import Build, Held, Load
    from pytest_tfdebug.sweeping.result import Verdict
    from pytest_tfdebug.sweeping.search import Move

#: A port that agrees may be so many times as far from its reference as it is at the given configuration.
_SPREAD = 4.0
#: An error below this may be rounding that a variant amplifies: its own floor is measured then.
_NEAR = 1e-3
_UNJUDGED = "it shows only together with another field, and there the port goes wrong before it moves."
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
) -> SweepReport:
    """Move each field of a configuration, and see what the reference does, and whether a port does the same.

    Without ``build`` the report says which fields matter, and which of them these inputs cannot see at their own value.

    Args:
        reference: Class of the reference: ``Phi3ForCausalLM``.
        config: Its configuration; a large one is made small.
        build: Returns the port for a configuration: a module whose state dict has the reference's names and shapes, or
            anything that ``load`` and ``forward`` know.
        inputs: Keyword inputs of the reference; None for seeded ones that fit it.
        known: Field -> why the port does not follow it. One that agrees by now fails.
        load: Gives the port the reference's weights: ``load(port, reference)``.
        forward: Calls the port: ``forward(port, inputs)``.

    Returns:
        The report: false if the port ignores a field, or differs at another value of it.

    Raises:
        TFDebugError: If the reference cannot be run, the port differs before any field moves, or ``known`` names no
            field.

    Example:
        >>> assert pytest_tfdebug.sweep(LlamaForCausalLM, LlamaConfig(...), build=lambda config: MyLlama(config))
    """
    if build is None and (load is not None or forward is not called or known):
        raise TFDebugError("load=, forward= and known= are about a port: give build=lambda config: ...")
    with quiet():
        used = _small(reference, config)
        search = Search(Reference(reference, used, inputs))
        port = None if build is None else _Held(Port(build, search.reference.inputs, load, forward), search.reference)
        report = SweepReport(search.reference.name, [], [], has_port=port is not None)
        report.notes += _made_small(config, used)
        found = search.all_moves(lambda fields: _shown(fields, search.reference.name))
        for field in _shown(search.fields, "the port") if port else search.fields:
            moves = found[field]
            spot = search.blind_spot(field, moves)
            report.blind += [spot] if spot else []
            rows = [_row(move, port) for move in moves] or [_never(field)]
            report.rows += [row for row in rows if row]
            report.notes += [f"{field.name} was not compared: {_UNJUDGED}"] if not any(rows) else []
    return _with_known(report, known or {})


def _small(reference: type, config: Any) -> Any:  # noqa: ANN401
    try:
        return small(reference, config)
    except ValueError as error:
        raise TFDebugError(f"{error}\nGive a small configuration: hidden_size=32, two layers.") from error


def _made_small(config: Any, used: Any) -> list[str]:  # noqa: ANN401
    given, small_ones = config.to_dict(), used.to_dict()
    sizes = [f"{name}={value!r}" for name, value in small_ones.items() if given.get(name) != value]
    return [f"The configuration was made small: {', '.join(sizes)}."] if sizes else []


def _shown(fields: Sequence[Field], name: str) -> Iterator[Field]:
    """Yield fields, with a progress bar on a terminal."""
    from tqdm import tqdm

    yield from tqdm(fields, f"sweep of {name}", unit="field", leave=False, disable=None, delay=1.0)


@dataclass
class _Held:
    """A port, and what it gave where no field was moved."""

    port: Port
    reference: Reference

    def __post_init__(self) -> None:
        try:
            self.base = self.port.hold(self.reference.base)
        except Refused as error:
            raise TFDebugError(f"The port cannot be run with the configuration as it is: {error}") from error
        if self.base.unmatched:
            raise TFDebugError(
                f"The port's parameters are not the reference's: {self.base.unmatched}.\n"
                "Give load=lambda port, reference: ..., which copies the weights."
            )
        own = error_of(self.reference.base, self.base)
        if not own <= self.reference.bound:
            report = self.port.compared(self.reference.base)
            told = f"\n{report}" if report is not None and not report.ok else ""
            raise TFDebugError(
                f"The port differs from {self.reference.name} by {own:.2g} of its output before any field moves: "
                f"no field was judged.{told}"
            )
        self.bound = max(self.reference.bound, _SPREAD * own)


def _never(field: Field) -> FieldRow:
    return FieldRow(field.name, "never", plain(field.value), None)


def _row(move: Move, held: _Held | None) -> FieldRow | None:
    """Return the verdict on a field at another value; None where the port cannot be judged there."""
    beside = ", ".join(f"{name}={value!r}" for name, value in move.beside.items())
    row = FieldRow(
        move.field.name,
        "matters",
        plain(move.field.value),
        plain(move.value),
        move.distance,
        note=f"with {beside}" if beside else "",
    )
    if held is None:
        return row
    if move.distance <= 2 * held.bound:
        return None
    try:
        before = held.port.hold(move.base) if move.changes else held.base
        after = held.port.hold(move.variant)
    except Refused as error:
        return replace(row, verdict="refused", note=str(error))
    return _judged(row, move, held, before, after)


def _judged(row: FieldRow, move: Move, held: _Held, before: Held, after: Held) -> FieldRow | None:
    if error_of(move.base, before) > held.bound:
        return None
    error, port_moved = error_of(move.variant, after), moved(before, after)
    row = replace(row, port_moved=port_moved, error=error, note="; ".join(filter(None, (row.note, after.unmatched))))
    rounding = _SPREAD * held.reference.floor_of(move.variant) if held.bound < error < _NEAR else 0.0
    if error <= max(held.bound, rounding):
        return replace(row, verdict="agrees")
    verdict: Verdict = "ignored" if port_moved <= held.bound else "differs"
    return replace(row, verdict=verdict, report=held.port.compared(move.variant))


def _with_known(report: SweepReport, known: Mapping[str, str]) -> SweepReport:
    names = {row.field for row in report.rows}
    unknown = [name for name in known if name not in names]
    if unknown:
        raise TFDebugError(
            f"known= names {listed(unknown)}, which no field is called here.\nFields: {', '.join(sorted(names))}"
        )
    failing = {row.field for row in report.rows if row.verdict in FAILING}
    report.outdated = [name for name in known if name not in failing]
    rows = [replace(row, known=known.get(row.field, "")) if row.verdict in FAILING else row for row in report.rows]
    report.rows = sorted(
        rows, key=lambda row: (not row.fails, _ORDER.index(row.verdict), -min(row.reference_moved, 9.9))
    )
    return report
