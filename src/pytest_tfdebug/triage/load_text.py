"""The text of a failed ``clean_load``."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from pytest_tfdebug.report.check_text import CheckText, next_step
from pytest_tfdebug.triage import text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_tfdebug.check_record import Lines, LoadRecord

_ADVICE = "Load it with the class that saved it, or allow keys with @pytest.mark.clean_load(allow=['regex'])."


def load_text(unclean: Sequence[LoadRecord], at: Lines | None) -> CheckText:
    """Return the text on loads that are not clean; its first line names the first load.

    Args:
        unclean: What was loaded, and the keys that do not fit.
        at: The line of the first load.
    """
    first, *others = unclean
    where = f"{PurePath(at.file).name}:{at.first} in " if at is not None else ""
    return CheckText(
        f"{where}{first.model}: is not clean: {_counts(first)} weights",
        why=(f"{_sentence(first)}.",),
        advice=tuple(next_step(_ADVICE)),
        figures=(*_keys(first), *(line for load in others for line in (f"  {_sentence(load)}:", *_keys(load)))),
    )


def _counts(load: LoadRecord) -> str:
    return f"{len(load.missing)} missing, {len(load.unexpected)} unexpected, {len(load.mismatched)} mismatched"


def _sentence(load: LoadRecord) -> str:
    return f"{load.model} loaded from {text.value(load.source)} is not clean: {_counts(load)} weights"


def _keys(load: LoadRecord) -> Iterator[str]:
    for label, keys in (
        ("missing, random now", load.missing),
        ("unexpected, left out", load.unexpected),
        ("mismatched, random now", load.mismatched),
    ):
        if keys:
            yield f"  {label}: {text.listing(list(keys))}"
