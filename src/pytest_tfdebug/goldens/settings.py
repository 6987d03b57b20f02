"""What one check is asked to do: argument before marker before command line before ini file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.options import MARKERS
from pytest_tfdebug.parity.tolerance import Tolerances, layered, tolerances

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_tfdebug.parity.rename import Rename
    from pytest_tfdebug.tracing.selection import Level

#: What a check takes besides the model and its inputs, and a ``tf_golden`` marker as a default for its test.
KEYWORDS = ("rtol", "atol", "tolerances", "rename", "include", "exclude", "level")


@dataclass(frozen=True)
class CheckSettings:
    """The resolved settings of a check.

    Args:
        tolerances: What is allowed.
        rename: Port path -> reference path.
        include: Globs of (reference) module paths to record.
        exclude: Globs to leave out.
        level: Which modules.
    """

    tolerances: Tolerances
    rename: Rename
    include: str | Iterable[str]
    exclude: str | Iterable[str]
    level: Level


def settle(item: pytest.Item, arguments: Mapping[str, Any], ini_tolerances: str | None) -> CheckSettings:
    """Merge the arguments of a check with the test's marker and the ini file.

    Args:
        item: The running test.
        arguments: The check's own arguments by name; None means not given.
        ini_tolerances: Text of the ini key, lines of ``<dtype or glob>: <rtol> <atol>``.

    Raises:
        pytest.UsageError: If the marker has positional or unknown arguments, or the ini text cannot be read.
        TFDebugError: If a tolerance makes no sense.
    """
    marked = _of_marker(item)
    chosen = {key: arguments[key] if arguments.get(key) is not None else marked.get(key) for key in KEYWORDS}
    allowed = layered(
        tolerances(arguments.get("rtol"), arguments.get("atol"), arguments.get("tolerances")),
        tolerances(marked.get("rtol"), marked.get("atol"), marked.get("tolerances")),
        tolerances(overrides=parse_tolerances(ini_tolerances)),
    )
    return CheckSettings(
        allowed, chosen["rename"], chosen["include"] or (), chosen["exclude"] or (), chosen["level"] or "all"
    )


def parse_tolerances(text: str | None) -> dict[str, tuple[float, float]]:
    """Read the ini key: a line ``float32: 1e-4 1e-5`` or ``*.lm_head: 1e-3 1e-3`` for each override.

    Raises:
        pytest.UsageError: If a line is not of this form.
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
        found[key.strip()] = (rtol, atol)
    return found


def _of_marker(item: pytest.Item) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for marker in reversed(list(item.iter_markers("tf_golden"))):  # the closest one is the strongest
        unknown = [*map(repr, marker.args), *(key for key in marker.kwargs if key not in KEYWORDS)]
        if unknown:
            raise pytest.UsageError(f"tf_golden does not take {', '.join(unknown)}: {MARKERS['tf_golden']}")
        merged.update(marker.kwargs)
    try:
        tolerances(merged.get("rtol"), merged.get("atol"), merged.get("tolerances"))
    except TFDebugError as error:
        raise pytest.UsageError(f"tf_golden: {error}") from error
    return merged
