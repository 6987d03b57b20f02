"""The outcome of a comparison: what ``compare(expected, actual)`` returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_tfdebug.data.comparison import ComparisonResult

if TYPE_CHECKING:
    import pandas as pd

    from pytest_tfdebug.parity.find.values import Explained
    from pytest_tfdebug.records import SearchEnd
    from pytest_tfdebug.report.check_text import CheckText


@dataclass(frozen=True, repr=False)
class ParityReport(ComparisonResult):
    """The verdict, the culprit and every number behind it, to be shown; false if there is a culprit.

    Args:
        explained: What the values of both forwards say; None where nobody asked. All else is of
            :class:`~pytest_tfdebug.data.comparison.ComparisonResult`.
    """

    explained: Explained | None = field(default=None, repr=False, compare=False)

    @property
    def search(self) -> SearchEnd:
        """How the search for a proof ended: ``proved``, ``cut``, ``exhausted``; empty where none was made."""
        return "" if self.explained is None else self.explained.search

    def __repr__(self) -> str:
        found = f"{self.tensors} tensors agree" if self.culprit is None else repr(self.culprit)
        return f"<ParityReport ok={self.ok}: {found}>"

    def __str__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        from pytest_tfdebug.parity.forward_record import forward_record
        from pytest_tfdebug.report.page import comparison_html

        return comparison_html(self.check_text(), forward_record(self, self.explained))

    def to_text(self, *, verbose: bool = False) -> str:
        """Return the report: culprit first, why, what to type next, facts, drift.

        Args:
            verbose: Every diverging tensor and every call's drift instead of a selection under 40 lines.
        """
        return self.check_text().to_text("full" if verbose else "normal")

    def check_text(self) -> CheckText:
        """Return the parts of the report."""
        from pytest_tfdebug.report.comparison import parity_text

        return parity_text(self)

    def to_dataframe(self) -> pd.DataFrame:
        """Return a row for each compared tensor: where it is, whether it agrees, and its differences."""
        from pytest_tfdebug.report.tables import COMPARISON_COLUMNS, comparison_rows, table

        return table(comparison_rows(self.calls), COMPARISON_COLUMNS)
