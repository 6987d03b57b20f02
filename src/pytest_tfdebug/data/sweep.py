"""What a sweep of a configuration found, field by field."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pytest_tfdebug.check_record import BlindRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_tfdebug.data.comparison import ComparisonResult

#: What a sweep says of a field. ``matters``: the reference moves, and no port was given.
Verdict = Literal["agrees", "ignored", "differs", "refused", "never", "matters"]
FAILING = ("ignored", "differs")


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
        if self.instead is None or self.instead == self.own:
            why = "it is neutral" if self.instead == self.own else "leaving it out gives the same"
            return BlindRecord(self.field, repr(self.own), shown, why)
        same = repr(self.instead)
        return BlindRecord(self.field, repr(self.own), shown, f"{same} gives the same", same)


@dataclass(frozen=True)
class SweptField:
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
    # of both forwards, of a row that fails
    report: ComparisonResult | None = dataclasses.field(default=None, repr=False)

    @property
    def fails(self) -> bool:
        """Whether the port is wrong here, and nobody said so before."""
        return self.verdict in FAILING and not self.known


@dataclass(repr=False)
class SweepResult:
    """What the fields of a configuration do; false if a port does not follow one."""

    name: str  # what was swept: ``phi3``
    rows: Sequence[SweptField]  # the fields; those that fail first
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
