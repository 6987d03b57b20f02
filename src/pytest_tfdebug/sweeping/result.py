"""The outcome of a sweep: what ``sweep(ReferenceClass, config)`` returns."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pytest_tfdebug.check_record import BlindRecord, FieldRecord

if TYPE_CHECKING:
    import pandas as pd

    from pytest_tfdebug.parity.result import ParityReport
    from pytest_tfdebug.records import Culprit
    from pytest_tfdebug.report.check_text import CheckText

#: What a sweep says of a field. ``matters``: the reference moves, and no port was given.
Verdict = Literal["agrees", "ignored", "differs", "refused", "never", "matters"]
FAILING = ("ignored", "differs")
_COLUMNS = ("field", "verdict", "own", "value", "reference_moved", "port_moved", "error", "note", "known")


@dataclass(frozen=True)
class BlindSpot:
    """A field that matters, and that inputs cannot see at its own value: a model that does not read it passes."""

    field: str  # its name
    own: Any  # the configuration's value
    value: Any  # the value that shows it
    beside: dict[str, Any]  # what has to be changed with it, by name
    instead: Any  # a value with which a model gives the same, as one does that never reads the field

    def record(self) -> BlindRecord:
        """Return it as plain data, its values as they are typed."""
        beside = ", ".join(f"{name}={value!r}" for name, value in self.beside.items())
        shown = repr(self.value) + (f" with {beside}" if beside else "")
        same = f"{'leaving it out' if self.instead is None else repr(self.instead)} gives the same"
        return BlindRecord(self.field, repr(self.own), shown, "it is neutral" if self.instead == self.own else same)


@dataclass(frozen=True)
class FieldRow:
    """One field at another value; rotary embeddings have a row for each kind.

    Of a port it ``agrees``, is ``ignored`` (the port did not move where the reference did), ``differs``, or is
    ``refused`` (the port raised); without one it ``matters``; ``never`` does where nothing moves the reference.
    """

    field: str  # its name
    verdict: Verdict
    own: Any  # the configuration's value
    value: Any  # the value that it was moved to, as it is typed
    reference_moved: float = 0.0  # how far the reference moved, relative to its output
    port_moved: float | None = None  # how far the port moved; None where it was not asked
    error: float | None = None  # how far the port is from the reference at the new value
    note: str = ""  # the port's error, parameters on one side alone, what was changed with the field
    known: str = ""  # why the field is known to fail
    report: ParityReport | None = dataclasses.field(default=None, repr=False)  # of both forwards, of a row that fails

    @property
    def fails(self) -> bool:
        """Whether the port is wrong here, and nobody said so before."""
        return self.verdict in FAILING and not self.known

    @property
    def culprit(self) -> Culprit | None:
        """Where the port is wrong, as far as a comparison found it."""
        return None if self.report is None else self.report.culprit

    def record(self) -> FieldRecord:
        """Return it as plain data, its values as text."""
        cells = {name: getattr(self, name) for name in _COLUMNS} | {"own": repr(self.own), "value": repr(self.value)}
        return FieldRecord(**cells, culprit="" if self.report is None else self.report.check_text().answer)


@dataclass(repr=False)
class SweepReport:
    """What the fields of a configuration do; false if a port does not follow one."""

    name: str  # what was swept: ``phi3``
    rows: list[FieldRow]  # the fields; those that fail first
    blind: list[BlindSpot]  # fields that matter, and that these inputs cannot see at their own value
    has_port: bool = False  # whether a port was held to the reference
    outdated: list[str] = dataclasses.field(default_factory=list)  # known to fail, and agree by now
    notes: list[str] = dataclasses.field(default_factory=list)  # what could not be judged, in sentences

    @property
    def ok(self) -> bool:
        """Whether the port follows every field that matters, but for those that are known not to be followed."""
        return not self.outdated and not any(row.fails for row in self.rows)

    def __bool__(self) -> bool:
        return self.ok

    def __repr__(self) -> str:
        return str(self)  # what ``assert sweep(...)`` shows

    def __str__(self) -> str:
        return self.check_text().to_text()

    def check_text(self) -> CheckText:
        """Return the parts of the report."""
        from pytest_tfdebug.report.sweep import sweep_text

        return sweep_text(self)

    def to_dataframe(self) -> pd.DataFrame:
        """Return a row for each field: verdict, values, and how far each side moved."""
        from pytest_tfdebug.report.tables import table

        return table((tuple(getattr(row, name) for name in _COLUMNS) for row in self.rows), _COLUMNS)
