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

import argparse
import ast
import importlib
import random
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from copies import edits_of
from mutants import is_narrow

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "ports"))

from editing import EditedFile, imported  # type: ignore[import-not-found]  # the folder is put on the path above
from judging import built, is_installed, relative_l2  # type: ignore[import-not-found]

import pytest_tfdebug
from pytest_tfdebug.fingerprints import distance
from pytest_tfdebug.parity.values.matching import reordered_axes
from pytest_tfdebug.tracing.values.operators import watching

if TYPE_CHECKING:
    from types import FrameType

    from pytest_tfdebug.records import Culprit, SourceRange
    from pytest_tfdebug.values import Value, Values

#: Relative L2 difference of the output from which an edit is a bug, and distance up to which two values are one.
_DIFFERS, _SAME = 1e-4, 1e-5
#: Steps to the first value after an edited line that both sides have.
_FAR = 12
VERDICTS = ("line", "use", "reference", "module", "unsure", "wrong", "missed", "error")
Place = tuple[str, int]


def ran_in(port: Any, case: Any) -> dict[str, dict[int, set[str]]]:  # noqa: ANN401
    """Return the lines of a port's package that its forward runs, by module, with the paths of modules that run each.

    Args:
        port: The port.
        case: Its models.
    """
    files = {
        str(getattr(module, "__file__", "")): name
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] == port.package
    }
    seen: dict[str, dict[int, set[int]]] = {}

    def traced(frame: FrameType, event: str, _argument: object) -> Any:  # noqa: ANN401 - a trace function
        name = files.get(frame.f_code.co_filename)
        if name is None:
            return None
        if event == "line":
            seen.setdefault(name, {}).setdefault(frame.f_lineno, set()).add(_owner(frame))
        return traced

    before = sys.gettrace()
    sys.settrace(traced)
    try:
        case.port_output()
    finally:
        sys.settrace(before)
    paths = {id(module): path or type(case.port).__name__ for path, module in case.port.named_modules()}
    return {
        name: {line: {paths[owner] for owner in owners if owner in paths} for line, owners in lines.items()}
        for name, lines in seen.items()
    }


class Equivalents:
    """Which lines of the reference compute what a line of the clean port does.

    Args:
        case: The clean pair of models.
    """

    def __init__(self, case: Any) -> None:  # noqa: ANN401
        self._port = _values(case.port, case.port_args, case.port_kwargs)
        reference = _values(case.reference, case.reference_args, case.reference_kwargs)
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
        """Return the places in the reference's sources; empty where nothing tells.

        Args:
            file: The edited file of the port.
            line: The edited line.
            wrong: The values of the edited port.
        """
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


def _values(model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Values:
    with watching(model) as table:
        model(*args, **kwargs)
    return table


def judged(culprit: Culprit | None, edited: EditedFile, line: int, places: set[Place], owners: set[str]) -> str:
    """Return what a report is worth."""
    if culprit is None:
        return "missed"
    if _names(culprit.source, {(str(edited.path), number) for number in {line, *edited.lines}}):
        return "line"
    if _names(culprit.source, {(str(edited.path), number) for number in uses_of(edited.path, line)}):
        return "use"
    if _names(culprit.reference, places):
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


def _names(lines: SourceRange | None, places: set[Place]) -> bool:
    if lines is None or not is_narrow(lines):
        return False
    return any(file == lines.file and lines.first <= line <= lines.last for file, line in places)


def _owner(frame: FrameType | None) -> int:
    """Return the module whose method is under way."""
    while frame is not None and not isinstance(frame.f_locals.get("self"), torch.nn.Module):
        frame = frame.f_back
    return id(frame.f_locals["self"]) if frame is not None else 0


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
    found = [(name, edit) for name, text in texts.items() for edit in edits_of(text, set(lines[name]))]
    draw.shuffle(found)
    used: set[tuple[str, int]] = set()
    for name, edit in found:
        if sum(counts[column] for column in VERDICTS) >= edits:
            break
        if (name, edit.line) in used:  # another edit of a line that was judged says little more
            continue
        whole = texts[name].splitlines(keepends=True)
        whole[edit.line - 1] = edit.text + "\n"
        edited = EditedFile(name, texts[name], "".join(whole), after="", reloaded=port.reloaded)
        wrong = _infected(port, edited)
        if wrong is None:
            continue
        used.add((name, edit.line))
        culprit: Culprit | None = None
        try:
            report = _compared(wrong)
            culprit, told = report.culprit, str(report)
            table = _values(wrong.port, wrong.port_args, wrong.port_kwargs)
            places = equivalents.of(str(sys.modules[name].__file__), edit.line, table)
            verdict = judged(culprit, edited, edit.line, places, lines[name][edit.line])
        except Exception as error:  # noqa: BLE001 - whatever is raised is the outcome
            verdict, told = "error", f"{type(error).__name__}: {error}"
        counts[verdict] += 1
        counts["proved"] += culprit is not None and bool(culprit.proved)
        if show:
            was = texts[name].splitlines()[edit.line - 1].strip()
            print(f"{port.name}: {verdict.upper()}: {name}:{edit.line}: {was}\n    -> {edit.text.strip()}")
            head = told.splitlines()[: 4 if verdict in ("line", "reference") else 14]
            print("\n".join(f"      {each}" for each in head), flush=True)
    return counts


def _infected(port: Any, edited: EditedFile) -> Any:  # noqa: ANN401
    """Return the models with an edit in the port; None where it raises, or changes too little."""
    try:
        with edited.in_place(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            wrong = port.build(imported)
        return wrong if relative_l2(wrong) >= _DIFFERS else None
    except Exception:  # noqa: BLE001 - most wrong lines do not run at all
        return None


def _compared(case: Any) -> Any:  # noqa: ANN401
    expected = pytest_tfdebug.trace(case.reference, *case.reference_args, **case.reference_kwargs)
    actual = pytest_tfdebug.trace(case.port, *case.port_args, **case.port_kwargs)
    return pytest_tfdebug.compare(expected, actual)


def main() -> None:
    """Print the table."""
    assert __doc__ is not None  # noqa: S101 - it is above
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--edits", type=int, default=17, help="edits of each port that are bugs (default 17)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", choices=("unseen", "tried"), default="unseen", help="which ports (default unseen)")
    parser.add_argument("--only", default="", help="names, with commas (default all)")
    parser.add_argument("--show", action="store_true", help="print each edit and its report")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    columns = (*VERDICTS, "proved", "alarm")
    print(f"{'port':22} bugs  " + "  ".join((*columns, "s each")), flush=True)
    total: Counter[str] = Counter()
    only = options.only.split(",") if options.only else []
    for port in importlib.import_module(f"{options.set}.ports").PORTS:
        if (only and port.name not in only) or not is_installed(port):
            continue
        begin, draw = time.perf_counter(), random.Random(f"{options.seed}{port.name}")  # noqa: S311
        counts = tried(port, options.edits, draw, show=options.show)
        total += counts
        _row(port.name, counts, columns, time.perf_counter() - begin)
    _row("all", total, columns)


def _row(name: str, counts: Counter[str], columns: tuple[str, ...], seconds: float = 0.0) -> None:
    bugs = sum(counts[verdict] for verdict in VERDICTS)
    cells = "  ".join(f"{counts[column]:{len(column)}}" for column in columns)
    print(f"{name:22} {bugs:4}  {cells}  {seconds / max(bugs, 1):6.1f}", flush=True)


if __name__ == "__main__":
    main()
