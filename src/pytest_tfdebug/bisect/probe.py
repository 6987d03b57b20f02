"""Runs a test in a version, and holds what its models computed there to what they computed in another.

A version's test is run once, and records each model under test in a golden of its own; these are then held to each
other here. What the test says of them counts for nothing: neither an exit code nor a golden that is stale misleads.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_tfdebug.bisect.history import GRAVITY, VersionDifference
from pytest_tfdebug.bisect.places import PlaceError
from pytest_tfdebug.bisect.recording import FIRST
from pytest_tfdebug.errors import GoldenError, TFDebugError, counted
from pytest_tfdebug.records import SourceRange
from pytest_tfdebug.tracing.values.rerun import Recorded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pytest_tfdebug.bisect.places import VersionLine
    from pytest_tfdebug.parity.result import ParityReport
    from pytest_tfdebug.tracing.file.codec import TraceFile
    from pytest_tfdebug.tracing.trace import Trace

#: Holds why a version could not be run; empty where it could. It is written last, so that a run that was interrupted is
#: made again.
_ENDED = "ended.txt"
_SUFFIX = ".safetensors"
_ARGUMENTS = (
    *("-q", "-p", "no:cacheprovider", "-p", "pytest_tfdebug.bisect.recording", "--tf-golden=update"),
    *("-o", "tf_golden_store=full", "-o", "tf_golden_max_size=4 GB"),
)


@dataclass(frozen=True)
class Probe:
    """The runs of a test in the versions of a line."""

    line: VersionLine
    home: Path  # where the goldens are kept
    tell: Callable[[str], None]  # called with each version before it is run

    def run(self, version: str) -> str:
        """Run the test in a version unless that was done; return why that was not possible, or nothing."""
        folder = self.home / version
        ended = folder / _ENDED
        if not ended.exists():
            self.tell(version)
            folder.mkdir(parents=True, exist_ok=True)
            problem = self._record(version, folder)
            ended.write_text(problem, encoding="utf-8")
        return ended.read_text(encoding="utf-8")

    def _record(self, version: str, folder: Path) -> str:
        try:
            place = self.line.place(version)
        except PlaceError as error:
            return str(error)
        command = [place.python, "-m", "pytest", place.test, *_ARGUMENTS, f"--tf-golden-dir={folder}"]
        environment = {**place.environment, FIRST: str(self.home / self.line.versions[0])}
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)  # noqa: S603 - pytest
        if not _goldens(folder):
            return f"the test records nothing: {_reason(done.stdout, done.stderr)}"
        return next(filter(None, (self.line.is_of_another(version, it) for it in _provenances(folder))), "")

    def hold(self, first: str, second: str, *, is_explained: bool = False) -> VersionDifference:
        """Hold what the second version computed to what the first did; name the lines where that is asked for."""
        old, new = _goldens(self.home / first), _goldens(self.home / second)
        alone = sorted(old.keys() ^ new.keys())
        if alone:
            return VersionDifference(
                "changed", f"records {counted(len(alone), 'golden')} that the other does not: {alone[0]}"
            )
        held = (_held(old[name], new[name], is_explained=is_explained) for name in old)
        return max(held, key=lambda each: GRAVITY.index(each.kind))


def _goldens(folder: Path) -> dict[str, Path]:
    return {file.relative_to(folder).as_posix(): file for file in sorted(folder.rglob(f"*{_SUFFIX}"))}


def _provenances(folder: Path) -> Iterator[dict[str, object]]:
    from pytest_tfdebug.goldens.golden_file import load

    for file in _goldens(folder).values():
        yield load(file).extra["provenance"]


def _reason(out: str, error: str) -> str:
    """Return the line of a run of pytest that says why it failed."""
    lines = [line.strip() for line in (*error.splitlines(), *out.splitlines()) if line.strip()]
    raised = [line.removeprefix("E").strip() for line in lines if line.startswith("E ")]
    return raised[-1] if raised else lines[-1] if lines else "pytest said nothing"


def _held(before: Path, after: Path, *, is_explained: bool) -> VersionDifference:
    """Hold a golden to an older one."""
    from pytest_tfdebug.goldens.golden_file import load
    from pytest_tfdebug.parity.compare import compare
    from pytest_tfdebug.tracing.values.precision import has_floors

    try:
        old, new = load(before), load(after)
        is_measured = has_floors(old.trace)
        both = (it.trace if is_explained else replace(it.trace, again=None) for it in (old, new))
        report = _with_code(compare(*both, tolerance="fp64" if is_measured else "dtype"), new.trace)
    except (GoldenError, TFDebugError) as error:
        return VersionDifference("changed", f"cannot be compared: {str(error).partition(chr(10))[0]}")
    if report.ok:
        renamed = " ".join((*report.renamed, *_renamed_weights(old, new)))
        return VersionDifference(
            "renamed" if renamed else "inside" if report.internal else "same", renamed or report.internal
        )
    return VersionDifference("changed", _told(report, is_measured=is_measured), str(report))


def _with_code(report: ParityReport, new: Trace) -> ParityReport:
    """Return a report that shows the lines to blame, of which the golden alone has the text."""
    culprit, values = report.culprit, new.again.values() if isinstance(new.again, Recorded) else None
    if culprit is None or culprit.source is None or values is None:
        return report
    there = culprit.source
    lines = (line for value in values.values for line in value.lines if line.file == there.file)
    text = next((line.text for line in lines if line.first == there.first and line.last == there.last), "")
    return (
        replace(report, culprit=replace(culprit, source=SourceRange(there.file, there.first, there.last, text)))
        if text
        else report
    )


def _renamed_weights(old: TraceFile[Trace], new: TraceFile[Trace]) -> Iterator[str]:
    """Say which parameters have other names, and the same numbers."""
    gone, come = ([it for it in mine if it not in theirs] for mine, theirs in _both_ways(old, new))
    if gone and come:
        yield f"{counted(len(come), 'parameter')} called otherwise: {gone[0]!r} is {come[0]!r}."


def _both_ways(old: TraceFile[Trace], new: TraceFile[Trace]) -> tuple[tuple[dict[str, str], dict[str, str]], ...]:
    one, other = old.extra["weights"], new.extra["weights"]
    return (one, other), (other, one)


def _told(report: ParityReport, *, is_measured: bool) -> str:
    """Say what changed, and by how much."""
    culprit = report.culprit
    assert culprit is not None  # noqa: S101 - the report has failed
    metrics = culprit.divergence.metrics if culprit.divergence is not None else None
    size = "" if metrics is None else f", off by a relative L2 of {metrics.relative_l2:.1e}"
    limit = "above its floor" if is_measured else "outside its tolerance"
    return report.check_text().answer + (f"{size}, {limit}" if size else "")
