"""What one check is asked to do: argument before marker before command line before ini file."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import pytest

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.marker_arguments import unknown
from pytest_tfdebug.parity.tensors.outputs import OutputRules
from pytest_tfdebug.parity.tensors.tolerance import Tolerances, layered, read_tolerance, tolerances
from pytest_tfdebug.parity.verdict import Internal
from pytest_tfdebug.tracing.record.modules import Level, checked
from pytest_tfdebug.tracing.values.precision import checked_dtypes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pytest_tfdebug.parity.pair.rename import Rename

#: What a ``tf_golden`` marker takes: the defaults of its test's checks, and what is recorded.
KEYWORDS = ("tolerance", "rename", "internal", "store", "include", "exclude", "level", "dtypes")
#: What a golden keeps: a sample of each tensor and the values of its operators, or every element.
Store = Literal["values", "full"]
#: What holds where nothing is said, of keywords that the ini file knows.
_DEFAULTS = {"internal": "warn", "tolerance": "dtype", "store": "values"}
#: Keywords that are fields of the settings as they are.
_AS_GIVEN = ("rename", "include", "exclude", "level", "internal")
#: Keywords that take one of a few words.
_CHOICES = {"internal": get_args(Internal), "store": get_args(Store), "level": get_args(Level)}
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmg]?b|)\s*", re.IGNORECASE)
#: Set where a run records the model under test, also where it has a reference: the directory of goldens whose numbers
#: ``fill`` is to give it, whatever its parameters are called.
RECORDS_PORT = pytest.StashKey[Path]()
#: Bytes above which a golden is not written: GitHub refuses files of more than 100 MiB.
MAX_SIZE = 100_000_000


@dataclass(frozen=True)
class Kept:
    """What is kept of a forward that is recorded."""

    store: Store = "values"  # a sample of each tensor, or every element
    max_size: int | None = MAX_SIZE  # bytes above which it is not written
    has_floors: bool = False  # whether the forward is made once more in float64, and the floor of each tensor kept
    has_positions: bool = False  # whether the model's outputs are kept with zeros where their positions do not count
    # dtypes in half precision that the forward is made in once more, for the floor of each value there
    dtypes: tuple[str, ...] = ()


@dataclass(frozen=True)
class CheckSettings:
    """The resolved settings of a check."""

    tolerances: Tolerances  # the tolerance of every tensor
    rename: Rename = None  # port path -> reference path
    include: str | Iterable[str] = ()  # globs of (reference) module paths to record
    exclude: str | Iterable[str] = ()  # globs to leave out
    level: Level = "all"  # which modules to record
    internal: Internal = "warn"  # what becomes of equal outputs with differences inside
    kept: Kept = Kept()  # what is kept of a forward that is recorded
    rules: OutputRules = field(default_factory=OutputRules)  # what is said of the model's outputs
    # globs of the tolerances that the check or its marker gives: each must match a module
    own_globs: tuple[str, ...] = ()
    # how long changes are tried after a failure, to prove what is wrong; None for five, 0 for none
    explain_seconds: float | None = None
    is_explained: bool = True  # whether the model is run once more after a failure, to name the line
    in_detail: bool = False  # whether somebody reads more of the check than its verdict


def merged_settings(item: pytest.Item, arguments: Mapping[str, Any], ini: Mapping[str, Any]) -> CheckSettings:
    """Merge the arguments of a check (None: not given) with the test's marker and the options of the run."""
    defaults = {key: ini.get(f"golden_{key}") or default for key, default in _DEFAULTS.items()}
    places: tuple[Mapping[str, Any], ...] = (arguments, _of_marker(item), defaults)
    chosen: dict[str, Any] = {}
    for place in reversed(places):
        chosen |= {key: value for key, value in place.items() if key in KEYWORDS and value not in (None, "")}
    given, by_marker = map(_checked, places[:2])
    with _said_by("tf_golden_"):
        _checked(defaults)
        max_size = parse_size(ini.get("golden_max_size") or MAX_SIZE, "max_size =")
    ways = (place.get("tolerance") for place in places)
    is_measured = next(way for way in ways if isinstance(way, str)) == "fp64"
    by_ini = tolerances(overrides=parse_tolerances(ini.get("golden_tolerances")))
    positions, dtypes = arguments.get("positions"), checked_dtypes(chosen.get("dtypes"))
    return CheckSettings(
        layered(given, by_marker, replace(by_ini, by="fp64" if is_measured else "dtype")),
        **{key: value for key, value in chosen.items() if key in _AS_GIVEN},
        kept=Kept(chosen["store"], max_size, is_measured, positions is not None, dtypes),
        rules=OutputRules(arguments.get("outputs"), positions),
        own_globs=(*given.globs, *by_marker.globs),
        explain_seconds=parse_seconds(ini.get("explain_seconds")),
        is_explained=ini.get("explain") != "off",
        in_detail=bool(ini.get("html") or ini.get("json")),
    )


def parse_seconds(text: str | None) -> float | None:
    """Return the number of seconds that a text stands for."""
    try:
        seconds = None if text is None else float(text)
    except ValueError:
        seconds = -1.0
    if seconds is not None and not seconds >= 0:
        raise pytest.UsageError(f"tf_explain_seconds = {text!r} is not a number of seconds >= 0.")
    return seconds


def parse_size(text: object, name: str) -> int:
    """Return the bytes that ``"1 MB"``, ``"64 kB"`` or a number stands for."""
    found = _SIZE.fullmatch(str(text)) if isinstance(text, (str, int)) and not isinstance(text, bool) else None
    size = int(float(found[1]) * _UNITS[found[2].lower()]) if found else 0
    if size <= 0:
        raise TFDebugError(f'{name} {text!r} is not a size such as "1 MB" or "64 kB".')
    return size


def _checked(given: Mapping[str, Any]) -> Tolerances:
    wrong = list(_problems(given))
    if wrong:
        raise TFDebugError("\n".join(wrong))
    tolerance = given.get("tolerance")
    return Tolerances() if tolerance is None else read_tolerance(tolerance)


def _problems(given: Mapping[str, Any]) -> Iterator[str]:
    for key, choices in _CHOICES.items():
        if given.get(key) not in (None, *choices):
            yield f"{key}={given[key]!r} is not one of {', '.join(map(repr, choices))}."
    yield from _refused(read_tolerance, given.get("tolerance"))
    yield from _refused(checked_dtypes, given.get("dtypes"))


def _refused(read: Callable[[Any], object], value: object) -> Iterator[str]:
    try:
        if value is not None:
            read(value)
    except TFDebugError as error:
        yield str(error)


@contextmanager
def _said_by(place: str) -> Iterator[None]:
    """Let what makes no sense in the ini file be a usage error that begins with its name."""
    try:
        yield
    except TFDebugError as error:
        raise pytest.UsageError(f"{place}{error}") from error


def parse_tolerances(text: str | None) -> dict[str, tuple[float, float]]:
    """Read the ini key: a line ``float32: 1e-4 1e-5`` or ``**.lm_head: 1e-3 1e-3`` for each override."""
    found = {}
    for line in filter(None, map(str.strip, (text or "").splitlines())):
        key, _, numbers = line.rpartition(":")
        try:
            rtol, atol = map(float, numbers.split())
        except ValueError as error:
            raise pytest.UsageError(
                f"tf_golden_tolerances: {line!r} is not of the form '<dtype or module glob>: <rtol> <atol>'."
            ) from error
        with _said_by("tf_golden_tolerances: "):
            found[checked(key.strip())] = (rtol, atol)
    return found


def _of_marker(item: pytest.Item) -> dict[str, Any]:
    """Return what the markers of a test say; what makes no sense in them is one usage error."""
    merged: dict[str, Any] = {}
    wrong: dict[str, None] = {}
    for marker in reversed(list(item.iter_markers("tf_golden"))):  # the closest one is the strongest
        wrong |= dict.fromkeys(unknown("tf_golden", KEYWORDS, marker.args, marker.kwargs))
        wrong |= dict.fromkeys(f"tf_golden: {problem}" for problem in _problems(marker.kwargs))
        merged |= marker.kwargs
    if wrong:
        raise pytest.UsageError("\n".join(wrong))
    return merged
