"""The text of a call that was made again in another way, and that gave another answer."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_tfdebug.report.check_text import CheckText, next_step
from pytest_tfdebug.report.comparison import describe, drift_table, facts_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.invariance.calls.observed_call import ObservedCall
    from pytest_tfdebug.invariance.compare.culprit import Located
    from pytest_tfdebug.invariance.compare.outputs import Mismatch
    from pytest_tfdebug.records import Culprit

_ADVICE = "Fix these lines; the marker's tolerances are only for rounding."


def change_text(
    call: ObservedCall,
    verdict: tuple[str, str],
    mismatch: Mismatch,
    found: Located | None,
    diagnosis: str,
    *,
    advice: str = "",
) -> CheckText:
    """Return the text of a changed answer; the verdict is what is said of it, and of which repetition."""
    said, label = verdict
    brief = re.split(r"[:;.](?:\s|$)", diagnosis, maxsplit=1)[0]  # without the reasons that follow
    answer = f"{said}; probably {brief}" if diagnosis else said
    why = [f"{call.name} {said}: {label}."]
    if found is not None and found.culprit is None:
        why.append(f"The place could not be found: {found.reason}")
    if brief != diagnosis.rstrip("."):
        why.append(f"Diagnosis: {diagnosis}")
    text = CheckText(
        f"{call.at} in {call.class_name}: {answer}" if call.at else f"{call.class_name}: {answer}",
        why=tuple(why),
        advice=tuple(next_step(advice or _ADVICE)),
        figures=tuple(_changed(mismatch)),
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


def _changed(mismatch: Mismatch) -> Iterator[str]:
    leaf = mismatch.leaf
    if leaf is None:
        yield f"  The repeated call raised {mismatch.error}"
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
