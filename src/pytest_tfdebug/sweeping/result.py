"""The outcome of a sweep: what ``sweep(ReferenceClass, config)`` returns."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_tfdebug.check_record import FieldRecord
from pytest_tfdebug.data.sweep import SweepResult, SweptField

if TYPE_CHECKING:
    import pandas as pd

    from pytest_tfdebug.parity.result import ParityReport
    from pytest_tfdebug.records import Culprit
    from pytest_tfdebug.report.check_text import CheckText

_COLUMNS = ("field", "verdict", "own", "value", "reference_moved", "port_moved", "error", "note", "known")


@dataclass(frozen=True)
class FieldRow(SweptField):
    """A field of a sweep with the comparison of both forwards, which can be shown."""

    report: ParityReport | None = dataclasses.field(default=None, repr=False)

    @property
    def culprit(self) -> Culprit | None:
        """Where the port is wrong, as far as a comparison found it."""
        return None if self.report is None else self.report.culprit

    def record(self) -> FieldRecord:
        """Return it as plain data, its values as text."""
        cells = {name: getattr(self, name) for name in _COLUMNS} | {"own": repr(self.own), "value": repr(self.value)}
        return FieldRecord(**cells, culprit="" if self.report is None else self.report.check_text().answer)


class SweepReport(SweepResult):
    """What the fields of a configuration do, to be shown; false if a port does not follow one."""

    rows: list[FieldRow]

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
