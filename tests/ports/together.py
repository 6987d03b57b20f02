"""Put several bugs into one port, and say which of them a report names."""

from __future__ import annotations

import random
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from editing import EditedFile, edited_lines, imported, replaced
from judging import DIFFERS, expected_paths, relative_l2, seeded, verdict_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cases import Bug, Case, Port

#: What a fault was told as, the best first.
_ORDER = ("line", "module", "unsure", "wrong", "missed")


@dataclass(frozen=True)
class Found:
    """What a report on several bugs was worth.

    Attributes:
        port: Name of the port.
        bugs: The bugs.
        verdicts: What each bug was told as, by any entry of the report: ``line``, ``module`` or ``missed``.
        text: The report, or the error.
        is_first: Whether the first entry of the report names a bug by line.
        entries: What each entry is worth for the bug that it fits best: ``line``, ``module``, ``unsure`` or ``wrong``.
        agrees: Whether all outputs agree behind the last entry.
        is_mended: Whether they do after changes alone.
    """

    port: str
    bugs: tuple[Bug, ...]
    verdicts: tuple[str, ...]
    text: str
    is_first: bool = False
    entries: tuple[str, ...] = ()
    agrees: bool = False
    is_mended: bool = False

    @property
    def later(self) -> int:
        """How many bugs are named by line beside the one that the first entry names."""
        return min(self.verdicts.count("line") - self.is_first, len(self.bugs) - 1)


def drawn(ports: Sequence[Port], count: int, size: int, seed: int) -> Iterator[tuple[Port, tuple[Bug, ...]]]:
    """Yield so many sets of bugs, each of one port and at different lines, in turn from all ports."""
    draw = random.Random(seed)
    left = {port.name: [*combinations(port.bugs, size)] for port in ports}
    for sets in left.values():
        draw.shuffle(sets)
    order = [*ports]
    draw.shuffle(order)
    for _ in range(count):
        port = order.pop(0)
        order.append(port)
        while left[port.name]:
            bugs = left[port.name].pop()
            if _are_apart(bugs) and _matters(port, bugs):
                yield port, bugs
                break


def infected(port: Port, bugs: Sequence[Bug]) -> tuple[Case, dict[Bug, list[EditedFile]]]:
    """Return the pair of models with all bugs in the port, and the edited files of each bug.

    Where the middle layer alone has some of them, all else comes of files without these.
    """
    case = seeded(port)
    files: dict[Bug, list[EditedFile]] = {bug: [] for bug in bugs}
    everywhere = [bug for bug in bugs if not bug.in_layer]
    if any(bug.change is None for bug in everywhere):
        case.port = _built(port, everywhere, files)
    if any(bug.change is None and bug.in_layer for bug in bugs):
        case.port.set_submodule(port.layer, _built(port, bugs, files).get_submodule(port.layer))
    for bug in bugs:
        if bug.change is not None:
            bug.change(case.port.get_submodule(port.layer) if bug.in_layer else case.port)
    return case, files


def _built(port: Port, bugs: Sequence[Bug], files: dict[Bug, list[EditedFile]]) -> Any:
    """Return the port of sources with the lines of some bugs, and note the files of each."""
    lines = [bug for bug in bugs if bug.change is None]
    with ExitStack() as stack:
        for module in dict.fromkeys(bug.module for bug in lines):
            text, here = _text_of(module), [bug for bug in lines if bug.module == module]
            file = EditedFile(module, text, _with(text, here), after="", reloaded=port.reloaded)
            for bug in here:
                others = _with(text, [each for each in here if each is not bug])
                files[bug].append(file.of_lines(edited_lines(others, _with(text, here))))
            stack.enter_context(file.in_place())
        return seeded(port).port


def judged_together(port: Port, bugs: Sequence[Bug], hold: Callable[[Case], Any]) -> Found:
    """Hold a port with several bugs to its reference and judge the report."""
    case, files = infected(port, bugs)
    try:
        report = hold(case)
        text = str(report)
    except Exception as error:  # noqa: BLE001 - whatever is raised is the outcome
        told = f"{type(error).__name__}: {error}"
        return Found(port.name, tuple(bugs), ("error",) * len(bugs), told)
    root = type(case.port).__name__
    table = [
        [verdict_of(culprit, bug, files[bug], expected_paths(port, bug, case), root) for bug in bugs]
        for culprit in report.culprits
    ]
    found = tuple(min((row[place] for row in table), key=_ORDER.index, default="missed") for place in range(len(bugs)))
    said = report.told_of_faults
    return Found(
        port.name,
        tuple(bugs),
        tuple(each if each in ("line", "module") else "missed" for each in found),
        text,
        is_first=bool(table) and "line" in table[0],
        entries=tuple(min(row, key=_ORDER.index) for row in table),
        agrees=said.endswith("every output agrees") or (report.culprit is not None and bool(report.culprit.proved)),
        is_mended=report.search == "proved",
    )


def _are_apart(bugs: Sequence[Bug]) -> bool:
    """Tell whether the lines of some bugs are different ones."""
    seen: set[tuple[str, int]] = set()
    for bug in (bug for bug in bugs if bug.change is None):
        text = _text_of(bug.module)
        lines = {(bug.module, line) for line in edited_lines(text, replaced(text, bug.old, bug.new, bug.after))}
        if not seen.isdisjoint(lines):
            return False
        seen |= lines
    return True


def _matters(port: Port, bugs: Sequence[Bug]) -> bool:
    """Tell whether each of some bugs changes the output beside the others."""
    try:
        whole = infected(port, bugs)[0]
        wrong = whole.port_output()
        for bug in bugs:
            others = [each for each in bugs if each is not bug]
            right = infected(port, others)[0].port_output()
            if not (wrong - right).norm() > DIFFERS * right.norm():
                return False
        return relative_l2(whole) > DIFFERS
    except Exception:  # noqa: BLE001 - bugs that do not run together, or not on one text
        return False


def _with(text: str, bugs: Sequence[Bug]) -> str:
    for bug in bugs:
        text = replaced(text, bug.old, bug.new, bug.after)
    return text


def _text_of(module: str) -> str:
    return Path(str(imported(module).__file__)).read_text(encoding="utf-8")
