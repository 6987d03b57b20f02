"""What one check is asked to do: argument before marker before command line before ini file."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import pytest

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.marker_arguments import refuse_unknown
from pytest_tfdebug.parity.calls.internal import checked_internal
from pytest_tfdebug.parity.tensors.outputs import OutputRules
from pytest_tfdebug.parity.tensors.tolerance import Tolerances, layered, read_tolerance, tolerances
from pytest_tfdebug.tracing.record.globs import checked
from pytest_tfdebug.tracing.values.half_precision import checked_dtypes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_tfdebug.parity.calls.internal import Internal
    from pytest_tfdebug.parity.pair.rename import Rename
    from pytest_tfdebug.tracing.record.selection import Level

#: What a ``tf_golden`` marker takes: the defaults of its test's checks, and what is recorded.
KEYWORDS = ("tolerance", "rename", "internal", "store", "include", "exclude", "level", "redact", "dtypes")
#: What a golden keeps: a sample of each tensor and the values of its operators, or every element.
Store = Literal["values", "full"]
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmg]?b|)\s*", re.IGNORECASE)
#: Bytes above which a golden is not written: GitHub refuses files of more than 100 MiB.
MAX_SIZE = 100_000_000


@dataclass(frozen=True)
class Kept:
    """What is kept of a forward that is recorded.

    Args:
        store: A sample of each tensor, or every element.
        max_size: Bytes above which it is not written.
        redact: Names of string inputs whose text is left out; True for all of them.
        has_floors: Whether the forward is made once more in float64, and the floor of each tensor kept.
        dtypes: Dtypes in half precision that the forward is made in once more, for the floor of each value there.
        has_positions: Whether the model's outputs are kept with zeros where their positions do not count.
    """

    store: Store = "values"
    max_size: int | None = MAX_SIZE
    redact: bool | tuple[str, ...] = ()
    has_floors: bool = False
    has_positions: bool = False
    dtypes: tuple[str, ...] = ()


@dataclass(frozen=True)
class CheckSettings:
    """The resolved settings of a check.

    Args:
        tolerances: The tolerance of every tensor.
        rename: Port path -> reference path.
        include: Globs of (reference) module paths to record.
        exclude: Globs to leave out.
        level: Which modules to record.
        internal: What becomes of equal outputs with differences inside.
        kept: What is kept of a forward that is recorded.
        rules: What is said of the model's outputs.
        own_globs: Globs of the tolerances that the check or its marker gives: each must match a module.
        ini_globs: Globs of the ini file's tolerances, which hold for other tests too.
        explain_seconds: How long changes are tried after a failure, to prove what is wrong; None for five, 0 for none.
    """

    tolerances: Tolerances
    rename: Rename
    include: str | Iterable[str]
    exclude: str | Iterable[str]
    level: Level
    internal: Internal = "warn"
    kept: Kept = Kept()
    rules: OutputRules = field(default_factory=OutputRules)
    own_globs: tuple[str, ...] = ()
    ini_globs: tuple[str, ...] = ()
    explain_seconds: float | None = None


def settle(
    item: pytest.Item,
    arguments: Mapping[str, Any],
    ini_tolerances: str | None,
    *,
    ini_internal: str | None = None,
    ini_tolerance: str | None = None,
    ini_store: Mapping[str, str | None] | None = None,
) -> CheckSettings:
    """Merge the arguments of a check with the test's marker and the ini file.

    Args:
        item: The running test.
        arguments: The check's own arguments by name; None means not given.
        ini_tolerances: Text of the ini key, lines of ``<dtype or glob>: <rtol> <atol>``.
        ini_internal: Text of the ini key, ``warn`` or ``fail``.
        ini_tolerance: Text of the ini key, ``dtype`` or ``fp64``.
        ini_store: Texts of the ini keys ``store`` and ``max_size``.

    Raises:
        pytest.UsageError: If the marker has positional or unknown arguments, or the ini text cannot be read.
        TFDebugError: If an argument makes no sense.
    """
    marked = _of_marker(item)
    chosen = {key: arguments[key] if arguments.get(key) is not None else marked.get(key) for key in KEYWORDS}
    given, by_marker = (read_tolerance(place.get("tolerance")) for place in (arguments, marked))
    of_ini = _of_ini(ini_internal, ini_tolerance)
    _check(arguments)
    places = (arguments.get("tolerance"), marked.get("tolerance"), of_ini["tolerance"])
    by = next(place for place in places if isinstance(place, str))
    by_ini = replace(tolerances(overrides=parse_tolerances(ini_tolerances)), by=read_tolerance(by).by)
    return CheckSettings(
        layered(given, by_marker, by_ini),
        chosen["rename"],
        chosen["include"] or (),
        chosen["exclude"] or (),
        chosen["level"] or "all",
        chosen["internal"] or of_ini["internal"],
        replace(
            _kept(chosen["store"], chosen["redact"], ini_store or {}),
            has_floors=by == "fp64",
            has_positions=arguments.get("positions") is not None,
            dtypes=checked_dtypes(chosen["dtypes"]),
        ),
        OutputRules(arguments.get("outputs"), arguments.get("positions")),
        (*given.globs, *by_marker.globs),
        by_ini.globs,
    )


def parse_size(text: object, name: str) -> int:
    """Return the bytes that ``"1 MB"``, ``"64 kB"`` or a number stands for.

    Raises:
        TFDebugError: If it is no size; the message begins with ``name``.
    """
    found = _SIZE.fullmatch(str(text)) if isinstance(text, (str, int)) and not isinstance(text, bool) else None
    size = int(float(found[1]) * _UNITS[found[2].lower()]) if found else 0
    if size <= 0:
        raise TFDebugError(f'{name} {text!r} is not a size such as "1 MB" or "64 kB".')
    return size


def _of_ini(internal: str | None, tolerance: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {"internal": internal or "warn", "tolerance": tolerance or "dtype"}
    try:
        _check(found)
    except TFDebugError as error:
        raise pytest.UsageError(f"tf_golden_{error}") from error
    return found


def _kept(store: Store | None, redact: Any, ini: Mapping[str, str | None]) -> Kept:  # noqa: ANN401 - checked before
    try:
        chosen = store or ini.get("store") or "values"
        _check({"store": chosen})
        max_size = parse_size(ini.get("max_size") or MAX_SIZE, "max_size =")
    except TFDebugError as error:
        raise pytest.UsageError(f"tf_golden_{error}") from error
    names = (redact,) if isinstance(redact, str) else redact if isinstance(redact, bool) else tuple(redact or ())
    return Kept("full" if chosen == "full" else "values", max_size, names)


def _check(given: Mapping[str, Any]) -> None:
    """Refuse values of ``internal``, ``tolerance``, ``store`` and ``redact`` that make no sense.

    Raises:
        TFDebugError: As said.
    """
    if given.get("internal") is not None:
        checked_internal(given["internal"])
    read_tolerance(given.get("tolerance"))
    store, redact = given.get("store"), given.get("redact")
    if store is not None and store not in get_args(Store):
        raise TFDebugError(f"store={store!r} is not one of {', '.join(map(repr, get_args(Store)))}.")
    if not (redact is None or isinstance(redact, (bool, str)) or _are_names(redact)):
        raise TFDebugError(f"redact={redact!r} is no name of an input, list of names, or True.")


def _are_names(value: object) -> bool:
    return isinstance(value, (tuple, list)) and all(isinstance(name, str) for name in value)


def parse_tolerances(text: str | None) -> dict[str, tuple[float, float]]:
    """Read the ini key: a line ``float32: 1e-4 1e-5`` or ``**.lm_head: 1e-3 1e-3`` for each override.

    Raises:
        pytest.UsageError: If a line is not of this form, or its glob makes no sense.
    """
    found = {}
    for line in filter(None, map(str.strip, (text or "").splitlines())):
        key, _, numbers = line.rpartition(":")
        try:
            rtol, atol = map(float, numbers.split())
        except ValueError as error:
            raise pytest.UsageError(
                f"tf_golden_tolerances: {line!r} is not of the form '<dtype or module glob>: <rtol> <atol>'."
            ) from error
        try:
            found[checked(key.strip())] = (rtol, atol)
        except TFDebugError as error:
            raise pytest.UsageError(f"tf_golden_tolerances: {error}") from error
    return found


def _of_marker(item: pytest.Item) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for marker in reversed(list(item.iter_markers("tf_golden"))):  # the closest one is the strongest
        try:
            refuse_unknown("tf_golden", KEYWORDS, marker.args, marker.kwargs)
        except TFDebugError as error:
            raise pytest.UsageError(str(error)) from error
        merged.update(marker.kwargs)
    try:
        _check(merged)
    except TFDebugError as error:
        raise pytest.UsageError(f"tf_golden: {error}") from error
    return merged
