"""Warnings of a check that passes: it compared little, or something inside differs."""

from __future__ import annotations

from math import floor
from typing import TYPE_CHECKING

from pytest_tfdebug.errors import CoverageWarning, InternalWarning, TFDebugWarning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.goldens.settings import CheckSettings
    from pytest_tfdebug.parity.result import ParityReport
    from pytest_tfdebug.records import Coverage

_TO_OPEN = (
    "Return tensors, or a tuple, dict or dataclass of them, or tell how to open what it returns with\n"
    "torch.utils._pytree.register_pytree_node."
)


def warnings_of(
    report: ParityReport, model: str, settings: CheckSettings, *, is_explained: bool
) -> Iterator[TFDebugWarning]:
    """Yield the warnings of a check; none where it failed.

    Args:
        report: What the check found.
        model: Class name of the model under test.
        settings: The settings of the check.
        is_explained: Whether values may decide where names do not pair.
    """
    if not report.ok:
        return
    coverage = report.coverage
    if not coverage.root:
        yield CoverageWarning(
            f"The output of {model} was not compared with its golden: no tensor of it has one to be held to.\n"
            f"  {_counted(coverage)} were compared.\n"
            f"{_TO_OPEN}"
        )
    elif coverage.share < settings.min_coverage:
        yield CoverageWarning(
            f"The check of {model} passed and compared {_counted(coverage)} of its golden.\n"
            f"  That is a share of {coverage.share:.2f}; min_coverage is {settings.min_coverage:g}.\n"
            f"{_next(settings, coverage.share, is_explained=is_explained)}"
        )
    if report.internal:
        yield InternalWarning(f"{model}: {report.internal}")


def _counted(coverage: Coverage) -> str:
    return f"{coverage.compared} of {coverage.expected} calls"


def _next(settings: CheckSettings, share: float, *, is_explained: bool) -> str:
    enough = f"min_coverage={floor(share * 100) / 100:g} if this is all there is to compare."
    if not is_explained:
        return f"Run without --tf-explain=off, which pairs modules by their values, or pass {enough}"
    how = "Complete rename=" if settings.rename is not None else 'Pass rename={"port.path": "reference.path"}'
    return f"{how} to pair more modules, or {enough}"
