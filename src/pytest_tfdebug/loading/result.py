"""What became of every tensor: what ``audit(model, checkpoint)`` returns."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pytest_tfdebug.check_record import LoadRecord

if TYPE_CHECKING:
    import pandas as pd

    from pytest_tfdebug.report.check_text import CheckText

#: What became of a tensor. Of one in the checkpoint only ``never read`` and ``loaded twice`` are said.
Verdict = Literal[
    "read",
    "cast",
    "renamed",
    "transposed",
    "permuted",
    "fused",
    "split",
    "scaled",
    "tied",
    "made again",
    "constant",
    "not saved",
    "never read",
    "left at its initial values",
    "changed",
    "partly filled",
    "from elsewhere",
    "in another order",
    "loaded twice",
    "not scaled",
    "not finite",
    "wrongly tied",
    "not judged",
]
#: Verdicts of what did not arrive, the gravest first.
LOST: tuple[Verdict, ...] = (
    "never read",
    "left at its initial values",
    "not finite",
    "from elsewhere",
    "loaded twice",
    "partly filled",
    "not scaled",
    "in another order",
    "wrongly tied",
    "changed",
    "not judged",
)
_COLUMNS = ("tensor", "of", "verdict", "from", "detail", "allowed")


@dataclass(frozen=True)
class LoadRow:
    """A tensor of the model, or one of the checkpoint that did not end up in one place of the model."""

    tensor: str  # its name
    verdict: Verdict
    from_: tuple[str, ...] = ()  # tensors of the checkpoint that it holds; of a tied one, the name that it is tied to
    detail: str = ""  # how it differs, or where it probably belongs
    of: Literal["model", "checkpoint"] = "model"  # whose tensor it is
    allowed: bool = False  # whether ``allow=`` names it

    @property
    def ok(self) -> bool:
        """Whether it arrived, or need not arrive."""
        return self.allowed or self.verdict not in LOST


@dataclass(frozen=True, repr=False)
class LoadReport:
    """What became of every tensor of a checkpoint and of a model; false where something did not arrive."""

    model: str  # class of the model
    checkpoint: str  # what was read: a path, or ``a state dict``
    stored: int  # number of tensors in the checkpoint
    rows: tuple[LoadRow, ...] = field(default=())  # those that did not arrive first

    @property
    def ok(self) -> bool:
        """Whether everything arrived."""
        return all(row.ok for row in self.rows)

    def __bool__(self) -> bool:
        return self.ok

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
