"""What became of every tensor: what ``audit(model, checkpoint)`` returns."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_tfdebug.check_record import LoadRecord
from pytest_tfdebug.data.load import LOST, LoadResult

if TYPE_CHECKING:
    import pandas as pd

    from pytest_tfdebug.report.check_text import CheckText

_COLUMNS = ("tensor", "of", "verdict", "from", "detail", "allowed")


class LoadReport(LoadResult):
    """What became of every tensor of a checkpoint and of a model, to be shown; false where something did not arrive."""

    def __repr__(self) -> str:
        return str(self)  # what ``assert audit(...)`` shows

    def __str__(self) -> str:
        return self.check_text().to_text()

    def record(self) -> LoadRecord:
        """Return it as plain data: what did not arrive by name, all others as numbers."""
        lost: dict[str, list[str]] = {}
        for row in self.rows:
            if not row.ok:
                lost.setdefault(row.verdict, []).append(row.tensor)
        missing, unexpected = (tuple(lost.pop(verdict, ())) for verdict in (LOST[1], LOST[0]))
        others = tuple(name for names in lost.values() for name in names)
        counts = Counter(str(row.verdict) for row in self.rows)
        return LoadRecord(self.model, self.checkpoint, None, missing, unexpected, others, verdicts=dict(counts))

    def check_text(self) -> CheckText:
        """Return the parts of the report."""
        from pytest_tfdebug.report.loading import load_text

        return load_text(self)

    def to_dataframe(self) -> pd.DataFrame:
        """Return a row for each tensor: name, whose it is, verdict, where its numbers are from, and details."""
        from pytest_tfdebug.report.tables import table

        cells = ((row.tensor, row.of, row.verdict, ", ".join(row.from_), row.detail, row.allowed) for row in self.rows)
        return table(cells, _COLUMNS)
