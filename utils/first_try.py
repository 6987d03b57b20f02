"""How many bugs are named in ports that the tool was not built on: random edits of packages seen for the first time.

Each port of ``tests/ports/unseen`` is edited at random, a line of its forward at a time, and compared with its
reference as it is, without ``rename=``. Edits that raise, or change the output by less than a bug does, are passed
over. ``line``: the edited line is named, in at most three lines or one statement. ``use``: a line that uses the
number, shape or tensor to which the edited line gives a name. ``reference``: the line of the reference that computes
what the edited line computed in the clean port, or the first value after it that both have, or the first value that
the edit changes. ``module``: a module that runs the edited line. ``unsure``: another place, said to be uncertain.
``wrong``: another place, with certainty. ``missed``: no culprit. ``proved``: of all of these, those with a proof. The
first run on new ports is the figure of docs/evidence.md. After it they may be looked at: they go to
``tests/ports/tried`` (``--set tried``), and new ones come.
"""

from __future__ import annotations

import ast
import importlib
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import command

# isort: split
from editing import EditedFile, imported
from judging import built, is_installed, relative_l2

from edits import DIFFERS, Edit, edits_of, head, infected, names, watched
from pytest_tfdebug import compare, trace
from pytest_tfdebug.fingerprints import distance
from pytest_tfdebug.parity.values.matching import reordered_axes
from pytest_tfdebug.tracing.values.operators import values_of

if TYPE_CHECKING:
    from pytest_tfdebug.records import Culprit
    from pytest_tfdebug.values import Value, Values

#: Distance up to which two values are one, and steps to the first value after an edited line that both sides have.
_SAME, _FAR = 1e-5, 12
VERDICTS = ("line", "use", "reference", "module", "unsure", "wrong", "missed", "error")
Place = tuple[str, int]


def ran_in(port: Any, case: Any) -> dict[str, dict[int, set[str]]]:  # noqa: ANN401
    """Return the lines of a port's package that its forward runs, by module, with the paths of those modules."""
    files = {
        str(getattr(module, "__file__", "")): name
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] == port.package
    }
    with watched(files) as seen:
        case.port_output()
    paths = {id(module): path or type(case.port).__name__ for path, module in case.port.named_modules()}
    return {
        files[file]: {line: {paths[owner] for owner, _ in owners if owner in paths} for line, owners in lines.items()}
        for file, lines in seen.items()
    }


class Equivalents:
    """Which lines of the reference compute what a line of the clean port does.

    Args:
        case: The clean pair of models.
    """

    def __init__(self, case: Any) -> None:  # noqa: ANN401
        self._port = values_of(case.port, "forward", case.port_args, case.port_kwargs)
        reference = values_of(case.reference, "forward", case.reference_args, case.reference_kwargs)
        self._sites = _sites(self._port, is_all=True), _sites(reference, is_all=False)
        computed = [value for value in reference.values if value.operator and value.print.elements]
        self._partners = [
            [other for other in computed if distance(value.print, other.print) <= _SAME] if value.operator else []
            for value in self._port.values
        ]
        self._users: dict[int, list[int]] = {}
        for value in self._port.values:
            for made in value.producers:
                self._users.setdefault(made, []).append(value.index)

    def of(self, file: str, line: int, wrong: Values) -> set[Place]:
        """Return the places in the reference's sources; empty where nothing tells."""
        return self._by_line(file, line) | self._by_value(wrong)

    def _by_value(self, wrong: Values) -> set[Place]:
        """Return where the reference computes what the clean port computes first and the edited one does not."""
        made = [value.print for value in wrong.values if value.print.elements]
        sizes = np.array([each.rms for each in made])
        changed = set()
        for value in self._port.values:
            own = value.print
            near = np.flatnonzero(np.abs(sizes - own.rms) <= _SAME * own.rms)
            is_made = any(distance(own, made[k]) <= _SAME and not reordered_axes(own, made[k]) for k in near)
            if value.operator and own.elements and not is_made:
                changed.add(value.index)
        first = {index for index in changed if changed.isdisjoint(self._port.values[index].producers)}
        return self._partners_of(first)

    def _places_there(self, value: Value) -> set[Place]:
        return _places(value) | self._sites[1].get(value.call, set())

    def _by_line(self, file: str, line: int) -> set[Place]:
        around = self._sites[0]
        level = {v.index for v in self._port.values if (file, line) in _places(v) | around.get(v.call, set())}
        return self._partners_of(level)

    def _partners_of(self, level: set[int]) -> set[Place]:
        """Return where the reference computes some values of the port, or the first after them that it has."""
        for _ in range(_FAR):
            partners = [other for index in level for other in self._partners[index]]
            found = {place for other in partners for place in self._places_there(other)}
            if found or not level:
                return found
            level = {user for index in level for user in self._users.get(index, ())}
        return set()


def _places(value: Value) -> set[Place]:
    return {(at.file, at.line) for at in value.lines}


def _sites(table: Values, *, is_all: bool) -> dict[int | None, set[Place]]:
    """Return the lines that make each call, with those that make the calls around it if all are asked for."""
    found: dict[int | None, set[Place]] = {}
    for call in table.calls:
        made = {(site.file, site.line) for site in (call.site, call.inner_site) if site is not None}
        found[call.index] = made | (found.get(call.parent, set()) if is_all else set())
    return found


def tried(port: Any, edits: int, draw: random.Random, *, show: bool) -> Counter[str]:  # noqa: ANN401
    """Edit a port until so many edits were judged, and count how."""
    case = built(port)
    counts: Counter[str] = Counter()
    clean = _compared(case)
    if clean.culprit is not None:
        print(f"{port.name}: ALARM on the clean port\n{clean}", flush=True)
        counts["alarm"] += 1
    lines, equivalents = ran_in(port, case), Equivalents(case)
    texts = {name: Path(sys.modules[name].__file__ or "").read_text(encoding="utf-8") for name in sorted(lines)}

    def infect(edit: Edit) -> tuple[Any, EditedFile] | None:
        text = texts[edit.file]
        edited = EditedFile(edit.file, text, edit.of(text), after="", reloaded=port.reloaded)
        with edited.in_place(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            wrong = port.build(imported)
        return (wrong, edited) if relative_l2(wrong) >= DIFFERS else None

    found = [edit for name, text in texts.items() for edit in edits_of(text, lines[name], name)]
    for edit, (wrong, edited) in infected(found, edits, draw, infect):
        culprit: Culprit | None = None
        try:
            report = _compared(wrong)
            culprit, told = report.culprit, str(report)
            table = values_of(wrong.port, "forward", wrong.port_args, wrong.port_kwargs)
            places = equivalents.of(str(sys.modules[edit.file].__file__), edit.line, table)
            verdict = judged(culprit, edited, edit.line, places, lines[edit.file][edit.line])
        except Exception as error:  # noqa: BLE001 - whatever is raised is the outcome
            verdict, told = "error", f"{type(error).__name__}: {error}"
        counts[verdict] += 1
        counts["proved"] += culprit is not None and bool(culprit.proved)
        if show:
            print(f"{port.name}: {verdict.upper()}: {edit.told(texts[edit.file])}")
            print(head(told, 4 if verdict in ("line", "reference") else 14), flush=True)
    return counts


def judged(culprit: Culprit | None, edited: EditedFile, line: int, places: set[Place], owners: set[str]) -> str:
    """Return what a report is worth."""
    if culprit is None:
        return "missed"
    if names(culprit.source, edited.path, {line, *edited.lines}):
        return "line"
    if names(culprit.source, edited.path, uses_of(edited.path, line)):
        return "use"
    if any(names(culprit.reference, file, {number}) for file, number in places):
        return "reference"
    if culprit.path in owners:
        return "module"
    return "wrong" if culprit.certain else "unsure"


def uses_of(path: Path, line: int) -> set[int]:
    """Return the lines of a function that read a name to which one of its lines gives a value."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    around = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and _holds(node, line)]
    if not around:
        return set()
    inner = list(ast.walk(around[-1]))
    given = {
        name.id
        for node in inner
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)) and _holds(node, line)
        for name in ast.walk(node)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    }
    return {
        node.lineno
        for node in inner
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in given and node.lineno > line
    }


def _holds(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _compared(case: Any) -> Any:  # noqa: ANN401
    expected = trace(case.reference, *case.reference_args, **case.reference_kwargs)
    return compare(expected, trace(case.port, *case.port_args, **case.port_kwargs))


def main() -> None:
    """Print the table."""
    parser = command.parser(__doc__, "edits", "seed", "only", "show", edits=17)
    parser.add_argument("--set", choices=("unseen", "tried"), default="unseen", help="which ports (default unseen)")
    options = parser.parse_args()
    command.quiet()
    table = command.Table("port", "bugs", *VERDICTS, "proved", "alarm", "s each")
    for port in importlib.import_module(f"{options.set}.ports").PORTS:
        if (not options.only or port.name in options.only) and is_installed(port):
            begin, draw = time.perf_counter(), random.Random(f"{options.seed}{port.name}")  # noqa: S311
            counts = tried(port, options.edits, draw, show=options.show)
            bugs = sum(counts[verdict] for verdict in VERDICTS)
            table.add(port.name, {**counts, "bugs": bugs, "s each": (time.perf_counter() - begin) / max(bugs, 1)})
    table.total()


if __name__ == "__main__":
    main()
