"""The text of a failed invariance check: what was repeated, and where and why it changes."""

from __future__ import annotations

import re
from dataclasses import replace
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
    brief = re.split(r"[:;.](?:\s|$)", diagnosis, maxsplit=1)[0]  # without the reasons that follow
    answer = f"{said}; probably {brief}" if diagnosis else said
    why = [f"{name} {said}: {label}."]
    if found is not None and found.culprit is None:
        why.append(f"The place could not be found: {found.reason}")
    if brief != diagnosis.rstrip("."):
        why.append(f"Diagnosis: {diagnosis}")
    text = CheckText(
        f"{called_at} in {class_name}: {answer}" if called_at else f"{class_name}: {answer}",
        why=tuple(why),
        advice=tuple(next_step(_ADVICE)),
        figures=tuple(output),
    )
    if found is None or found.culprit is None:
        return text
    culprit, parity = found.culprit, found.parity
    where = f"{culprit.source} in " if culprit.source else ""
    shown = () if parity is None else (parity.calls, parity.culprit or culprit, len(parity.divergences))
    return replace(
        text,
        answer=f"{where}{culprit.path} ({culprit.class_name}): {answer}",
        figures=(*_place(culprit, found), *text.figures),
        drift=tuple(drift_table(*shown, verbose=False) if shown else ()),
        everything=tuple(drift_table(*shown, verbose=True) if shown else ()),
        circumstances=(culprit.explanation,),
    )


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
