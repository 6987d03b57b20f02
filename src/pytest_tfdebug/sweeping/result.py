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


@dataclass(frozen=True)
class BlindSpot:
    """A field that matters, and that inputs cannot see at its own value: a model that does not read it passes.

    Args:
        field: Name of the field.
        own: The configuration's value.
        value: The value that shows it.
        beside: What has to be changed with it, by name.
        instead: A value with which a model gives the same, as one does that never reads the field.
    """

    field: str
    own: Any
    value: Any
    beside: dict[str, Any]
    instead: Any

    @property
    def why(self) -> str:
        """Why the field cannot be seen, in a few words."""
        if self.instead == self.own:
            return "it is neutral"
        return f"{'leaving it out' if self.instead is None else repr(self.instead)} gives the same"

    def record(self) -> BlindRecord:
        """Return it as plain data, its values as they are typed."""
        beside = ", ".join(f"{name}={value!r}" for name, value in self.beside.items())
        return BlindRecord(
            self.field, repr(self.own), repr(self.value) + (f" with {beside}" if beside else ""), self.why
        )


@dataclass(frozen=True)
class FieldRow:
    """One field at another value; rotary embeddings have a row for each kind.

    Args:
        field: Name of the field.
        verdict: ``agrees``; ``ignored``: the port did not move where the reference did; ``differs``; ``refused``: the
            port raised; ``never``: nothing moves the reference; ``matters``: it moves, and there is no port.
        own: The configuration's value.
        value: The value that it was moved to, as it is typed.
        reference_moved: How far the reference moved, relative to its output.
        port_moved: How far the port moved; None where it was not asked.
        error: How far the port is from the reference at the new value.
        note: What else is known: the port's error, parameters on one side alone, what was changed with the field.
        known: Why the field is known to fail.
        report: The comparison of both forwards at the new value, of a row that fails.
    """

    field: str
    verdict: Verdict
    own: Any
    value: Any
    reference_moved: float = 0.0
    port_moved: float | None = None
    error: float | None = None
    note: str = ""
    known: str = ""
    report: ParityReport | None = dataclasses.field(default=None, repr=False)

    @property
    def fails(self) -> bool:
        """Whether the port is wrong here, and nobody said so before."""
        return self.verdict in FAILING and not self.known

    @property
    def culprit(self) -> Culprit | None:
        """Where the port is wrong, as far as a comparison found it."""
        return None if self.report is None else self.report.culprit


@dataclass(repr=False)
class SweepReport:
    """What the fields of a configuration do.

    Args:
        name: What was swept: ``phi3``.
        rows: The fields; those that fail first.
        blind: Fields that matter, and that these inputs cannot see at their own value.
        has_port: Whether a port was held to the reference.
        outdated: Fields that are known to fail, and agree by now.
        notes: What could not be judged, in sentences.
    """

    name: str
    rows: list[FieldRow]
    blind: list[BlindSpot]
    has_port: bool = False
    outdated: list[str] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)

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

    def records(self) -> tuple[FieldRecord, ...]:
        """Return the rows as plain data."""
        return tuple(
            FieldRecord(
                row.field,
                row.verdict,
                repr(row.own),
                repr(row.value),
                row.reference_moved,
                row.port_moved,
                row.error,
                row.note,
                row.known,
                "" if row.report is None else row.report.check_text().answer,
            )
            for row in self.rows
        )

    def to_dataframe(self) -> pd.DataFrame:
        """Return a row for each field: verdict, values, and how far each side moved."""
        from pytest_tfdebug.report.rows import table

        names = ("field", "verdict", "own", "value", "reference_moved", "port_moved", "error", "note", "known")
        return table((tuple(getattr(row, name) for name in names) for row in self.rows), names)
