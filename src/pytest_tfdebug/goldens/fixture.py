"""``tf_golden``: the goldens of one test."""

from __future__ import annotations

import warnings
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING, Any

import pytest
import torch

from pytest_tfdebug.errors import GoldenError, GoldenSizeWarning, MissingGoldenError, ParityError, TFDebugError
from pytest_tfdebug.goldens.held_model import compare_with
from pytest_tfdebug.goldens.modes import RECORDING, golden_mode, missing, to_accept
from pytest_tfdebug.goldens.pass_warnings import warnings_of
from pytest_tfdebug.goldens.paths import shown
from pytest_tfdebug.goldens.pending import note_errors
from pytest_tfdebug.goldens.port_call import PortCall, port_call
from pytest_tfdebug.goldens.progress import Progress
from pytest_tfdebug.goldens.recorded_check import parity_record, unchecked_record
from pytest_tfdebug.goldens.repro import write_golden_repro
from pytest_tfdebug.goldens.session import GoldenSession, Outcome
from pytest_tfdebug.goldens.settings import CheckSettings, settle
from pytest_tfdebug.goldens.store import load, save
from pytest_tfdebug.goldens.variants import variants
from pytest_tfdebug.options import Options, repros
from pytest_tfdebug.parity.rules import check_rules, missed, paths_of
from pytest_tfdebug.publish.note import note, wants_details
from pytest_tfdebug.running import RUNNING
from pytest_tfdebug.tracing.budget import shown_size
from pytest_tfdebug.tracing.rerun import Rerun
from pytest_tfdebug.tracing.selection import names_of, selection
from pytest_tfdebug.tracing.trace import check_model, recorded_forward

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pytest_tfdebug.goldens.place import Place
    from pytest_tfdebug.goldens.settings import Store
    from pytest_tfdebug.parity.internal import Internal
    from pytest_tfdebug.parity.rename import Rename
    from pytest_tfdebug.parity.result import ParityReport
    from pytest_tfdebug.records import Call
    from pytest_tfdebug.tracing.codec import TraceFile
    from pytest_tfdebug.tracing.selection import Level
    from pytest_tfdebug.tracing.trace import Trace

#: Bytes above which a golden that was written gives a warning.
_LARGE = 10_000_000


class Goldens:
    """What the ``tf_golden`` fixture gives: checks of forwards against the running test's goldens.

    Args:
        item: The running test.
    """

    def __init__(self, item: pytest.Item) -> None:
        self._item = item
        self._options = Options.of(item.config)
        self._session = GoldenSession.of(item.config)
        self._names: set[str | None] = set()

    def check(  # noqa: PLR0913 - keyword options beside the model's own inputs
        self,
        model: torch.nn.Module,
        /,
        *args: Any,  # noqa: ANN401 - the model's own inputs
        reference: torch.nn.Module | Callable[[], torch.nn.Module] | None = None,
        name: str | None = None,
        rename: Rename = None,
        rtol: float | None = None,
        atol: float | None = None,
        tolerances: Mapping[str, tuple[float, float]] | None = None,
        include: str | Iterable[str] | None = None,
        exclude: str | Iterable[str] | None = None,
        level: Level | None = None,
        port_inputs: Mapping[str, Any] | tuple[Any, ...] | None = None,
        method: str = "forward",
        internal: Internal | None = None,
        min_coverage: float | None = None,
        store: Store | None = None,
        redact: bool | str | tuple[str, ...] | None = None,
        variant: str | None = None,
        **kwargs: Any,  # noqa: ANN401
    ) -> ParityReport | None:
        """Hold a forward to the golden of this test.

        With ``--tf-golden=update`` the reference (the model itself without one) runs and is recorded, and a model that
        has a reference is then held to it. Otherwise the model runs and is compared with the file, and the reference
        does not run at all.

        Args:
            model: The implementation under test.
            *args: Positional inputs.
            reference: The model to record, or a function that builds it, called only to record.
            name: Tells several goldens of one test apart.
            rename: Port path -> reference path, see :func:`pytest_tfdebug.compare`.
            rtol: Relative tolerance of every tensor.
            atol: Absolute tolerance of every tensor, in its units.
            tolerances: ``{dtype name or module-path glob: (rtol, atol)}``.
            include: Globs of (reference) module paths to record and compare; all when empty.
            exclude: Globs to leave out.
            level: ``"all"`` modules, ``"leaves"`` or ``"layers"``.
            port_inputs: The port's own inputs, where its forward takes others than the reference: a dict of keyword
                inputs or a tuple of positional ones. ``args`` and ``kwargs`` are then those of the reference.
            method: What to call instead of the forward, on both sides: ``"encode"``, ``"get_image_features"``.
            internal: What becomes of a model whose outputs agree while something inside does not: ``"warn"`` passes
                with an :class:`InternalWarning`, ``"fail"`` fails.
            min_coverage: Share of the golden's calls, from 0 to 1, below which a check that passes gives a
                :class:`CoverageWarning`.
            store: ``"bounded"`` keeps of a forward what fits into ``tf_golden_budget``, ``"full"`` every element.
            redact: Names of string inputs whose text is left out of the golden; True for all of them.
            variant: Which of the test's goldens: ``"device"``, ``"dtype"`` or a name (``test_port@cuda.safetensors``).
                Without it, the one for the model's device or dtype if there is one. A check takes the plain golden
                where there is no such variant.
            **kwargs: Keyword inputs.

        Returns:
            The report of a comparison; None when the golden was recorded and there is no reference.

        Raises:
            ParityError: If the forward diverges; the message names the culprit.
            GoldenError: If the golden is missing (an ``AssertionError`` as well), damaged or cannot be written.
            TFDebugError: If an argument makes no sense.
        """
        __tracebackhide__ = True
        arguments = {
            "rtol": rtol,
            "atol": atol,
            "tolerances": tolerances,
            "rename": rename,
            "include": include,
            "exclude": exclude,
            "level": level,
            "internal": internal,
            "min_coverage": min_coverage,
            "store": store,
            "redact": redact,
        }
        own = {**arguments, "reference": reference, "name": name, "port_inputs": port_inputs, "variant": variant}
        own["method"] = None if method == "forward" else method
        check_model(model, {key: value for key, value in own.items() if value is not None}, "check")
        settings = settle(
            self._item,
            arguments,
            self._options.golden_tolerances,
            ini_min_coverage=self._options.golden_min_coverage,
            ini_internal=self._options.golden_internal,
            ini_store={
                "store": self._options.golden_store,
                "budget": self._options.golden_budget,
                "max_size": self._options.golden_max_size,
            },
        )
        mode = golden_mode(self._item.config)
        if mode == "off":
            pytest.skip("--tf-golden=off")
        chosen = self._options.golden_variant if variant is None else variant
        place = self._claim(model, name, chosen, is_recorded=mode in RECORDING)
        given = PortCall(args, kwargs, method=method)
        called = _called(model, given, reference, port_inputs)
        exists = place.exists()
        # a forward may write to what it was given
        inputs = Rerun(model, called.args, called.kwargs, method) if mode in RECORDING else None
        if inputs is not None and not (mode == "missing" and exists):
            target = place.pending if mode == "pending" else place
            self._record(place, target, _recorded_model(model, reference), given, settings=settings)
            if reference is None and mode != "pending":
                return None
            called = _anew(called, inputs)
        if not place.exists():
            told = missing(self._item, place)
            note(self._item, unchecked_record(self._item.nodeid, name, model, told))
            raise MissingGoldenError(told)
        golden_file = self._load(place)
        self._check_rules(model, golden_file.trace, settings)
        is_explained = self._options.explain != "off"
        in_detail = wants_details(self._item.config)
        report = compare_with(
            golden_file,
            model,
            called,
            settings,
            is_explained=is_explained,
            in_detail=in_detail,
            progress=lambda: Progress(self._item.config, self._item.nodeid, "explaining"),
        )
        self._session.add(_outcome(str(place), self._item.nodeid, report, called.note))
        if inputs is not None and mode == "pending" and reference is not None and place.pending.exists():
            fresh, pending = _anew(called, inputs), self._load(place.pending)
            note_errors(place, report, compare_with(pending, model, fresh, settings, is_explained=False))
        for warning in warnings_of(report, type(model).__name__, settings, is_explained=is_explained):
            warnings.warn(warning, stacklevel=2)
        if not report.ok:
            self._session.note_environment(model)
            report.subject = f"The {'port' if reference is not None else 'model'} differs from its golden"
            report.advice = to_accept(self._item.config, is_reference=reference is not None)
            wanted = repros(self._item.config)
            if wanted is not None:
                test = self._item.nodeid
                told = write_golden_repro(wanted, place.fetch(), test, model=model, called=called, settings=settings)
                report.repro += (f"  {line}" for line in told.splitlines())
            report.facts.append(f"Golden: {shown(str(place), self._item.config)}")
        shown_path = shown(str(place), self._item.config)
        note(self._item, parity_record(self._item.nodeid, name, model, shown_path, report, in_detail=in_detail))
        if not report.ok:
            raise ParityError(report.check_text(), report)
        return report

    def _check_rules(self, model: torch.nn.Module, recorded: Trace, settings: CheckSettings) -> None:
        """Refuse rules of the check that match nothing, and note which rules of the ini file match something."""
        __tracebackhide__ = True
        own = names_of(model)
        check_rules(settings.rename, settings.own_globs, own, paths_of(recorded))
        for glob in settings.ini_globs:
            self._session.note_rule(glob, missed(glob, own))

    def _claim(self, model: torch.nn.Module, name: str | None, variant: str | None, *, is_recorded: bool) -> Place:
        __tracebackhide__ = True
        place = self._session.place(
            self._item, name, variants(model, variant), is_new=variant is not None and is_recorded
        )
        if name in self._names:
            which = f"name={name!r}" if name else "no name"
            raise GoldenError(
                f"Two checks of {self._item.nodeid} have {which}, and would share one golden.\n"
                "Give each check of a test a name=... of its own."
            )
        self._names.add(name)
        self._session.claim(str(place), self._item.nodeid)
        if is_recorded:
            self._session.sweep(place)
        return place

    def _record(
        self,
        place: Place,
        target: Place,
        model: torch.nn.Module,
        called: PortCall,
        *,
        settings: CheckSettings,
    ) -> None:
        """Record a forward as a golden, or beside it to be reviewed; nothing where that would change nothing."""
        __tracebackhide__ = True
        test = self._item.nodeid
        progress = Progress(self._item.config, test)
        seen: set[str] = set()

        def tell(recorded: Trace, call: Call) -> None:
            seen.add(call.path)
            progress.step("module", len(seen), 1 + len(recorded.modules) - len(recorded.unrecorded))

        picked = selection(settings.include, settings.exclude, settings.level)
        recorded = recorded_forward(model, called.args, called.kwargs, picked, tell, method=called.method)
        with target.staged(place) as file:
            written = save(file, recorded, model, test, kept=settings.kept, progress=progress)
        is_pending = target is not place
        if not is_pending or written.status == "unchanged":
            place.drop_pending()
        if not is_pending or written.status != "unchanged":
            self._session.add(Outcome(str(target), test, "pending" if is_pending else written.status, written.review))
        if written.size > _LARGE:
            told = f"{shown(str(target), self._item.config)} takes {shown_size(written.size)}"
            advice = (
                'without store="full" a golden takes about tf_golden_budget'
                if settings.kept.budget is None
                else ("the model's inputs are kept whole: smaller ones make a smaller golden")
            )
            warnings.warn(GoldenSizeWarning(f"{told}: large for a file to commit; {advice}."), stacklevel=3)

    def _load(self, place: Place) -> TraceFile:
        __tracebackhide__ = True
        file = place.fetch()
        try:
            with place.names(file):
                return load(file)
        except GoldenError as error:
            again = f"To record it again, run: pytest {quote(self._item.nodeid)} --tf-golden=update"
            raise GoldenError(f"{error}\n{again}") from error


def goldens_of(item: pytest.Item) -> Goldens:
    """Return the goldens of a test, the same object however it asks for them."""
    if _GOLDENS not in item.stash:
        item.stash[_GOLDENS] = Goldens(item)
        item.addfinalizer(lambda: item.stash.__delitem__(_GOLDENS))  # a test that is run again starts anew
    return item.stash[_GOLDENS]


def golden() -> Goldens:
    """Return the goldens of the test that runs now, for tests that cannot take fixtures (``unittest.TestCase``).

    Raises:
        TFDebugError: If no test is running under pytest with this plugin.
    """
    item = RUNNING.item
    if item is None:
        raise TFDebugError(
            "pytest_tfdebug.golden() belongs to a running test: run the file with pytest (and without -p no:tfdebug).\n"
            "Outside pytest, use pytest_tfdebug.trace, Trace.save, Trace.load and pytest_tfdebug.compare."
        )
    return goldens_of(item)


_GOLDENS: pytest.StashKey[Goldens] = pytest.StashKey()


def _anew(called: PortCall, inputs: Rerun) -> PortCall:
    """Return a call with its inputs as they were before the first forward."""
    args, kwargs = inputs.inputs()
    return replace(called, args=args, kwargs=kwargs)


def _recorded_model(
    model: torch.nn.Module, reference: torch.nn.Module | Callable[[], torch.nn.Module] | None
) -> torch.nn.Module:
    if reference is None or isinstance(reference, torch.nn.Module):
        return model if reference is None else reference
    built = reference() if callable(reference) else reference
    if not isinstance(built, torch.nn.Module):
        raise TFDebugError(
            f"reference= is a torch.nn.Module or a function that returns one; it gave {type(built).__name__}."
        )
    return built


def _outcome(path: str, test: str, report: ParityReport, note: str) -> Outcome:
    coverage, worst = report.coverage, report.worst
    return Outcome(
        path,
        test,
        "checked" if report.ok else "failed",
        (),
        note,
        coverage.compared,
        coverage.expected,
        None if worst is None else worst.share,
        "" if worst is None else worst.path,
    )


def _called(
    model: torch.nn.Module,
    given: PortCall,
    reference: object,
    port_inputs: Mapping[str, Any] | tuple[Any, ...] | None,
) -> PortCall:
    """Return how the model under test is called: like its reference, unless it takes other inputs."""
    if reference is not None:
        return port_call(model, given.args, given.kwargs, port_inputs, given.method)
    if port_inputs is not None:
        raise TFDebugError(
            "port_inputs= tells a port's inputs from its reference's, and there is no reference=.\n"
            "Give reference=, or the model's inputs alone."
        )
    return given
