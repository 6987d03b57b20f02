"""``tf_golden``: the goldens of one test."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Any

import pytest
import torch

from pytest_tfdebug.errors import GoldenError, MissingGoldenError, ParityError, TFDebugError
from pytest_tfdebug.goldens.fingerprint import common, differing, fingerprint
from pytest_tfdebug.goldens.paths import golden_path, shown
from pytest_tfdebug.goldens.provenance import changes, provenance
from pytest_tfdebug.goldens.session import GoldenSession, Outcome
from pytest_tfdebug.goldens.settings import CheckSettings, settle
from pytest_tfdebug.goldens.store import load, save
from pytest_tfdebug.options import Options, repro_root
from pytest_tfdebug.parity.compare import conclude, coverage_of, look_inside, start_comparison
from pytest_tfdebug.parity.drift import assess
from pytest_tfdebug.parity.rename import renamer
from pytest_tfdebug.parity.tolerance import flattened
from pytest_tfdebug.running import RUNNING
from pytest_tfdebug.tracing.recorder import Recorder
from pytest_tfdebug.tracing.selection import modules_of, selection
from pytest_tfdebug.tracing.state import autocast_of, preserved
from pytest_tfdebug.tracing.trace import check_model, trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from pytest_tfdebug.parity.rename import Rename
    from pytest_tfdebug.parity.result import ParityReport
    from pytest_tfdebug.tracing.codec import TraceFile
    from pytest_tfdebug.tracing.selection import Level

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
        }
        own = {**arguments, "reference": reference, "name": name}
        check_model(model, {key: value for key, value in own.items() if value is not None}, "check")
        settings = settle(self._item, arguments, self._options.golden_tolerances)
        path = self._claim(name)
        if self._options.golden == "off":
            pytest.skip("--tf-golden=off")
        if self._options.golden == "update" or (self._options.golden == "missing" and not path.exists()):
            self._record(path, _recorded_model(model, reference), args, kwargs, settings)
            return None
        if not path.exists():
            raise MissingGoldenError(self._missing(path))
        report = _compare_with(self._load(path), model, args, kwargs, settings)
        self._session.add(Outcome(str(path), self._item.nodeid, "checked" if report.ok else "failed", ()))
        if not report.ok:
            self._session.note_environment(model)
            report.subject = f"{'Port' if reference is not None else 'Model'} diverges from its golden"
            root = repro_root(self._item.config)
            if root is not None:
                report.facts.append(f"  {self._write_repro(root, path, model, args, kwargs, settings)}")
            report.facts += [
                f"  Golden: {shown(path, self._item.config)}",
                "To accept the new values, run with --tf-golden=update.",
            ]
            verbose = self._item.config.get_verbosity() >= _VERBOSE
            raise ParityError(report.to_text(verbose=verbose))
        return report

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

    def _write_repro(  # noqa: PLR0917 - where to, and the call
        self,
        root: Path,
        path: Path,
        model: torch.nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        settings: CheckSettings,
    ) -> str:
        from pytest_tfdebug.repro.write import FailedCall, write_repro

        if settings.rename is not None and callable(settings.rename):
            return "No repro: rename= is a function; a dict can be written."
        allowed = flattened(settings.tolerances)
        options = {
            "rtol": allowed.rtol,
            "atol": allowed.atol,
            "tolerances": {key: (pair.rtol, pair.atol) for key, pair in allowed.overrides},
            "rename": None if settings.rename is None else dict(settings.rename),
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
        return write_repro(root, FailedCall(self._item.nodeid, "parity", model, args, kwargs, check, files, autocast))

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
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    settings: CheckSettings,
) -> ParityReport:
    """Run a model and compare each tensor with its golden while it is alive, also under the names that suggests."""
    modules = modules_of(model)

    def held_under(names: Rename) -> ParityReport:
        picked = selection(
            settings.include, settings.exclude, settings.level, renamer(names), coverage_of(golden_file.trace).has
        )
        watched = picked.pick(model, modules.by_path)
        comparator = start_comparison(
            golden_file.trace,
            names,
            settings.tolerances,
            modules=list(modules.by_path),
            aliases=modules.aliases,
            unrecorded=modules.by_path.keys() - watched.keys(),
        )
        recorder = Recorder(model, comparator, picked, comparator.wrote)
        with preserved(model), torch.no_grad(), recorder:
            model(*args, **kwargs)
        return conclude(comparator, (*golden_file.trace.notes, *recorder.notes))

    report = look_inside(held_under, settings.rename)
    if not report.ok:
        report.facts += _circumstances(golden_file, model, report, renamer(settings.rename))
    return report


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
    lines += [f"  Changed since it was recorded: {'; '.join(since)}."] if since else []
    return [*lines, f"  {assess(report, since, wrong)}"]
