"""Verdicts on models as people read them: a table of models by promises."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pytest_tfdebug.errors import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_tfdebug.check_record import PromiseVerdict

#: State of a verdict -> its cell; the worst state is last.
_CELLS = {"does not apply": "-", "passes": "ok", "varies": "varies", "fails": "FAILS"}
#: Models that are listed, those that break a promise first; the rest are counted.
_SHOWN = 40
_NARROWEST = max(map(len, _CELLS.values()))


def render_table(verdicts: Sequence[PromiseVerdict]) -> Iterator[str]:
    """Yield a line for each model with a column for each promise, the reasons for what varies, and the counts."""
    cells = {(each.model, each.promise): each for each in verdicts}
    promises = list(dict.fromkeys(promise for _, promise in cells))
    worst: dict[str, int] = {}
    for (model, _), verdict in cells.items():
        worst[model] = max(worst.get(model, 0), list(_CELLS).index(verdict.state))
    models = sorted(worst, key=lambda model: (-worst[model], model))
    width = max(map(len, models))

    def row(model: str, shown: Sequence[str]) -> str:
        columns = (cell.ljust(max(len(name), _NARROWEST)) for cell, name in zip(shown, promises, strict=True))
        return " ".join([model.ljust(width), *columns]).rstrip()

    yield row("", promises)
    for model in models[:_SHOWN]:
        found = [cells.get((model, promise)) for promise in promises]
        yield row(model, ["" if verdict is None else _CELLS[verdict.state] for verdict in found])
    if len(models) > _SHOWN:
        yield f"and {len(models) - _SHOWN} models more"
    for each in cells.values():
        if each.state == "varies":
            yield f"{each.model} varies by design, {each.promise}: {each.text}"
    states = Counter(each.state for each in cells.values())
    told = [f"{states['passes']} promises kept", f"{states['varies']} vary by design"]
    told += [f"{states['does not apply']} do not apply", f"{states['fails']} broken"]
    yield f"{counted(len(models), 'model')}: {', '.join(told)}."
