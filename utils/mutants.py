"""How many wrong lines are found: random edits of the forwards of real models, one at a time.

Every model of ``fixtures/models.py`` gets edits of its own source: an operator, a sign, a flag or a number changed, an
operand, an argument, a method or a whole statement left out, two arguments swapped. Edits that raise, or change no
tensor, are passed over. ``named``: the answer is a module whose forward was edited, or a call by one that is missing or
too many. ``range``: the edited line is in the range that is named; of a module without child calls, in its forward.
``line``: in a range of three lines at most, or of one statement.
"""

from __future__ import annotations

import argparse
import ast
import copy
import inspect
import linecache
import random
import sys
import textwrap
import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import transformers

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "fixtures"))

import pytest_tfdebug
from models import ARCHITECTURES, build  # type: ignore[import-not-found]  # the folder is put on the path above
from pytest_tfdebug.tracing.values.slicing import is_statement
from rewriting import rewrite_forward  # type: ignore[import-not-found]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_tfdebug.parity.tensors.tolerance import ToleranceBy
    from pytest_tfdebug.records import SourceRange

_OPERATORS = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*"}
#: A range of so many lines, or of one statement, names a line.
_NARROW = 3
_COMPARISONS = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "=="}


def is_narrow(lines: SourceRange | None) -> bool:
    """Tell whether a range names a line: it has three at most, or is one statement."""
    if lines is None:
        return False
    return lines.last - lines.first < _NARROW or is_statement(lines)


class Edit(NamedTuple):
    """A line of a class's forward, and what it becomes; both occur once."""

    kind: type
    old: str
    new: str


def edits_of(kind: type) -> Iterator[Edit]:
    """Yield every edit of a class's forward that stays on its line."""
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(kind.forward)))  # type: ignore[attr-defined] # of modules
    lines = source.splitlines()
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef)  # noqa: S101 - what getsource returns of a method
    for node in (inner for statement in function.body for inner in ast.walk(statement)):
        where: Any = node
        if getattr(node, "lineno", 0) != getattr(node, "end_lineno", None):
            continue
        line = lines[where.lineno - 1].encode()
        for text in changed(node, lambda part: ast.get_source_segment(source, part) or ""):
            new = (line[: where.col_offset] + text.encode() + line[where.end_col_offset :]).decode()
            old = line.decode().strip()
            if source.count(old) == 1 and new.strip() != old:
                yield Edit(kind, old, new.strip())


def changed(node: ast.AST, text: Callable[[ast.AST], str]) -> Iterator[str]:
    """Yield what may stand in the place of a node."""
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        yield f"({text(node.left)} {_OPERATORS[type(node.op)]} {text(node.right)})"
        yield f"({text(node.left)})"
    elif isinstance(node, ast.UnaryOp):
        yield f"({text(node.operand)})"
    elif isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
        yield repr(not node.value if isinstance(node.value, bool) else node.value + 1)
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARISONS:
        yield f"({text(node.left)} {_COMPARISONS[type(node.ops[0])]} {text(node.comparators[0])})"
    elif isinstance(node, ast.Call):
        given = [text(part) for part in (*node.args, *node.keywords)]
        if isinstance(node.func, ast.Attribute) and text(node.func.value) not in ("self", "torch", "nn"):
            yield text(node.func.value)
        if len(node.args) > 1:
            yield f"{text(node.func)}({', '.join([given[1], given[0], *given[2:]])})"
        for place in range(len(node.args), len(given)):
            yield f"{text(node.func)}({', '.join(given[:place] + given[place + 1 :])})"
    elif isinstance(node, (ast.Assign, ast.AugAssign)):
        yield "pass"


def judged(
    model: torch.nn.Module, inputs: dict[str, Any], edit: Edit, expected: pytest_tfdebug.Trace, tolerance: ToleranceBy
) -> str:
    """Return what came of an edit: ``raises``, ``changes nothing``, ``line``, ``range``, ``named`` or ``missed``."""
    port = copy.deepcopy(model)
    first, *others = [part for part in port.modules() if type(part) is edit.kind]
    try:
        rewrite_forward(first, edit.old, edit.new)
        for part in others:
            part.__class__ = type(first)
        actual = pytest_tfdebug.trace(port, **inputs)
        report = pytest_tfdebug.compare(expected, actual, internal="fail", tolerance=tolerance)
    except Exception:  # noqa: BLE001 - most wrong lines do not run at all
        return "raises"
    culprit = report.culprit
    if culprit is None:
        return "changes nothing"
    named = port if culprit.path == type(port).__name__ else port.get_submodule(culprit.path)
    if culprit.kind in ("not-called", "extra-call"):
        named = _caller(port, culprit.path)
    if type(named).__name__ != edit.kind.__name__:
        return "missed"
    source = culprit.source
    shown = [linecache.getline(source.file, line) for line in range(source.first, source.last + 1)] if source else []
    if not any(edit.new in line for line in shown):
        return "named"
    return "line" if is_narrow(source) else "range"


def _caller(model: torch.nn.Module, path: str) -> torch.nn.Module:
    """Return the module whose forward calls another one."""
    around = path.rpartition(".")[0]
    outer = model.get_submodule(around)
    return _caller(model, around) if isinstance(outer, torch.nn.ModuleList) else outer


def main() -> None:
    """Print how many edits were placed, by model."""
    assert __doc__ is not None  # noqa: S101 - it is above
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--edits", type=int, default=20, help="edits of each model that change a tensor (default 20)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--models", default=",".join(ARCHITECTURES), help="names, with commas")
    parser.add_argument("--tolerance", choices=("dtype", "fp64"), default="dtype")
    parser.add_argument("--show", action="store_true", help="name the edits that were not placed at their line")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    total: Counter[str] = Counter()
    print(f"{'':12}  edits  named  range   line")
    for name in options.models.split(","):
        model, inputs = build(name)
        expected = pytest_tfdebug.trace(model, **inputs)
        kinds = {
            type(part): None for part in model.modules() if type(part).__module__.startswith("transformers.models.")
        }
        edits = [edit for kind in kinds for edit in edits_of(kind)]
        random.Random(options.seed).shuffle(edits)  # noqa: S311 - the same edits every time
        counted: Counter[str] = Counter()
        for edit in edits:
            if counted["edits"] == options.edits:
                break
            outcome = judged(model, inputs, edit, expected, options.tolerance)
            if outcome in ("raises", "changes nothing"):
                continue
            counted += Counter(
                edits=1, named=outcome != "missed", range=outcome in ("range", "line"), line=outcome == "line"
            )
            if options.show and outcome != "line":
                print(f"{'':12}  {outcome}: {edit.kind.__name__}: {edit.old}  ->  {edit.new}")
        print_row(name, counted)
        total += counted
    print_row("all", total)


def print_row(name: str, counted: Counter[str]) -> None:
    """Print a row of the table."""
    cells = (f"{counted[column]:5}" for column in ("edits", "named", "range", "line"))
    print(f"{name:12}  " + "  ".join(cells), flush=True)


if __name__ == "__main__":
    main()
