"""A file read: from its outline, what each statement at the top of it, or of a class, binds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import libcst as cst

from pytest_tfdebug.scan.errors import BadSourceError
from pytest_tfdebug.scan.read import syntax
from pytest_tfdebug.scan.read.bindings import (
    Binding,
    BoundFunction,
    BoundValue,
    Class,
    Decorator,
    Import,
    Module,
    Source,
    bind,
)
from pytest_tfdebug.scan.read.outline import COMPOUND, Outline, Statement, uncommented

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


#: Compound statements whose body binds only where the first branch has not.
_WEAK = frozenset({"elif", "else", "except", "case"})
#: Compound statements without a scope of their own.
_BLOCKS = COMPOUND - {"class", "def"}
#: Tests of an ``if`` whose body never runs.
_NEVER = frozenset({"TYPE_CHECKING", "typing.TYPE_CHECKING", "False", "0"})
#: Characters of a file that are read whole; libcst takes 3 seconds for as many.
_MOST_CHECKED = 1_000_000
_SKIPS_MODULE = "allow_module_level"


class _BlockScope(NamedTuple):
    """What the statements of a module or class bind; ``is_sure`` is False in an ``if`` or another block."""

    names: dict[str, Binding]
    stars: list[str]
    calls: list[Decorator]
    is_sure: bool = True


def read(text: str, note_bad: Callable[[BadSourceError, int], None], may_skip: Callable[[str], bool]) -> Module:
    """Return what a file's source binds; BadSourceError if it, an import or an assignment cannot be read.

    ``note_bad`` notes an error in a part that is read later, and its line; ``may_skip`` tells whether calling a dotted
    name of the file may skip.
    """

    def members(statements: list[Statement]) -> dict[str, Binding]:
        own = _BlockScope({}, [], [])
        try:
            _bind_all(statements, own, source, weak=False)
        except BadSourceError as error:
            note_bad(error, 0)
        return own.names

    source = Source(note_bad, may_skip, members)
    outline, scope = Outline(text), _BlockScope({}, [], [])
    _bind_all(outline.block(0, len(outline)), scope, source, weak=False)
    return Module(scope.names, tuple(scope.stars), tuple(scope.calls))


def check(text: str) -> None:
    """Raise BadSourceError if libcst cannot read the whole of a file."""
    outline = Outline(text)  # which says more plainly than libcst which bracket or string does not end
    if len(text) > _MOST_CHECKED:
        raise BadSourceError(f"{len(text):,} characters, more than the {_MOST_CHECKED:,} that are read whole")
    for index in range(len(outline)):
        try:
            syntax.check_size(outline.text(index, index + 1))
        except BadSourceError as error:  # noqa: PERF203 - the loop ends with it
            raise BadSourceError(f"line {outline.line(index)}: {error}") from error
    syntax.parse(text)


def _bind_all(statements: list[Statement], scope: _BlockScope, source: Source, *, weak: bool) -> None:
    decorators: list[Decorator] = []
    never = False
    for statement in statements:
        word = statement.word
        if word == "@":
            decorators.append(Decorator(uncommented(statement.text[1:]).strip(), statement.line))
            continue
        if word in {"def", "class"}:
            after = statement.text.partition(word)[2].lstrip()
            name = after[: next((at for at, mark in enumerate(after) if not (mark.isalnum() or mark == "_")), None)]
            if not name.isidentifier():
                raise BadSourceError(f"line {statement.line}: invalid syntax")
            kind = BoundFunction if word == "def" else Class
            bind(scope.names, name, kind(name, tuple(decorators), statement, source), weak=weak)
        elif word in _BLOCKS:
            is_weak = weak or (word in _WEAK and not never)
            if word == "if":
                tested = uncommented(statement.text)[2:].strip().removesuffix(":")
                never = tested.strip("() ") in _NEVER
            if word != "if" or not never:
                _bind_all(statement.block, scope._replace(is_sure=False), source, weak=is_weak)
        else:
            _bind_simple(statement, scope, weak=weak)
        decorators = []


def _bind_simple(statement: Statement, scope: _BlockScope, *, weak: bool) -> None:
    """Bind what a simple statement binds: the plainest assignments by their text, all else as libcst reads it."""
    text, line = statement.text, statement.line
    target, equals, rest = text.partition("=")
    name = target.strip()
    if equals and name.isidentifier() and rest[:1] != "=" and not _is_chained(rest):
        bind(scope.names, name, BoundValue(uncommented(rest).strip(), line, is_sure=scope.is_sure), weak=weak)
        return
    if not statement.word and not equals and _SKIPS_MODULE in text and scope.is_sure:
        scope.calls.append(Decorator(uncommented(text).strip(), line))
    if not statement.word and not (equals and (_may_bind(text) or _is_chained(rest))):
        return  # an expression, or a statement that binds nothing
    try:
        nodes = syntax.statement(f"{text}\n").body
    except BadSourceError as error:
        raise BadSourceError(f"line {line}: {str(error).rpartition(': ')[2]}") from error
    for node in nodes:
        _bind_node(node, line, scope, weak=weak)


def _is_chained(rest: str) -> bool:
    """Tell whether what follows an equals sign is another target and equals sign."""
    target, equals, value = rest.partition("=")
    return bool(equals) and value[:1] != "=" and target.strip().isidentifier()


def _may_bind(text: str) -> bool:
    """Tell whether an equals sign may stand after a name; it does not in a call, or after an attribute or an item."""
    target = text.partition("=")[0].strip()
    if text[0] in "([":
        return True
    return "(" not in target and not target.replace(".", "").isidentifier() and (target[-1:] != "]" or ":" in target)


def _bind_node(node: Any, line: int, scope: _BlockScope, *, weak: bool) -> None:
    if isinstance(node, cst.Import):
        for alias in node.names:
            module = alias.evaluated_name
            name = alias.evaluated_alias or module.partition(".")[0]
            bind(scope.names, name, Import(module if alias.asname else name, "", line), weak=weak)
    elif isinstance(node, cst.ImportFrom):
        base = "." * len(node.relative) + (syntax.dotted(node.module) if node.module else "")
        if isinstance(node.names, cst.ImportStar):
            scope.stars.append(base)
            return
        for alias in node.names:
            name = alias.evaluated_name
            bind(scope.names, alias.evaluated_alias or name, Import(base, name, line), weak=weak)
    elif isinstance(node, cst.Del):
        elements = node.target.elements if isinstance(node.target, cst.Tuple) else [node.target]
        for element in elements if not weak else ():
            scope.names.pop(syntax.dotted(getattr(element, "value", element)) or syntax.dotted(element), None)
    else:
        for name, text in _assigned(node):
            bind(scope.names, name, BoundValue(text, line, is_sure=scope.is_sure), weak=weak)


def _assigned(node: Any) -> Iterator[tuple[str, str]]:
    """Yield the names that an assignment binds and the source of each value; other targets bind no name."""
    if isinstance(node, cst.AugAssign) and isinstance(node.target, cst.Name):
        yield node.target.value, ""
    if isinstance(node, cst.AnnAssign) and isinstance(node.target, cst.Name) and node.value is not None:
        yield node.target.value, syntax.code(node.value)
    for target in (each.target for each in node.targets) if isinstance(node, cst.Assign) else ():
        if isinstance(target, cst.Name):
            yield target.value, syntax.code(node.value)
        elif isinstance(target, (cst.Tuple, cst.List)):
            yield from _unpacked(target, node.value)


def _unpacked(target: Any, value: Any) -> Iterator[tuple[str, str]]:
    names = target.elements
    has_star = any(isinstance(element, cst.StarredElement) for element in names)
    is_same = isinstance(value, cst.Tuple) and len(value.elements) == len(names) and not has_star
    for index, element in enumerate(names):
        if isinstance(element.value, cst.Name):
            yield element.value.value, syntax.code(value.elements[index].value) if is_same else ""
