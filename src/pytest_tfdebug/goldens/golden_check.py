"""One golden check: read the golden, hold the model to it, and report what was found."""

from __future__ import annotations

import itertools
import time
import warnings
from contextlib import nullcontext
from dataclasses import dataclass, replace
from shlex import quote
from typing import TYPE_CHECKING, Any, cast

import pytest

from pytest_tfdebug.check_record import NO_EFFECT, CheckRecord
from pytest_tfdebug.errors import (
    CoverageWarning,
    GoldenError,
    InternalWarning,
    MissingGoldenError,
    NoiseWarning,
    ParityError,
    TFDebugWarning,
    listed,
)
from pytest_tfdebug.goldens.golden_file import changed_environment, load, part_of, provenance, recorded_blind_spots
from pytest_tfdebug.goldens.held_model import compare_with
from pytest_tfdebug.goldens.place import missing, shown
from pytest_tfdebug.goldens.recording import sharing_group
from pytest_tfdebug.goldens.revisions import revisions
from pytest_tfdebug.goldens.session import GoldenOutcome, GoldenSession
from pytest_tfdebug.options import Options
from pytest_tfdebug.parity.arrays.hold import LogprobsReport, hold_arrays, hold_logprobs
from pytest_tfdebug.parity.record import parity_record
from pytest_tfdebug.parity.tensors.tolerance import ToleranceGiven, check_rules, paths_of, read_tolerance
from pytest_tfdebug.publish.reports import calling_line, note, wants_details
from pytest_tfdebug.redaction import redact
from pytest_tfdebug.repro import write_repro
from pytest_tfdebug.tracing.record.modules import bare, modules_of, root_name
from pytest_tfdebug.tracing.record.ranks import present_group
from pytest_tfdebug.tracing.record.signatures import named_inputs, named_parameters
from pytest_tfdebug.tracing.values.rerun import Rerun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import torch

    from pytest_tfdebug.check_record import BlindRecord
    from pytest_tfdebug.goldens.place import GoldenPlace
    from pytest_tfdebug.goldens.port_call import PortCall
    from pytest_tfdebug.goldens.settings import CheckSettings
    from pytest_tfdebug.parity.arrays.given import Arrays
    from pytest_tfdebug.parity.result import ParityReport
    from pytest_tfdebug.tracing.file.codec import TraceFile
    from pytest_tfdebug.tracing.trace import Trace


#: Seconds before the first line, between two on a terminal, and between two in a log.
_FIRST, _ON_TERMINAL, _IN_LOG = 2.0, 0.5, 10.0


#: Leaf paths of the reference's logits: a field, an entry, or all that it returns.
_LOGITS = (".logits", "['logits']", "", "[0]")

#: The calls that checks of a test have held to goldens and that passed, where --tf-certify asks for them.
HELD: pytest.StashKey[list[Rerun]] = pytest.StashKey()


@dataclass(frozen=True)
class GoldenCheck:
    """A golden that something is held to."""

    item: pytest.Item  # the running test
    place: GoldenPlace  # where the golden is
    name: str | None  # name of the golden, where the test has several

    def model(
        self, model: torch.nn.Module, called: PortCall, settings: CheckSettings, root: str | None
    ) -> ParityReport:
        """Hold a model to the golden, or to what that has of the module ``root`` of it."""
        __tracebackhide__ = True
        config, class_name = self.item.config, type(model).__name__
        golden = self._read(class_name, root)
        self._refuse_other(golden, settings)
        modules = modules_of(model)
        names = {root_name(model), *modules.by_path, *itertools.chain.from_iterable(modules.aliases.values())}
        check_rules(settings.rename, settings.own_globs, names, paths_of(golden.trace))
        group, progress = sharing_group(root), Progress(config, f"explaining {self.item.nodeid}")
        report = compare_with(golden, model, called, settings, group=group, tell=progress.tell)
        blind = recorded_blind_spots(golden)
        is_right = report.ok
        noted = " ".join(filter(None, (called.note, *report.renamed)))
        self._count(is_right, noted, report.coverage, report.worst, "; ".join(report.output_notes), blind)
        if is_right and Options.of(config).certify:
            held = Rerun(model, called.args, called.kwargs, called.method)
            self.item.stash.setdefault(HELD, []).append(held)
        if is_right:
            for warning in (*warnings_of(report, class_name), *told_dead(golden.trace.model_class, blind)):
                warnings.warn(warning, stacklevel=3)
        else:
            has_reference, is_whole = called.reference is not None, root is None and present_group() is None
            told = write_repro(self.item, "parity", model, called.args, called.kwargs) if is_whole else ""
            report = replace(
                report,
                subject=f"The {'port' if has_reference else 'model'} differs from its golden",
                advice=next_step(report, is_reference=has_reference),
                repro=[*report.repro, *(f"  {line}" for line in told.splitlines())],
                facts=[*report.facts, f"Golden: {self._shown}{_recorded_elsewhere(golden, self.item.nodeid)}"],
            )
        exact = revisions(model, called.reference, golden) if settings.in_detail and group is None else ()
        return self._ended(report, class_name, in_detail=settings.in_detail, blind=blind, revisions=tuple(exact))

    def dead_inputs(self, model: str) -> Iterator[TFDebugWarning]:
        """Yield a warning of inputs without effect, as the golden has them."""
        yield from told_dead(model, recorded_blind_spots(self._read()))

    def arrays(
        self,
        arrays: Arrays,
        tolerance: ToleranceGiven | None,
        again: Callable[[], Rerun] | None,
        seconds: float | None = None,
    ) -> ParityReport:
        """Hold arrays to the golden; see :meth:`pytest_tfdebug.Goldens.check_arrays`."""
        __tracebackhide__ = True
        trace = self._read().trace
        found = hold_arrays(trace, arrays, read_tolerance(tolerance or "dtype"), again, seconds)
        report = replace(
            found,
            subject="The arrays differ from their golden",
            advice="Fix the runtime's model; the golden is its reference's.",
            facts=[*found.facts, f"Golden: {self._shown}"],
        )
        self._count(report.ok, "", report.coverage)
        return self._ended(report, trace.model_class, in_detail=False)

    def logprobs(self, token_ids: object, logprobs: object, margin: float) -> LogprobsReport:
        """Hold tokens and log-probabilities to the golden; see :meth:`pytest_tfdebug.Goldens.check_logprobs`."""
        __tracebackhide__ = True
        records = self._read().trace.calls[0].outputs or ()
        logits = next((it.tensor for it in records if it.leaf in _LOGITS and it.tensor is not None), None)
        if logits is None:
            raise GoldenError(
                f"{self._shown} does not keep the logits whole, which log-probabilities are held to.\n"
                'Record it with store="full" and --tf-golden=update.'
            )
        report = hold_logprobs(logits, token_ids, logprobs, margin)
        self._count(report.ok)
        if not report.ok:
            raise ParityError(str(report), report)
        return report

    def _read(self, model: str = "", root: str | None = None) -> TraceFile[Trace]:
        """Return the golden, or what it has of one module; an error of it says how to record it."""
        __tracebackhide__ = True
        if not self.place.exists():
            told = missing(self.item, self.place)
            answer, name = told.partition("\n")[0], self.name or ""
            record = CheckRecord(self.item.nodeid, "parity", "failed", answer, name, model, calling_line(), text=told)
            note(self.item, record)
            raise MissingGoldenError(told)
        try:
            return self.place.read(lambda file: load(file) if root is None else part_of(load(file), root))
        except GoldenError as error:
            raise GoldenError(f"{error}\n{self._again}") from error

    def gone_argument(self, model: torch.nn.Module, given: Iterable[str]) -> GoldenError | None:
        """Return the error of an argument that the golden was recorded with, and that a model no longer takes."""
        __tracebackhide__ = True
        if not self.place.exists():
            return None
        own = bare(model)
        golden, name, taken = self._read(), type(own).__name__, named_parameters(cast("type", type(own)))
        recorded = named_inputs(golden.trace.calls[0])
        gone = next((each for each in given if each not in taken and each in recorded), None)
        if gone is None:
            return None
        since = "; ".join(changed_environment(golden.extra["provenance"], provenance(model)))
        told = [
            f"The argument {gone} is gone: {self._shown} was recorded with it, and {name} no longer takes it.",
            f"  It takes: {listed(taken) or 'nothing'}",
            *([f"  Changed since it was recorded: {since}."] if since else []),
            f"If that is meant, leave {gone}= out of the call. {self._again}",
        ]
        return GoldenError("\n".join(told))

    def _refuse_other(self, golden: TraceFile[Trace], settings: CheckSettings) -> None:
        """Refuse a golden that was recorded in another way than it is checked."""
        __tracebackhide__ = True
        kept = golden.extra.get("kept")
        kept, told = kept if isinstance(kept, dict) else {}, ""
        if settings.kept.has_floors and not kept.get("floors"):
            told = 'holds no floors: it was recorded without tolerance="fp64".'
        elif kept.get("positions") and settings.rules.positions is None:
            told = "was recorded with positions=: give the check the same."
        if told:
            raise GoldenError(f"{self._shown} {told}\n{self._again}")

    def _count(self, is_ok: bool, *known: Any) -> None:  # noqa: ANN401, FBT001 - fields
        """Note for the end of the run how the check went, and what else is known of it."""
        outcome = GoldenOutcome(str(self.place), self.item.nodeid, "checked" if is_ok else "failed", (), *known)
        GoldenSession.of(self.item.config).outcomes.append(outcome)

    def _ended(self, report: ParityReport, model: str, *, in_detail: bool, **known: Any) -> ParityReport:  # noqa: ANN401
        """Note the record of the check, and fail where it failed."""
        __tracebackhide__ = True
        given = {"name": self.name or "", "model": model, "at": calling_line(), "golden": self._shown, **known}
        record = parity_record(self.item.nodeid, report, in_detail=in_detail, **given)
        note(self.item, replace(record, text=str(report) if wants_details(self.item.config) else ""))
        if not report.ok:
            raise ParityError(report.check_text(), report)
        return report

    @property
    def _shown(self) -> str:
        return shown(str(self.place), self.item.config)

    @property
    def _again(self) -> str:
        return f"To record it again, run: pytest {quote(self.item.nodeid)} --tf-golden=update"


def _recorded_elsewhere(golden: TraceFile[Trace], nodeid: str) -> str:
    """Return which test has recorded a golden, where that is another one; the directory of its file may differ."""
    by = str(golden.extra["test"])
    return "" if by.rpartition("/")[2] == redact(nodeid).rpartition("/")[2] else f", recorded by {by}"


class Progress:
    """Shows how far some work is, two seconds after it began; nothing in a worker of pytest-xdist."""

    def __init__(self, config: pytest.Config, work: str) -> None:
        self._config, self._work = config, work
        self._next = 0.0

    def tell(self, what: str) -> None:
        """Show what the work is at, if it has taken long."""
        now = time.monotonic()
        self._next = self._next or now + _FIRST
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if now < self._next or reporter is None:
            return
        self._next = now + (_ON_TERMINAL if reporter.isatty else _IN_LOG)
        capture = self._config.pluginmanager.get_plugin("capturemanager")
        line = f"{self._work}: {what}"
        with nullcontext() if capture is None else capture.global_and_fixture_disabled():
            if reporter.isatty:
                reporter.rewrite(line, erase=True)
            else:
                reporter.ensure_newline()
                reporter.write_line(line)


def warnings_of(report: ParityReport, model: str) -> Iterator[TFDebugWarning]:
    """Yield the warnings of a check of a model of this class that has passed."""
    if report.unseen:
        yield CoverageWarning(f"{model}: " + "\n".join(report.unseen))
    if report.noise:
        yield NoiseWarning(f'{model}: {report.noise}\ntolerance="fp64" measures what rounding explains.')
    if report.internal:
        yield InternalWarning(f"{model}: {report.internal}")


def told_dead(model: str, blind: Iterable[BlindRecord]) -> Iterator[TFDebugWarning]:
    """Yield a warning of the inputs of a model that have no effect on any output."""
    names = [spot.field for spot in blind if spot.why == NO_EFFECT]
    if names:
        has, holds = ("has", "it holds") if len(names) == 1 else ("have", "they hold")
        yield CoverageWarning(
            f"{model}: {listed(names)} {has} no effect on any output, whatever {holds}.\n"
            "Look at the module that should read it, or leave it out of the call."
        )


_UPDATE = "if the change is meant, run with --tf-golden=update."


def next_step(report: ParityReport, *, is_reference: bool) -> str:
    """Return what to do about a failed check, in a sentence."""
    is_trained = report.culprit is not None and report.culprit.wrong.startswith("is in training mode")
    by_kind = {
        "inputs": "Give port_inputs= the tensors of the reference's inputs."
        if report.has_own_inputs
        else f"Use fixed inputs (seeded, or written out); {_UPDATE}",
        "mode": f"Call .{'eval' if is_trained else 'train'}() on it before the check, as the golden's model was.",
        "compiler": "Check the model without torch.compile, and report what the compiler changes.",
        "random": "Call .eval() on the model, or seed its random numbers.",
        "dtype": f"Run the model in the recorded dtype; {_UPDATE}",
        "weights": "Fix how the port's weights are loaded or converted."
        if is_reference
        else f"Give the model fixed weights: seed it, or pytest_tfdebug.fill(model); {_UPDATE}",
    }
    told = report.advice or by_kind.get(report.culprit.kind if report.culprit is not None else "", "")
    if not told and report.is_drift:
        told = "If the new environment explains it, run with --tf-golden=update."
    fixed = "Fix the port; do not update the golden."
    return told or (fixed if is_reference else "To accept the new values, run with --tf-golden=update.")
