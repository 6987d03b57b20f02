"""Where a port's file gives a parameter its numbers: ``put(f"layers/{i}/n2", layer.final_norm)`` in its ``convert``.

A wrong weight is used in the forward, and made in code that has run before. What names the parameter there, or the one
of the reference that it is made from, is that code.
"""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from typing import TYPE_CHECKING

from pytest_tfdebug.module_path import holder
from pytest_tfdebug.parity.text.chosen_at import bindings_of
from pytest_tfdebug.parity.text.text_differences import function_around, source_file
from pytest_tfdebug.records import SourceRange

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from pytest_tfdebug.parity.text.text_differences import SourceFile

#: Last parts of names that every module has, or that a tensor does; so are those that so many modules have.
_GENERIC = frozenset({"weight", "bias", "w", "b", "data", "T", "mT"})
_MANY = 3
#: Names of functions that make modules, and give them the numbers that training begins with.
_BEGINNING = re.compile(r"init|reset")
#: More lines than this name none.
_SHORT = 4
#: What lays numbers out.
_LAYING_OUT = frozenset(
    {
        *("cat", "stack", "chunk", "split", "unbind", "permute", "transpose", "movedim", "flip", "roll", "repeat"),
        *("repeat_interleave", "view", "reshape", "flatten", "unflatten", "einsum", "mul_", "div_", "add_", "t"),
    }
)
#: Which of many is meant: no part of a name.
_INDEX = re.compile(r"\[\w+\]|\{\w+\}")
#: What parts of names stand between.
_BETWEEN = re.compile(r"[./\[\]'\"{}*]+")


def loaded_at(
    files: Collection[str],
    own: Sequence[str],
    expected: Sequence[str],
    ran: Collection[tuple[str, int]],
    names: Collection[str],
    *,
    is_held: bool = True,
) -> SourceRange | None:
    """Return the one line that gives some parameters their numbers; None where none is known to.

    Args:
        files: The files of the port.
        own: Names of the parameters.
        expected: Names of those of the reference that they hold; one that several hold is cut there.
        ran: The lines of the forward, with their files: these use a parameter.
        names: The names of all parameters of both sides.
        is_held: Whether they hold those: what should be loaded, and is not, is named where those are read.
    """
    named = [
        (text, file.path, line)
        for file in filter(None, map(source_file, sorted(files)))
        for text, line in _named(file, {number for path, number in ran if path == file.path})
    ]
    generic = generic_parts(names)
    mine = _best(named, own[:1], generic)
    theirs = _best([each for each in named if not each[0].startswith("self.")], expected, generic)
    is_cut = len(own) > 1 and len(expected) == 1
    for some in (mine & theirs, *((theirs, mine) if is_cut or not is_held else (mine, theirs))):
        if len(some) == 1:
            ((path, line),) = some
            of_one = sum(holder(each) == holder(own[0]) for each in own)
            return _done_in_helper(path, line, of_one) or SourceRange(path, line, line)
    return None


def _done_in_helper(path: str, line: int, weights: int) -> SourceRange | None:
    """Return the few lines that compute in a function that a line calls, if all that it makes is wrong.

    ``state |= pack(here, attention, scale)`` leaves what it packs to ``torch.cat([scale * q, k, v])`` of ``pack``. A
    function that is called elsewhere makes what is right there.
    """
    around = function_around(SourceRange(path, line, line))
    if around is None:
        return None
    file, _, function = around
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call) and node.lineno == line)
    names = {node.func.id for node in calls if isinstance(node.func, ast.Name) and node.func.id in file}
    if len(names) != 1 or file.calls_of(*names) > weights:
        return None
    statements = (node for node in ast.walk(file.functions[names.pop()]) if isinstance(node, ast.stmt))
    found = [each for each in statements if not hasattr(each, "body") and _computes(each)]
    last = found[-1].end_lineno or 0 if found else 0
    return SourceRange(path, found[0].lineno, last) if found and last - found[0].lineno < _SHORT else None


def _computes(node: ast.stmt) -> bool:
    """Tell whether a statement makes numbers of others, or puts them into another order."""
    for part in ast.walk(node):
        if isinstance(part, ast.BinOp) and isinstance(part.op, (ast.Mult, ast.MatMult, ast.Div, ast.Sub)):
            return True
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr in _LAYING_OUT:
            return True
    return False


def loop_around(lines: SourceRange) -> SourceRange | None:
    """Return the head of the outermost loop of a function around some lines; None where they stand in none."""
    inside = function_around(lines)
    loops = (node for node in ast.walk(inside[2]) if isinstance(node, ast.For)) if inside is not None else ()
    around = [node for node in loops if node.lineno <= lines.first and lines.last <= (node.end_lineno or 0)]
    head = min((node.lineno for node in around), default=None)
    return None if head is None else SourceRange(lines.file, head, head)


def behind_loop(lines: SourceRange) -> SourceRange | None:
    """Return the first line of what follows the innermost loop around some lines; None where nothing does."""
    inside = function_around(lines)
    for node in ast.walk(inside[2]) if inside is not None else ():
        for body in (getattr(node, "body", None), getattr(node, "orelse", None)):
            for loop, behind in pairwise(body if isinstance(body, list) else []):
                end = loop.end_lineno or 0
                if isinstance(loop, ast.For) and loop.lineno < lines.first <= lines.last <= end:
                    return SourceRange(lines.file, behind.lineno, behind.end_lineno or behind.lineno)
    return None


def _best(
    named: Sequence[tuple[str, str, int]], names: Sequence[str], generic: Collection[str]
) -> set[tuple[str, int]]:
    """Return the lines that name any of some parameters with the most parts of its name."""
    best: dict[tuple[str, int], int] = {}
    for name in names:
        key, parts = telling_part(name, generic), {*_split(name)}
        for text, path, line in named:
            if key and telling_part(text, generic) == key:
                shared = len(parts.intersection(_split(text)))
                best[path, line] = max(best.get((path, line), 0), shared)
    return {at for at, shared in best.items() if shared == max(best.values())}


def _named(file: SourceFile, ran: Collection[int]) -> Iterator[tuple[str, int]]:
    """Yield what names a parameter in the functions of a file that are no part of a forward, and its line."""
    for path, function in file.functions.items():
        lines = range(function.lineno, (function.end_lineno or 0) + 1)
        if _BEGINNING.search(path) or not {*ran}.isdisjoint(lines):
            continue
        left_out, aliases = _read_alone(function), _aliases(function)
        used_at = dict(_used_at(function, aliases))
        for node in ast.walk(function):
            text = "" if id(node) in left_out else _text_of(node, aliases)
            if text:
                line: int = node.lineno  # type: ignore[attr-defined] # what has a text has a line
                yield text, used_at.get(line, line)


def _used_at(function: ast.AST, aliases: Collection[str]) -> Iterator[tuple[int, int]]:
    """Yield the line that binds a name to a part of something, and the one line that uses it: nothing is wrong before.

    ``kernel = state["conv.weight"]``, and ``"matrix": kernel.flatten(1)`` of what it returns.
    """
    loads: dict[str, list[int]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            loads.setdefault(node.id, []).append(node.lineno)
    for target, value in bindings_of(function):
        if isinstance(target, ast.Name) and target.id in aliases and len(loads.get(target.id, ())) == 1:
            yield value.lineno, loads[target.id][0]


def _read_alone(function: ast.AST) -> set[int]:
    """Return what names a parameter and gives it nothing: what is compared, called, or returned of one's own."""
    found: set[int] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            found.add(id(node.value))
        elif isinstance(node, (ast.Assert, ast.Compare)):
            found.update(map(id, ast.walk(node)))
        elif isinstance(node, ast.Return):
            own = (each for each in ast.walk(node) if isinstance(each, ast.Attribute))
            found.update(id(each) for each in own if ast.unparse(each).startswith("self."))
        elif isinstance(node, ast.Call):
            found.add(id(node.func))
    return found


def _aliases(function: ast.AST) -> dict[str, str]:
    """Return what each local name stands for that is bound once, to a part of something: ``read = stage.reads[i]``."""
    bound: dict[str, list[ast.expr]] = {}
    for target, value in bindings_of(function):
        if isinstance(target, ast.Name):
            bound.setdefault(target.id, []).append(value)
    once = {name: values[0] for name, values in bound.items() if len(values) == 1}
    return {
        name: ast.unparse(value) for name, value in once.items() if isinstance(value, (ast.Attribute, ast.Subscript))
    }


def _text_of(node: ast.AST, aliases: Mapping[str, str]) -> str:
    """Return the name that a part of a statement is, reads or gives."""
    if isinstance(node, ast.keyword):
        return node.arg or ""
    if isinstance(node, (ast.Attribute, ast.JoinedStr)):
        text = ast.unparse(node).removeprefix("f")
        for _ in aliases:
            begin, dot, rest = text.partition(".")
            if begin not in aliases or not dot:
                break
            text = f"{aliases[begin]}.{rest}"
        return _INDEX.sub("", text)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def telling_part(name: str, generic: Collection[str]) -> str:
    """Return the last part of a parameter's name that tells it from others."""
    return next((each for each in reversed(_parts(name)) if each not in generic), "")


def _parts(name: str) -> list[str]:
    return [each for each in _split(name) if not each.isdigit()]


def _split(name: str) -> list[str]:
    return [each for each in _BETWEEN.split(name) if each]


def generic_parts(names: Collection[str]) -> set[str]:
    """Return the last parts of names that say nothing: ``g`` of ``n1/g``, ``n2/g`` and ``end/g``."""
    holders: dict[str, set[str]] = {}
    for parts in filter(None, map(_parts, names)):
        holders.setdefault(parts[-1], set()).add(parts[-2] if len(parts) > 1 else "")
    return {last for last, found in holders.items() if len(found) >= _MANY}.union(_GENERIC)
