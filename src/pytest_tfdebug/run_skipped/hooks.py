"""The hooks of a run with ``--tf-run-skipped``.

Each test is run and reported as without the flag. After the last test, the skipped ones are run once more without their
skips. Only the list at the end shows these trials: they change neither a report nor the exit code.
"""

from __future__ import annotations

from collections import Counter
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import pytest

from pytest_tfdebug.errors import counted
from pytest_tfdebug.options import Options
from pytest_tfdebug.redaction import leaving
from pytest_tfdebug.run_skipped.trial import Lifting, Row, reason_of, tear_down, try_test
from pytest_tfdebug.running import hand_over, handed_over

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from pytest_tfdebug.run_skipped.trial import Skip

_OUTPUT = "tf_run_skipped"


def pytest_configure(config: pytest.Config) -> None:
    """Add the hooks of a run that asks for it.

    Raises:
        pytest.UsageError: If the run also records goldens: tests that are skipped would write theirs.
    """
    chosen = Options.of(config)
    if chosen.golden in {"update", "missing"}:
        raise pytest.UsageError(
            f"--tf-run-skipped runs skipped tests, and --tf-golden={chosen.golden} would record what they check. "
            "Use one at a time."
        )
    config.pluginmanager.register(RunSkipped(config, chosen.run_skipped))


class RunSkipped:
    """The hooks of one run."""

    def __init__(self, config: pytest.Config, mode: str) -> None:
        self._config, self._lifting = config, Lifting(mode)
        self._skipped: dict[pytest.Item, str] = {}  # and why
        self._rows: list[Row] = []
        self._lost: list[str] = []
        patch = pytest.MonkeyPatch()
        self._lifting.install(patch)
        config.add_cleanup(patch.undo)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Let pytest see ``setUpClass`` of a skipped class, for the trials; the class is still skipped."""
        cls = getattr(collector, "obj", None)
        with pytest.MonkeyPatch.context() as patch:
            if isinstance(cls, type) and getattr(cls, "__unittest_skip__", False):
                patch.setattr(cls, "__unittest_skip__", False)
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Note a test that is skipped."""
        report = yield
        if report.skipped and not hasattr(report, "wasxfail"):
            self._skipped[item] = reason_of(report)
        elif call.when != "teardown":  # such as a test of which only a part was skipped
            self._skipped.pop(item, None)
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Run the skipped tests when all others have run."""
        result = yield
        items = list(self._skipped)
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")  # None in a worker
        if items and terminal is not None:
            terminal.ensure_newline()
            terminal.write_line(f"tfdebug: {len(items)} skipped, run once more without the skips")
        for item, following in zip_longest(items, items[1:]):
            self._rows.append(try_test(item, self._skipped[item], self._lifting, following))
            del self._skipped[item]
        tear_down(session, None)
        return result

    def pytest_sessionfinish(self) -> None:
        """Hand a worker's part to the controller."""
        hand_over(self._config, _OUTPUT, self._rows)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:  # noqa: ANN401 - xdist is not typed
        """Take over what a worker has run."""
        rows = handed_over(node, _OUTPUT, list[Row])
        if rows is None:
            self._lost.append(node.gateway.id)
        self._rows += rows or []

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the list."""
        lines = list(listing(self._rows)) if self._rows else []
        if self._skipped:
            lines.append(f"Not run: {len(self._skipped)} that were skipped; the run ended before.")
        lines += [f"Worker {name} ended before it reported what it had run." for name in self._lost]
        terminalreporter.section("tfdebug skipped tests, run without their skips")
        for line in lines or ["No test was skipped."]:
            terminalreporter.write_line(leaving(line))


#: What to do about a skip; the first that fits.
_HEADINGS = {
    "deletable": "to delete: every test behind passes now.",
    "conditional": "with a condition to look at: it holds here, and every test behind passes all the same.",
    "partly": "to narrow: a part of the tests behind passes now.",
}
#: Why a test was not run -> how the list says so.
_STAYS = {
    "conditional": "the skip has a condition, which --tf-run-skipped=all sets aside",
    "decided": "the code of the test, or of what it uses, decides the skip",
    "empty": "without the skip nothing is left to run",
}
#: How many reasons are named, and how long one may be.
_NAMED, _LONGEST = 3, 80


def listing(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the lines of the closing section."""
    tried: dict[tuple[Skip, ...], list[Row]] = {}
    for row in sorted(rows):
        if row.outcome not in _STAYS:
            tried.setdefault(row.skips, []).append(row)
    headed: dict[str, list[tuple[Skip, ...]]] = {heading: [] for heading in _HEADINGS}
    for skips in sorted(tried):
        outcomes = {row.outcome for row in tried[skips]}
        if "passes" in outcomes:
            whole = "conditional" if any(skip.is_conditional for skip in skips) else "deletable"
            headed[whole if len(outcomes) == 1 else "partly"].append(skips)
    if not any(headed.values()):
        yield "No skipped test passes now."
    for heading, found in headed.items():
        if found:
            yield f"{counted(len(found), 'skip')} {_HEADINGS[heading]}"
        for skips in found:
            left = sum(row.outcome in _STAYS and not set(row.skips).isdisjoint(skips) for row in rows)
            yield from _lines(skips, tried[skips], left)
    failing = sorted(row for row in rows if row.outcome == "fails")
    if failing:
        yield f"Still failing: {counted(len(failing), 'test')}."
        yield from (f"    {row.nodeid}: {row.text}" for row in failing)
    yield from _not_run(rows)


def _not_run(rows: Sequence[Row]) -> Iterator[str]:
    for why, text in _STAYS.items():
        counts = Counter(row.text.partition("\n")[0] or "(no reason)" for row in rows if row.outcome == why)
        if counts:
            named = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
            told = [f"{count} {reason[:_LONGEST]}" for reason, count in named[:_NAMED]]
            more = ", ..." if len(named) > _NAMED else ""
            yield f"Not run: {counted(counts.total(), 'test')}; {text} ({', '.join(told)}{more})."


def _lines(skips: tuple[Skip, ...], rows: list[Row], left: int) -> Iterator[str]:
    """Yield the tests that pass under some skips; ``left`` were kept from running by another one."""
    passing = [row for row in rows if row.outcome != "fails"]
    notes = [f"{len(passing)} of {len(rows)} pass"] if len(passing) < len(rows) else []
    notes += [f"{left} not run"] if left else []
    for number, skip in enumerate(skips):
        told = f" ({', '.join(notes)})" if notes and not number else ""
        yield f"  {'and ' if number else ''}{skip.file}:{skip.line}: {skip.reason or '(no reason)'}{told}"
    for row in passing:
        yield f"    {row.nodeid}" + (f" (without this override: {row.text})" if row.text else "")
