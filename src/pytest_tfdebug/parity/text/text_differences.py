"""Where a port's function is the reference's but for a few statements: most ports begin as a copy.

Two functions are held to each other statement by statement, without comments, docstrings and annotations; then the
functions of the same file that they use, by name. A function of which too little is the same tells nothing.
"""

from __future__ import annotations

import ast
import linecache
import re
import sys
from difflib import SequenceMatcher
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pytest_tfdebug.check_record import SourceText
from pytest_tfdebug.parity.text.local_names import Clause, statement, texts_in_names_of
from pytest_tfdebug.records import SourceRange

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Lines that are shown before and after those that are meant, at most.
_AROUND = 40
#: Lines around those whose function is not known.
_UNKNOWN = 6


def source_text(meant: SourceRange | None, around: SourceRange | None) -> SourceText | None:
    """Return the text of some lines with what stands around them; None where nothing can be read."""
    if meant is None:
        return None if around is None else _piece(around.file, around.first, around.last, None)
    is_inside = around is not None and around.file == meant.file and around.first <= meant.first <= around.last
    if around is not None and is_inside:
        first, last = max(around.first, meant.first - _AROUND), min(around.last, meant.last + _AROUND)
    else:
        first, last = max(1, meant.first - _UNKNOWN), meant.last + _UNKNOWN
    found = _piece(meant.file, first, last, meant)
    recorded = tuple(meant.code.splitlines())
    if recorded and (found is None or not _holds(found, meant, recorded)):  # another version of the file is installed
        return SourceText(meant.file, meant.first, recorded, meant)
    return found


def _holds(found: SourceText, meant: SourceRange, recorded: tuple[str, ...]) -> bool:
    begin = meant.first - found.first
    there = found.text[begin : begin + len(recorded)]
    return [line.strip() for line in there] == [line.strip() for line in recorded]


def _piece(file: str, first: int, last: int, marked: SourceRange | None) -> SourceText | None:
    path = on_disk(file)
    text = linecache.getlines(path)[first - 1 : last]
    return SourceText(path, first, tuple(line.rstrip("\n") for line in text), marked) if text else None


@lru_cache(maxsize=256)
def on_disk(file: str) -> str:
    """Return where a file is that is named as it is imported."""
    if Path(file).is_absolute():
        return file
    folders = (Path(folder or ".") / file for folder in sys.path)
    return next((str(path.absolute()) for path in folders if path.is_file()), file)


#: Share of the statements of two functions from which they are one but for the rest, and places in which they differ;
#: and the share from which they are one in however many places they differ.
_ALIKE, _FEW, _ONE = 0.5, 3, 0.85
_Function = ast.FunctionDef | ast.AsyncFunctionDef
#: Lines before the one that sets an attribute in which it may be made.
_MAKING = 12


class TextDifference(NamedTuple):
    """Statements of a port that are not the reference's."""

    own: SourceRange  # the port's; where it has none, the one before which the reference's belong
    reference: SourceRange  # the reference's, likewise
    function: str  # name of the port's function that holds them
    is_left_out: bool  # whether the port has none
    # statements that lead to the function from where the search began, innermost first
    callers: tuple[SourceRange, ...] = ()


class SourceFile:
    """A file of Python with its functions."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self._lines = text.splitlines()
        self._functions: dict[str, _Function] = {}
        self._bases: dict[str, list[str]] = {}
        #: Names of classes that the file defines, and of all that it imports.
        self.classes: set[str] = set()
        self.own_classes: set[str] = set()
        self.tree = tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.arg):
                node.annotation = None
            elif isinstance(node, ast.ClassDef):
                self.classes.add(node.name)
                self.own_classes.add(node.name)
            elif isinstance(node, ast.alias):
                self.classes.add(node.asname or node.name)
        self._add(tree.body, "")

    def _add(self, body: list[ast.stmt], prefix: str) -> None:
        """Add the functions and classes of a body under their qualified names."""
        for node in body:
            if isinstance(node, ast.ClassDef):
                bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
                self._bases[prefix + node.name] = [base for base in bases if base != node.name]  # one of another file
            elif isinstance(node, _Function):
                self._functions[prefix + node.name] = node
            else:
                continue
            self._add(node.body, f"{prefix}{node.name}.")

    def __contains__(self, name: str) -> bool:
        return name in self._functions

    @property
    def functions(self) -> Mapping[str, ast.FunctionDef | ast.AsyncFunctionDef]:
        """The functions of the file by name, ``Attention.forward``."""
        return self._functions

    def calls_of(self, name: str) -> int:
        """Return how often the functions of the file call a function or method of a name."""
        calls = (node for each in self._functions.values() for node in ast.walk(each) if isinstance(node, ast.Call))
        return len({id(call) for call in calls if called_name(call) == name})

    def function(self, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """Return the function of a name; None where the file has none."""
        return self._functions.get(name)

    def around(self, lines: SourceRange) -> str:
        """Return the name of the innermost function around some lines; empty where this file has none."""
        if on_disk(lines.file) != self.path:
            return ""
        around = [name for name, node in self._functions.items() if node.lineno <= lines.last <= (node.end_lineno or 0)]
        return max(around, key=lambda name: self._functions[name].lineno, default="")

    def method(self, class_name: str, name: str) -> str:
        """Return the name under which the file has a method of a class or of its bases; empty where it has none."""
        if f"{class_name}.{name}" in self._functions:
            return f"{class_name}.{name}"
        found = (self.method(base, name) for base in self._bases.get(class_name, ()) if base in self._bases)
        return next(filter(None, found), "")

    def units(self, name: str) -> list[Clause]:
        """Return the statements of a function, its parameters first."""
        node = self._functions[name]
        return [statement(node, node.lineno, node.args), *_units(node.body)]

    def reached(self, name: str, lines: SourceRange) -> Iterator[tuple[str, SourceRange, tuple[SourceRange, ...]]]:
        """Yield a function with some of its lines, and the functions of this file that these use, with all of theirs.

        Each comes with the statements that lead to it, innermost first.
        """
        todo: list[tuple[str, SourceRange, tuple[SourceRange, ...]]] = [(name, lines, ())]
        seen = {name}
        while todo:
            at, part, callers = todo.pop(0)
            yield at, part, callers
            for used, unit in self._used(at, part):
                if used not in seen:
                    seen.add(used)
                    todo.append((used, self.whole(used), (SourceRange(self.path, unit.first, unit.last), *callers)))

    def _used(self, name: str, lines: SourceRange) -> Iterator[tuple[str, Clause]]:
        """Yield the functions of this file that some lines of a function name, and the statement that does.

        With ``self.mix = partial(mixed, steps=2)`` in a constructor ``self.mix`` names ``mixed``.
        """
        class_name = name.rpartition(".")[0]
        for unit, node in self._nodes(name, lines):
            names = [node.id] if isinstance(node, ast.Name) else []
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
                method = self.method(class_name, node.attr)
                names = [method] if method else self._held(class_name, node.attr)
            yield from ((used, unit) for used in names if used in self._functions)

    def _held(self, class_name: str, attribute: str) -> list[str]:
        """Return the names in what the constructor of a class puts into an attribute."""
        values = [node.value for node in self._assignments(class_name, attribute)]
        return [node.id for value in values for node in ast.walk(value) if isinstance(node, ast.Name)]

    def made_at(self, class_name: str, attribute: str) -> SourceRange | None:
        """Return the one statement of the constructor of a class that makes an attribute; None where there is none."""
        found = self._assignment(class_name, attribute)
        return None if found is None else SourceRange(self.path, found.lineno, found.end_lineno or 0)

    def making_of(self, class_name: str, lines: SourceRange) -> SourceRange | None:
        """Return the one call of a class in the functions that some lines use; None where there is none, or several."""
        used = dict.fromkeys(name for name, _ in self._used(self.around(lines), lines))
        calls = [
            node
            for name in used
            for node in ast.walk(self._functions[name])
            if isinstance(node, ast.Call) and called_name(node) == class_name
        ]
        return SourceRange(self.path, calls[0].lineno, calls[0].end_lineno or 0) if len(calls) == 1 else None

    def making(self, class_name: str, attribute: str) -> SourceRange | None:
        """Return the statements of a constructor by which an attribute is made, to the one that sets it."""
        found = self._assignment(class_name, attribute)
        if found is None:
            return None
        init = self.around(SourceRange(self.path, found.lineno, found.lineno))
        first, names = found.lineno, _names_in(found)
        before = [node for node in ast.walk(self._functions[init]) if isinstance(node, (ast.Assign, ast.AugAssign))]
        for node in sorted(before, key=lambda node: -node.lineno):
            targets = _targets(node) if isinstance(node, ast.Assign) else [node.target]
            bound = {target.id for target in targets if isinstance(target, ast.Name)}
            if found.lineno - _MAKING < node.lineno < first and not bound.isdisjoint(names):
                first, names = node.lineno, names | _names_in(node)
        return SourceRange(self.path, first, found.end_lineno or 0)

    def function_making(self, class_name: str, attribute: str) -> SourceRange | None:
        """Return the body of the one function of this file that a constructor calls for an attribute; None for none."""
        lines = self.making(class_name, attribute)
        init = None if lines is None else self._functions.get(self.around(lines))
        called = (node for node in ast.walk(init) if isinstance(node, ast.Call)) if init is not None else ()
        known = {
            call.func.id
            for call in called
            if isinstance(call.func, ast.Name)
            and call.func.id in self._functions
            and lines is not None
            and lines.holds(lines.file, call.lineno)
        }
        return self.body(known.pop()) if len(known) == 1 else None

    def _assignment(self, class_name: str, attribute: str) -> ast.Assign | ast.Expr | None:
        """Return the one statement that sets an attribute in a constructor; None where there is none, or several."""
        found = list(self._assignments(class_name, attribute))
        return found[0] if len(found) == 1 else None

    def _assignments(self, class_name: str, attribute: str) -> Iterator[ast.Assign | ast.Expr]:
        """Yield what sets an attribute in the constructor of a class, or else in those of its bases."""
        found = list(self._assignments_in(class_name, attribute))
        bases = self._bases.get(class_name, ()) if not found else ()
        yield from found or (each for base in bases for each in self._assignments(base, attribute))

    def _assignments_in(self, class_name: str, attribute: str) -> Iterator[ast.Assign | ast.Expr]:
        init = self._functions.get(f"{class_name}.__init__")
        for node in ast.walk(init) if init is not None else ():
            if isinstance(node, ast.Expr) and _registers(node.value, attribute):
                yield node
            if isinstance(node, ast.Assign) and any(_is_of_self(each, attribute) for each in _targets(node)):
                yield node

    def reading(self, attribute: str, name: str, lines: SourceRange) -> Iterator[SourceRange]:
        """Yield the statements of some lines of a function that read ``attribute`` or ``child.attribute``."""
        named = re.compile(rf"\.{re.escape(attribute)}\b")
        for unit in self.units(name):
            if _meet(unit, lines) and named.search(unit.text):
                yield SourceRange(self.path, unit.first, unit.last)

    def reading_in(self, attribute: str, lines: SourceRange) -> list[SourceRange]:
        """Return the statements of some lines, and of the functions that they use, that read an attribute."""
        name = self.around(lines)
        reached = self.reached(name, lines) if name else ()
        return [each for used, part, _ in reached for each in self.reading(attribute, used, part)]

    def _nodes(self, name: str, lines: SourceRange) -> Iterator[tuple[Clause, ast.AST]]:
        meant = (unit for unit in self.units(name) if _meet(unit, lines))
        return ((unit, node) for unit in meant for part in unit.nodes for node in ast.walk(part))

    def code(self, lines: SourceRange) -> str:
        """Return the text of some lines."""
        return "\n".join(self._lines[lines.first - 1 : lines.last])

    def body(self, name: str) -> SourceRange:
        """Return the lines of a function from its first statement on, past parameters and docstring."""
        first = next(iter(_units(self._functions[name].body)), None)
        whole = self.whole(name)
        return whole if first is None else SourceRange(self.path, first.first, whole.last)

    def whole(self, name: str) -> SourceRange:
        """Return the lines of a function."""
        node = self._functions[name]
        return SourceRange(self.path, node.lineno, node.end_lineno or node.lineno)


def source_file(file: str) -> SourceFile | None:
    """Return a file, or the cell of a notebook; None where it cannot be read."""
    path = on_disk(file)
    is_read = Path(path).is_absolute() or path.startswith("<")  # another folder may have had a file of this name
    return _parsed(path, "".join(linecache.getlines(path))) if is_read else None


def function_around(lines: SourceRange) -> tuple[SourceFile, str, _Function] | None:
    """Return the file of some lines, and the innermost function around them with its name; None where there is none."""
    file = source_file(lines.file)
    name = "" if file is None else file.around(lines)
    function = None if file is None else file.function(name)
    return None if file is None or function is None else (file, name, function)


def called_name(call: ast.Call) -> str:
    """Return the last part of the name of what is called; empty for what has none."""
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


@lru_cache(maxsize=32)
def _parsed(path: str, text: str) -> SourceFile | None:
    try:
        return SourceFile(path, text) if text else None
    except SyntaxError:
        return None


def _units(body: list[ast.stmt]) -> Iterator[Clause]:
    for node in body:
        blocks: list[list[ast.stmt]] = [getattr(node, name, []) for name in ("body", "orelse", "finalbody")]
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            yield statement(node, node.end_lineno, node.target, node.value)
        elif not blocks[0] or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):  # a docstring
                yield statement(node, node.end_lineno, node)
        else:
            heads = [value for name, value in ast.iter_fields(node) if name in ("test", "target", "iter", "items")]
            parts = [part for head in heads for part in (head if isinstance(head, list) else [head])]
            yield statement(node, max(node.lineno, blocks[0][0].lineno - 1), *parts)
            for block in (*blocks, *(handler.body for handler in getattr(node, "handlers", ()))):
                yield from _units(block)


def _registers(node: ast.expr, attribute: str) -> bool:
    """Tell whether an expression makes an attribute by its name: ``self.register_buffer("table", ...)``."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
        return False
    first = node.args[0]
    return node.func.attr.startswith("register_") and isinstance(first, ast.Constant) and first.value == attribute


def _is_of_self(node: ast.expr, attribute: str) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.value.id, node.attr) == ("self", attribute)
    )


def _names_in(node: ast.stmt) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _targets(node: ast.Assign) -> Iterator[ast.expr]:
    """Yield what an assignment binds; of ``a, b = x, y`` both."""
    for target in node.targets:
        yield from target.elts if isinstance(target, ast.Tuple) else [target]


def _meet(unit: Clause, lines: SourceRange) -> bool:
    return unit.first <= lines.last and lines.first <= unit.last


def text_differences(
    own: SourceFile, name: str, lines: SourceRange, reference: SourceFile, other: str
) -> Iterator[TextDifference]:
    """Yield where some lines of a function are not the reference's, if the two functions are one otherwise."""
    mine, theirs = own.units(name), reference.units(other)
    matcher = _matcher(mine, theirs)
    changes = [places for tag, *places in matcher.get_opcodes() if tag != "equal"]
    if matcher.ratio() < (_ALIKE if len(changes) <= _FEW else _ONE):
        return
    for first, last, begin, end in (each for change in changes for each in _one_by_one(*change)):
        here, there = _shown(mine, first, last), _shown(theirs, begin, end)
        beside = mine[max(0, first - 1) : last + 1] if first == last else here
        if any(_meet(unit, lines) for unit in beside):
            yield TextDifference(
                SourceRange(own.path, here[0].first, here[-1].last),
                SourceRange(reference.path, there[0].first, there[-1].last),
                name.rpartition(".")[2],
                is_left_out=first == last,
            )


def _one_by_one(first: int, last: int, begin: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the places of statements of which as many stand for as many one by one; of others all at once."""
    if last - first != end - begin:
        yield first, last, begin, end
        return
    yield from ((first + step, first + step + 1, begin + step, begin + step + 1) for step in range(last - first))


def aligned(own: SourceFile, name: str, lines: SourceRange, reference: SourceFile, other: str) -> SourceRange | None:
    """Return the reference's statements from the first to the last that is the same as one of some lines."""
    mine, theirs = own.units(name), reference.units(other)
    same = [
        theirs[block.b + step]
        for block in _matcher(mine, theirs).get_matching_blocks()
        for step in range(block.size)
        if _meet(mine[block.a + step], lines)
    ]
    return SourceRange(reference.path, same[0].first, same[-1].last) if same else None


def _matcher(mine: list[Clause], theirs: list[Clause]) -> SequenceMatcher[str]:
    return SequenceMatcher(None, texts_in_names_of(mine, theirs), [unit.text for unit in theirs], autojunk=False)


def _shown(units: list[Clause], first: int, last: int) -> list[Clause]:
    """Return some statements, or the one before which they belong."""
    return units[first:last] or units[first : first + 1] or units[-1:]
