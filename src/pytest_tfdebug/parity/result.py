"""The outcome of a comparison: what ``compare(expected, actual)`` returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from pytest_tfdebug.records import CallComparison, Culprit, Divergence


@dataclass
class ParityReport:
    """The verdict, the culprit and every number behind it.

    Args:
        culprit: Where the first divergence arose; None when all is well.
        divergences: Tensors outside tolerance, in the order in which they were computed.
        calls: Every actual call beside its expected call, with all comparisons.
        tensors: Number of tensors compared by value.
        notes: What else was observed, in sentences.
        facts: Where the expected side comes from and how to accept the new values, in lines.
        suggested: Rules for ``rename=`` that pair modules which give the same under other names, so that a failed
            comparison looks inside.
        inner: The culprit under these names, if it is another.
        subject: What the first line says of whom.
    """

    culprit: Culprit | None
    divergences: list[Divergence]
    calls: list[CallComparison]
    tensors: int
    notes: list[str] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)
    suggested: dict[str, str] = field(default_factory=dict)
    inner: Culprit | None = None
    subject: str = "The forward diverges"

    @property
    def ok(self) -> bool:
        """Whether every output agrees, and the inputs of the model."""
        return self.culprit is None

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self, *, verbose: bool = False) -> str:
        """Return the report: culprit first, facts, drift, what to type next.

        Args:
            verbose: Every diverging tensor and every call's drift instead of a selection under 40 lines.
        """
        from pytest_tfdebug.report.parity import render_parity

        return "\n".join(render_parity(self, verbose=verbose))

    def to_dataframe(self) -> pd.DataFrame:
        """Return a row for each compared tensor: where it is, whether it agrees, and its differences."""
        import pandas as pd

        from pytest_tfdebug.report.rows import COMPARISON_COLUMNS, comparison_rows

        frame: pd.DataFrame = pd.DataFrame(list(comparison_rows(self.calls)), columns=list(COMPARISON_COLUMNS))
        return frame
