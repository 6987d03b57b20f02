"""Warnings of a check that passes: its output could not be looked at, or something inside differs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_tfdebug.errors import CoverageWarning, InternalWarning, NoiseWarning, TFDebugWarning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.parity.result import ParityReport


def warnings_of(report: ParityReport, model: str) -> Iterator[TFDebugWarning]:
    """Yield the warnings of a check of a model of this class that has passed."""
    coverage = report.coverage
    if not coverage.root:
        yield CoverageWarning(
            f"The output of {model} was not compared with its golden: no tensor of it has one to be held to.\n"
            f"  {coverage.compared} of {coverage.expected} calls were compared.\n"
            "Return tensors, or a tuple, dict or dataclass of them, or tell how to open what it returns with\n"
            "torch.utils._pytree.register_pytree_node."
        )
    if report.noise:
        yield NoiseWarning(f'{model}: {report.noise}\ntolerance="fp64" measures what rounding explains.')
    if report.internal:
        yield InternalWarning(f"{model}: {report.internal}")
