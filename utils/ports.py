"""How many bugs in ports that nobody here wrote are named by module and by line: the table of ``tests/ports``.

Every bug is compared with the reference without ``rename=``. ``line``: the edited line, or the reference's line for
what is left out, in a range of at most ten. ``module``: the module, those with the line among them. ``unsure``:
another place, said to be uncertain. ``wrong``: another place, with certainty. ``alarms``: whether the clean port is
called wrong without ``rename=``, with one written by hand, and with each one that a report suggested.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "ports"))

from corpus import all_ports  # type: ignore[import-not-found]  # the folder is put on the path above
from judging import alarm, built, is_installed, judged  # type: ignore[import-not-found]


class Row(NamedTuple):
    """One port: how its bugs were judged, and the alarms of the clean port."""

    name: str
    verdicts: Counter[str]
    alarms: dict[str, int]


def measured(port: Any, *, show: bool) -> Row:  # noqa: ANN401
    """Run a port's bugs and its clean cases."""
    built(port)
    verdicts: Counter[str] = Counter()
    suggestions: dict[tuple[tuple[str, str], ...], None] = {}
    for bug in port.bugs:
        try:
            outcome = judged(port, bug)
        except (AssertionError, ValueError) as error:
            verdicts["not a bug"] += 1
            print(f"{port.name}: {bug.name}: {error}")
            continue
        verdicts[outcome.verdict] += 1
        if outcome.suggested:
            suggestions[tuple(sorted(outcome.suggested.items()))] = None
        if show and outcome.verdict != "line":
            _show(outcome, lines=3)
    return Row(port.name, verdicts, _alarms(port, [dict(rules) for rules in suggestions], show=show))


def _alarms(port: Any, suggestions: list[dict[str, str]], *, show: bool) -> dict[str, int]:  # noqa: ANN401
    """Count the alarms of the clean port, by where its ``rename=`` comes from."""
    renames: dict[str, list[dict[str, str] | None]] = {
        "none": [None],
        "hand": [port.rename] if port.rename else [],
        "suggested": [*suggestions],
    }
    alarms = {}
    for name, all_rules in renames.items():
        texts = [text for text in (alarm(port, rules) for rules in all_rules) if text]
        alarms[name] = len(texts)
        if show and texts:
            print(f"{port.name}: clean, rename {name}: ALARM\n" + _head(texts[0], 3))
    return alarms


def _show(outcome: Any, *, lines: int) -> None:  # noqa: ANN401
    culprit, named = outcome.culprit, "-"
    if culprit is not None:
        named = f"{culprit.path} ({culprit.kind}, {culprit.source}, {getattr(culprit, 'reference', None)})"
    print(f"{outcome.port}: {outcome.bug.name}: {outcome.verdict.upper()}: {named}, expected {outcome.bug.at}")
    print(_head(outcome.text, lines))


def _head(text: str, lines: int) -> str:
    return "\n".join(f"      {line}" for line in text.splitlines()[:lines])


def print_table(rows: list[Row]) -> None:
    """Print one line for each port and one for all."""
    columns = ("line", "module", "unsure", "wrong", "missed", "error")
    print(f"{'port':24}  bugs  " + "  ".join(columns) + "  alarms: none  hand  suggested")
    total = Row(
        "all",
        sum((row.verdicts for row in rows), Counter()),
        dict(sum((Counter(row.alarms) for row in rows), Counter())),
    )
    for row in (*rows, total):
        counts = dict(row.verdicts) | {"module": row.verdicts["line"] + row.verdicts["module"]}
        cells = "  ".join(f"{counts.get(name, 0):{len(name)}}" for name in columns)
        alarms = "  ".join(
            f"{row.alarms.get(name, 0):{width}}" for name, width in (("none", 12), ("hand", 4), ("suggested", 9))
        )
        print(f"{row.name:24}  {row.verdicts.total():4}  {cells}  {alarms}")


def main(arguments: list[str] | None = None) -> None:
    """Print the table of the ports that are installed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", metavar="NAME,NAME", help="these ports only")
    parser.add_argument("--show", action="store_true", help="print what was not named by its line")
    parser.add_argument("--bug", metavar="TEXT", help="print the reports on the bugs with this in their names, whole")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    ports = all_ports()
    if options.only:
        unknown = set(options.only.split(",")) - {port.name for port in ports}
        if unknown:
            parser.error(f"no port {', '.join(sorted(unknown))}; there are {', '.join(port.name for port in ports)}")
        ports = [port for port in ports if port.name in options.only.split(",")]
    if options.bug:
        for port in filter(is_installed, ports):
            for bug in port.bugs:
                if options.bug in bug.name:
                    _show(judged(port, bug), lines=100)
        return
    started, rows = time.monotonic(), []
    for port in ports:
        if is_installed(port):
            rows.append(measured(port, show=options.show))
        else:
            print(f"{port.name} is not installed: pip install --no-deps --group ports")
    print_table(rows)
    print(f"{time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
