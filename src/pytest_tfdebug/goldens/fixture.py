"""``tf_golden``: the goldens of one test."""

from __future__ import annotations

import warnings
from shlex import quote
from typing import TYPE_CHECKING, Any

import pytest
import torch

from pytest_tfdebug.errors import GoldenError, MissingGoldenError, ParityError, TFDebugError
from pytest_tfdebug.goldens.fingerprint import common, differing, fingerprint
from pytest_tfdebug.goldens.passing import warnings_of
from pytest_tfdebug.goldens.paths import golden_path, shown
from pytest_tfdebug.goldens.port_call import PortCall, port_call
from pytest_tfdebug.goldens.provenance import changes, provenance
from pytest_tfdebug.goldens.recorded_check import failing_elements, parity_record, unchecked_record
from pytest_tfdebug.goldens.session import GoldenSession, Outcome
from pytest_tfdebug.goldens.settings import CheckSettings, settle
from pytest_tfdebug.goldens.store import load, save
from pytest_tfdebug.options import Options, repro_root
from pytest_tfdebug.parity.compare import conclude, coverage_of, start_comparison
from pytest_tfdebug.parity.drift import assess
from pytest_tfdebug.parity.explained import NOT_AGAIN, Explained, explain
from pytest_tfdebug.parity.pairing import with_input_names
from pytest_tfdebug.parity.rename import renamer
from pytest_tfdebug.parity.rules import check_rules, missed, paths_of
from pytest_tfdebug.parity.tolerance import DEFAULTS, flattened
from pytest_tfdebug.publish.note import note, wants_details
from pytest_tfdebug.records import Culprit
from pytest_tfdebug.running import RUNNING
from pytest_tfdebug.tracing.leaves import walk
from pytest_tfdebug.tracing.recorder import Recorder
from pytest_tfdebug.tracing.rerun import Rerun
from pytest_tfdebug.tracing.selection import modules_of, names_of, selection
from pytest_tfdebug.tracing.state import autocast_of, preserved
from pytest_tfdebug.tracing.trace import check_model, trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from pytest_tfdebug.parity.comparator import Comparator, Compared
    from pytest_tfdebug.parity.internal import Internal
    from pytest_tfdebug.parity.rename import Rename
    from pytest_tfdebug.parity.result import ParityReport
    from pytest_tfdebug.tracing.codec import TraceFile
    from pytest_tfdebug.tracing.selection import Level
    from pytest_tfdebug.tracing.trace import Trace

_VERBOSE = 2


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
        internal: Internal | None = None,
        min_coverage: float | None = None,
        **kwargs: Any,  # noqa: ANN401
    ) -> ParityReport | None:
        """Hold a forward to the golden of this test.

        With ``--tf-golden=update`` the reference (the model itself without one) runs and is recorded; otherwise the
        model runs and is compared with the file, and the reference does not run at all.

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
            internal: What becomes of a model whose outputs agree while something inside does not: ``"warn"`` passes
                with an :class:`InternalWarning`, ``"fail"`` fails.
            min_coverage: Share of the golden's calls, from 0 to 1, below which a check that passes gives a
                :class:`CoverageWarning`.
            **kwargs: Keyword inputs.

        Returns:
            The report of a comparison; None when the golden was recorded.

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
        }
        own = {**arguments, "reference": reference, "name": name, "port_inputs": port_inputs}
        check_model(model, {key: value for key, value in own.items() if value is not None}, "check")
        settings = settle(
            self._item,
            arguments,
            self._options.golden_tolerances,
            ini_min_coverage=self._options.golden_min_coverage,
            ini_internal=self._options.golden_internal,
        )
        path = self._claim(name)
        if self._options.golden == "off":
            pytest.skip("--tf-golden=off")
        called = _called(model, args, kwargs, reference, port_inputs)
        if self._options.golden == "update" or (self._options.golden == "missing" and not path.exists()):
            self._record(path, _recorded_model(model, reference), args, kwargs, settings)
            return None
        if not path.exists():
            missing = self._missing(path)
            note(self._item, unchecked_record(self._item.nodeid, name, model, missing))
            raise MissingGoldenError(missing)
        golden_file = self._load(path)
        self._check_rules(model, golden_file.trace, settings)
        is_explained = self._options.explain != "off"
        in_detail = wants_details(self._item.config)
        report = _compare_with(golden_file, model, called, settings, is_explained=is_explained, in_detail=in_detail)
        self._session.add(_outcome(str(path), self._item.nodeid, report, called.note))
        for warning in warnings_of(report, type(model).__name__, settings, is_explained=is_explained):
            warnings.warn(warning, stacklevel=2)
        if not report.ok:
            self._session.note_environment(model)
            report.subject = f"The {'port' if reference is not None else 'model'} differs from its golden"
            report.advice = (
                "To accept the new values, run with --tf-golden=update."
                if reference is None
                else "Mend the port: the golden is its reference's."
            )
            root = repro_root(self._item.config)
            if root is not None:
                report.facts.append(f"  {self._write_repro(root, path, model, called, settings)}")
            report.facts.append(f"  Golden: {shown(path, self._item.config)}")
        shown_path = str(shown(path, self._item.config))
        note(self._item, parity_record(self._item.nodeid, name, model, shown_path, report, in_detail=in_detail))
        if not report.ok:
            verbose = self._item.config.get_verbosity() >= _VERBOSE
            raise ParityError(report.to_text(verbose=verbose), report)
        return report

    def _check_rules(self, model: torch.nn.Module, recorded: Trace, settings: CheckSettings) -> None:
        """Refuse rules of the check that match nothing, and note which rules of the ini file match something."""
        __tracebackhide__ = True
        own = names_of(model)
        check_rules(settings.rename, settings.own_globs, own, paths_of(recorded))
        for glob in settings.ini_globs:
            self._session.note_rule(glob, missed(glob, own))

    def _claim(self, name: str | None) -> Path:
        __tracebackhide__ = True
        path = golden_path(self._item, self._options.golden_dir, name)
        if name in self._names:
            which = f"name={name!r}" if name else "no name"
            raise GoldenError(
                f"Two checks of {self._item.nodeid} have {which}, and would share one golden.\n"
                "Give each check of a test a name=... of its own."
            )
        self._names.add(name)
        self._session.claim(path, self._item.nodeid)
        return path

    def _record(
        self, path: Path, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], settings: CheckSettings
    ) -> None:
        picked = {"include": settings.include, "exclude": settings.exclude, "level": settings.level}
        recorded = trace(model, *args, **picked, **kwargs)  # type: ignore[arg-type] # a dict has one value type
        written = save(path, recorded, model, self._item.nodeid)
        self._session.add(Outcome(str(path), self._item.nodeid, written.status, written.review))

    def _write_repro(
        self, root: Path, path: Path, model: torch.nn.Module, called: PortCall, settings: CheckSettings
    ) -> str:
        from pytest_tfdebug.repro.write import FailedCall, write_repro

        if settings.rename is not None and callable(settings.rename):
            return "No repro: rename= is a function; a dict can be written."
        allowed, own = flattened(settings.tolerances), names_of(model)
        options = {
            "rtol": allowed.rtol,
            "atol": allowed.atol,
            "tolerances": {
                key: (pair.rtol, pair.atol)
                for key, pair in allowed.overrides
                if key in DEFAULTS or missed(key, own) is None
            },
            "rename": None if settings.rename is None else dict(settings.rename),
            "internal": settings.internal,
        }
        picked = "".join(f", {name}={value!r}" for name, value in _picked(settings).items())
        check = (
            'expected = pytest_tfdebug.Trace.load(HERE / "golden.safetensors")',
            f"actual = pytest_tfdebug.trace(model, *args, **kwargs{picked})",
            f"report = pytest_tfdebug.compare(expected, actual, **{options!r})",
            "print(report)",
            "sys.exit(not report.ok)",
        )
        files, autocast = {"golden.safetensors": path}, autocast_of(model)
        failed = FailedCall(self._item.nodeid, "parity", model, called.args, called.kwargs, check, files, autocast)
        return write_repro(root, failed)

    def _missing(self, path: Path) -> str:
        return (
            f"{self._item.nodeid} has no golden yet: {shown(path, self._item.config)} does not exist.\n"
            f"To record it, run: pytest {quote(self._item.nodeid)} --tf-golden=missing"
        )

    def _load(self, path: Path) -> TraceFile:
        __tracebackhide__ = True
        try:
            return load(path)
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
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    reference: object,
    port_inputs: Mapping[str, Any] | tuple[Any, ...] | None,
) -> PortCall:
    """Return how the model under test is called: like its reference, unless it takes other inputs."""
    if reference is not None:
        return port_call(model, args, kwargs, port_inputs)
    if port_inputs is not None:
        raise TFDebugError(
            "port_inputs= tells a port's inputs from its reference's, and there is no reference=.\n"
            "Give reference=, or the model's inputs alone."
        )
    return PortCall(args, kwargs)


def _picked(settings: CheckSettings) -> dict[str, str | tuple[str, ...]]:
    """Return what a trace of the port leaves out; globs are over the paths of the reference, so only without rename."""
    picked: dict[str, str | tuple[str, ...]] = {} if settings.level == "all" else {"level": settings.level}
    if settings.rename is None:
        globs = {"include": settings.include, "exclude": settings.exclude}
        picked |= {name: (glob,) if isinstance(glob, str) else tuple(glob) for name, glob in globs.items() if glob}
    return picked


def _compare_with(
    golden_file: TraceFile,
    model: torch.nn.Module,
    called: PortCall,
    settings: CheckSettings,
    *,
    is_explained: bool = True,
    in_detail: bool = False,
) -> ParityReport:
    """Run a model and compare each tensor with its golden while it is alive; once more to explain a failure."""
    modules = modules_of(model)
    again = Rerun(model, called.args, called.kwargs)
    notes: list[str] = [*golden_file.trace.notes, *filter(None, [called.note])]
    expected_trace = with_input_names(golden_file.trace, called.names)

    def held_under(names: Rename, inputs: tuple[tuple[Any, ...], dict[str, Any]]) -> tuple[Comparator, Any]:
        picked = selection(
            settings.include,
            settings.exclude,
            settings.level,
            renamer(names),
            among=coverage_of(golden_file.trace).has,
            elsewhere=golden_file.trace.modules,
        )
        watched = picked.pick(model, modules.by_path)
        comparator = start_comparison(
            expected_trace,
            names,
            settings.tolerances,
            modules=list(modules.by_path),
            aliases=modules.aliases,
            unrecorded=modules.by_path.keys() - watched.keys(),
        )
        recorder = Recorder(model, comparator, picked, comparator.wrote)
        notes.extend(recorder.notes)
        with preserved(model), torch.no_grad(), recorder:
            return comparator, model(*inputs[0], **inputs[1])

    comparator, output = held_under(settings.rename, (called.args, called.kwargs))

    def under_rules(rules: dict[str, str]) -> Compared | None:
        if callable(settings.rename):
            return None
        try:
            return held_under({**(settings.rename or {}), **rules}, again.inputs())[0].finish()
        except Exception:  # noqa: BLE001 - a forward that cannot be made again must not cost the report on the first
            return None

    def second_look(fails: bool | None) -> Explained | None:  # noqa: FBT001 - a callback
        expected = golden_file.trace.again.values() if golden_file.trace.again is not None else None
        if expected is None or not is_explained:
            return None
        actual = again.values([leaf.tensor for leaf in walk(output)])
        if actual is None:
            return Explained(None, is_known=False, compared=0, expected=0, notes=[NOT_AGAIN])
        return explain(expected, actual, fails=fails)

    report = conclude(comparator, tuple(notes), second_look, under_rules, internal=settings.internal)
    if not report.ok:
        _look_into(report, golden_file, model, called, settings)
    if not report.ok and in_detail:
        report.elements = failing_elements(report, model, again.inputs(), settings.tolerances)
    return report


def _look_into(
    report: ParityReport, golden_file: TraceFile, model: torch.nn.Module, called: PortCall, settings: CheckSettings
) -> None:
    """Say what the inputs, the weights and the environment have to do with a failure."""
    if called.other is not None:
        own, theirs = called.other
        told = f"{own!r} of port_inputs= has other values than the reference's {theirs}. Nothing below can be judged."
        root = type(model).__name__
        report.culprit = Culprit(root, "inputs", None, told, root, None)
    report.facts += _circumstances(golden_file, model, report, renamer(settings.rename))


def _circumstances(
    golden_file: TraceFile, model: torch.nn.Module, report: ParityReport, to_golden: Callable[[str], str]
) -> list[str]:
    """Say whether weights and environment are those of the golden."""
    recorded, present = golden_file.extra["weights"], fingerprint(model)
    wrong = differing(recorded, present, to_golden)
    culprit = report.culprit
    own = [name for name in wrong if culprit is not None and name.rpartition(".")[0] == culprit.path]
    if own:
        told = f"  The weights differ, not the code: {own[0]!r} is not the recorded one"
        lines = [told + (f", nor are {len(wrong) - 1} others." if len(wrong) > 1 else ".")]
    elif wrong:
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        lines = [f"  Weights that are not the recorded ones: {wrong[0]!r}{more}."]
    elif common(recorded, present, to_golden):
        lines = ["  The weights are the recorded ones, where their names agree."]
    else:
        lines = ["  No weight has the name of a recorded one: give rename= to have them compared."]
    since = list(changes(golden_file.extra["provenance"], provenance(model)))
    report.changed, report.other_weights = since, wrong
    lines += [f"  Changed since it was recorded: {'; '.join(since)}."] if since else []
    return [*lines, f"  {assess(report, since, wrong)}"]
