"""Verdicts on models as people read them: a table of models by promises."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_tfdebug.conformance_verdict import Verdict

_CELLS = {"passes": "ok", "varies": "varies", "accepted": "known", "does not apply": "-", "fails": "FAILS"}
#: More models than these are counted: those that break a promise stand first.
_SHOWN = 40


def render_table(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Yield a line for each model with a column for each promise, what varies with its reason, and the counts.

    Args:
        verdicts: Of one run; of several on one model and promise the last counts.
    """
    cells = {(each.model, each.promise): each for each in verdicts}
    promises = list(dict.fromkeys(promise for _, promise in cells))
    by_model: dict[str, dict[str, Verdict]] = {}
    for (model, promise), verdict in cells.items():
        by_model.setdefault(model, {})[promise] = verdict
    models = sorted(by_model, key=lambda model: (-_worst(by_model[model].values()), model))
    width = max(map(len, models))
    yield " ".join(["".ljust(width), *(promise.ljust(_width(promise)) for promise in promises)]).rstrip()
    for model in models[:_SHOWN]:
        row = by_model[model]
        shown = (_CELLS[row[promise].state] if promise in row else "" for promise in promises)
        line = (cell.ljust(_width(promise)) for cell, promise in zip(shown, promises, strict=True))
        yield " ".join([model.ljust(width), *line]).rstrip()
    if len(models) > _SHOWN:
        yield f"and {len(models) - _SHOWN} models more"
    for each in cells.values():
        if each.state == "varies":
            yield f"{each.model} varies by design, {each.promise}: {each.text}"
    counted = Counter(each.state for each in cells.values())
    told = [f"{counted['passes']} promises kept", f"{counted['varies']} vary by design"]
    told += [f"{counted['accepted']} known to be broken"] if counted["accepted"] else []
    told += [f"{counted['does not apply']} do not apply", f"{counted['fails']} broken"]
    yield f"{len(models)} model{'' if len(models) == 1 else 's'}: {', '.join(told)}."


def _worst(verdicts: Iterable[Verdict]) -> int:
    order = ("does not apply", "passes", "varies", "accepted", "fails")
    return max(order.index(each.state) for each in verdicts)


def _width(promise: str) -> int:
    return max(len(promise), len("varies"))
