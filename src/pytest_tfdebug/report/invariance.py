"""The text of a failed invariance check: what was repeated, and where and why it changes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_tfdebug.report.check_text import CheckText, next_step
from pytest_tfdebug.report.parity import describe, drift_table, facts_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_tfdebug.invariance.compare.culprit import Located
    from pytest_tfdebug.records import Culprit, LeafComparison

_ADVICE = "Fix these lines; the marker's tolerances are only for rounding."


def change_text(
    model: tuple[str, str, str],
    verdict: tuple[str, str],
    found: Located | None,
    *,
    output: Iterable[str],
    diagnosis: str = "",
) -> CheckText:
    """Return the text of a changed answer."""
    (class_name, called_at, name), (said, label) = model, verdict
    where = f"{called_at} in {class_name}" if called_at else class_name
    why = [f"{name} {said}: {label}."]
    place: Iterable[str] = ()
    drift: list[tuple[str, ...]] = [(), ()]
    circumstances: list[str] = []
    if found is not None and found.culprit is not None:
        culprit, parity = found.culprit, found.parity
        circumstances.append(culprit.explanation)
        where = f"{culprit.source} in " if culprit.source else ""
        where += f"{culprit.path} ({culprit.class_name})"
        place = _place(culprit, found)
        if parity is not None:
            count = len(parity.divergences)
            drift = [
                tuple(drift_table(parity.calls, parity.culprit or culprit, count, verbose=verbose))
                for verbose in (False, True)
            ]
    elif found is not None:
        why.append(f"The place could not be found: {found.reason}")
    if _brief(diagnosis) != diagnosis.rstrip("."):  # it says more than the first line
        why.append(f"Diagnosis: {diagnosis}")
    return CheckText(
        f"{where}: {said}" + (f"; probably {_brief(diagnosis)}" if diagnosis else ""),
        why=tuple(why),
        advice=tuple(next_step(_ADVICE)),
        figures=(*place, *output),
        drift=drift[0],
        everything=drift[1],
        circumstances=tuple(circumstances),
    )


def _brief(sentence: str) -> str:
    """Return the beginning of a sentence, without the reasons that follow it."""
    return re.split(r"[:;.](?:\s|$)", sentence, maxsplit=1)[0]


def render_output(leaf: LeafComparison | None, error: str) -> Iterator[str]:
    """Yield which output changed."""
    if leaf is None:
        yield f"  The repeated call raised {error}"
        return
    yield f"  Output: {leaf.leaf or 'the returned tensor'}, shape {leaf.shape}, {leaf.dtype}"
    if leaf.metrics is None and leaf.expected is None:
        yield "    NaN at pad positions only; the next layer would spread it to real tokens"
    yield from (f"    {line}" for line in list(describe(leaf))[:2])


def _place(culprit: Culprit, found: Located) -> Iterator[str]:
    if culprit.divergence is not None:
        yield from facts_of(culprit.divergence)
    tokens = found.tokens
    if tokens is not None:
        yield (
            f"  First token: position {tokens.position} of row {tokens.row}; "
            f"{tokens.differing} of {tokens.real} real positions differ"
        )
    elif found.parity is not None:
        yield "  First token: none, the tensor has no token axis"
