"""A file's facts by a lexical cut: no parser runs, and text that cannot matter is never looked at."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple

from pytest_tfdebug.scan import lexer
from pytest_tfdebug.scan.errors import BadSourceError
from pytest_tfdebug.scan.facts import (
    EMPTY,
    Binding,
    Class,
    Decorator,
    Function,
    Import,
    Mention,
    Module,
    Value,
    bind,
    written,
)

_CLASS = re.compile(r"class[ \t]+(\w+)\s*")
_DEF = re.compile(r"(?:async[ \t]+)?def[ \t]+(\w+)\s*")
_IMPORT = re.compile(r"import[ \t]+(.*)", re.DOTALL)
_FROM = re.compile(r"from[ \t]*([.\w \t]+?)[ \t]*\bimport\b(.*)", re.DOTALL)
_ALIAS = re.compile(r"\s*([\w.]+|\*)(?:\s+as\s+(\w+))?\s*")
_TARGET = re.compile(r"(\w+)\s*(?::[^=\n]*)?=(?!=)\s*")
_NEXT_TARGET = re.compile(r"(\w+)\s*=(?!=)\s*")
_TARGETS = re.compile(r"[(\[]?\s*(\*?\w+(?:\s*,\s*\*?\w+)*)\s*,?\s*[)\]]?\s*=(?!=)")
_AUGMENTED = re.compile(r"(\w+)\s*(?:[-+*/%@&|^]|//|\*\*|<<|>>)=")
_DELETE = re.compile(r"del[ \t]+(.*)")
_KEYWORD = re.compile(r"(\w+)\s*=(?!=)\s*(.*)", re.DOTALL)
_PARAM = re.compile(r"\**(\w+)")
_CALL = re.compile(r"[\w.]+\s*\(")
_NEVER = re.compile(r"if\s+(?:TYPE_CHECKING|typing\.TYPE_CHECKING|False|0)\s*:")

#: What a body may begin with that does nothing: strings are ``lexer.FILL``.
_BLANK = f" \t\n;{lexer.FILL}"
#: How what follows may begin in an empty body: with ``pass``, ``...``, ``return``, a prefix of a string, or not at all.
_MAYBE_EMPTY = frozenset({"", *"p.rRuUbBfF"})
#: Compound statements whose body binds only where the first branch has not.
_WEAK = frozenset({"elif", "else", "except", "case"})
#: Compound statements without a scope of their own.
_BLOCKS = _WEAK | {"if", "try", "finally", "with", "for", "while", "match"}


class _Source(NamedTuple):
    text: str
    masked: str
    lines: _Lines


class _Lines:
    """Line numbers of offsets, each told from the one before."""

    def __init__(self, text: str) -> None:
        self._text, self._offset, self._line = text, 0, 1

    def at(self, offset: int) -> int:
        """Return the number of the line that holds ``offset``, from 1."""
        if offset < self._offset:
            self._line -= self._text.count("\n", offset, self._offset)
        else:
            self._line += self._text.count("\n", self._offset, offset)
        self._offset = offset
        return self._line


class _Scope(NamedTuple):
    names: dict[str, Binding]
    stars: list[str]
    calls: list[Value]
    is_sure: bool = True


class _Def(NamedTuple):
    """A function whose body waits until all the file's names are known; ``params`` is the offset of its parameters."""

    name: str
    line: int
    decorators: tuple[Decorator, ...]
    params: int
    body: int
    end: int


class Outline(NamedTuple):
    """A file whose classes' bodies are not read yet, with its text, masked too, from which they can be."""

    module: Module
    text: str
    masked: str
    mentions: Mention

    def filled(self, cls: Class) -> Class:
        """Return a class of the file with what its body binds."""
        return _filled(_Source(self.text, self.masked, _Lines(self.text)), cls, self.mentions)


def outline(text: str) -> Outline:
    """Return the facts of a file from its text, but for the bodies of its classes.

    Raises:
        BadSourceError: If a string or bracket does not end, or a class or function has no header.
    """
    source = _Source(text, lexer.mask(text), _Lines(text))
    scope = _Scope({}, [], [])
    _block(source, 0, len(text), scope, weak=False)
    names = _settled(source, scope.names, None)
    mentions = Mention.of(names)
    calls = [call for call in scope.calls if mentions.skips_in(call.text)]
    return Outline(Module(names, tuple(scope.stars), tuple(calls)), text, source.masked, mentions)


def cut(text: str) -> Module:
    """Return the facts of a file from its text.

    Raises:
        BadSourceError: As for :func:`outline`.
    """
    found = outline(text)
    names = {
        name: found.filled(binding) if isinstance(binding, Class) else binding
        for name, binding in found.module.names.items()
    }
    return found.module._replace(names=names)


def _filled(source: _Source, cls: Class, mentions: Mention) -> Class:
    if cls.span is None:
        return cls
    scope = _Scope({}, [], [])
    start, end = cls.span
    _nested(source, lexer.Statement("class", start, start, end), scope, weak=False)
    members = _settled(source, scope.names, mentions)
    writes = written(source.masked, start, end)
    return cls._replace(members=members, writes=writes, span=None)


def _block(source: _Source, start: int, end: int, scope: _Scope, *, weak: bool) -> None:
    decorators: list[Decorator] = []
    never = False
    for statement in lexer.statements(source.masked, start, end):
        kind = statement.kind
        if kind == "":
            _simple(source, statement.start, statement.header_end, scope, weak=weak)
        elif kind == "@":
            at = statement.start + 1
            text = lexer.code(source.text, source.masked, at, statement.header_end)
            decorators.append(Decorator(text, source.lines.at(statement.start)))
            continue
        elif kind == "def":
            function = _function(source, statement, tuple(decorators))
            bind(scope.names, function.name, function, weak=weak)  # type: ignore[arg-type]
        elif kind == "class":
            bind(scope.names, *_class(source, statement, tuple(decorators)), weak=weak)
        elif kind in _BLOCKS:
            branch_weak = weak or (kind in _WEAK and not never)
            if kind == "if":
                never = _NEVER.match(source.masked, statement.start) is not None
            if not (kind == "if" and never):
                _nested(
                    source,
                    statement,
                    scope._replace(calls=[], is_sure=False),
                    weak=branch_weak,
                )
        decorators = []


def _nested(source: _Source, statement: lexer.Statement, scope: _Scope, *, weak: bool) -> None:
    start = statement.header_end
    if source.masked.startswith("\n", start):
        _block(source, start + 1, statement.end, scope, weak=weak)
    else:
        _simple(source, start, lexer.line_end(source.masked, start, statement.end), scope, weak=weak)


def _simple(source: _Source, start: int, end: int, scope: _Scope, *, weak: bool) -> None:
    """Bind what the simple statements of one logical line bind."""
    masked = source.masked
    marks = lexer.top_level(masked, start, end, ";") if masked.find(";", start, end) >= 0 else []
    begin = start
    for finish in (*marks, end):
        while masked[begin : begin + 1].isspace():
            begin += 1
        for pattern, handle in _SIMPLE:
            found = pattern.match(masked, begin, finish)
            if found is not None:
                handle(source, found, finish, scope, weak)
                break
        begin = finish + 1


def _assignment(source: _Source, found: re.Match[str], end: int, scope: _Scope, weak: bool) -> None:  # noqa: FBT001 - a handler of the table
    names, at = [found.group(1)], found.end()
    while following := _NEXT_TARGET.match(source.masked, at, end):
        names.append(following.group(1))
        at = following.end()
    value = Value(
        lexer.code(source.text, source.masked, at, end), source.lines.at(found.start()), is_sure=scope.is_sure
    )
    for name in names:
        bind(scope.names, name, value, weak=weak)


def _assignments(source: _Source, found: re.Match[str], end: int, scope: _Scope, weak: bool) -> None:  # noqa: FBT001
    names = [name.strip(" \t\n*") for name in found.group(1).split(",")]
    start, finish = lexer.unwrap(source.masked, found.end(), end)
    texts = lexer.split(source.text, source.masked, start, finish, ",")
    is_one = len(names) == 1 and not {",", "["}.isdisjoint(found[0])  # and unpacked all the same
    is_tuple = len(texts) > 1 or source.masked[start:finish].rstrip().endswith(",")
    if len(texts) != len(names) or "*" in found[0] or (is_one and not is_tuple):
        texts = [""] * len(names)
    line = source.lines.at(found.start())
    for name, text in zip(names, texts, strict=True):
        bind(scope.names, name, Value(text, line, is_sure=scope.is_sure), weak=weak)


def _augmented(source: _Source, found: re.Match[str], end: int, scope: _Scope, weak: bool) -> None:  # noqa: ARG001, FBT001
    bind(scope.names, found.group(1), Value("", source.lines.at(found.start()), is_sure=scope.is_sure), weak=weak)


def _delete(source: _Source, found: re.Match[str], end: int, scope: _Scope, weak: bool) -> None:  # noqa: ARG001, FBT001
    if not weak:
        for name in found.group(1).strip("() ").split(","):
            scope.names.pop(name.strip(), None)


def _import(source: _Source, found: re.Match[str], end: int, scope: _Scope, weak: bool) -> None:  # noqa: ARG001, FBT001
    line = source.lines.at(found.start())
    for module, alias in _aliases(found.group(1)):
        name, bound = alias or module.partition(".")[0], module if alias else module.partition(".")[0]
        bind(scope.names, name, Import(bound, "", line), weak=weak)


def _from(source: _Source, found: re.Match[str], end: int, scope: _Scope, weak: bool) -> None:  # noqa: ARG001, FBT001
    line, module = source.lines.at(found.start()), "".join(found.group(1).split())
    for name, alias in _aliases(found.group(2)):
        if name == "*":
            scope.stars.append(module)
        else:
            bind(scope.names, alias or name, Import(module, name, line), weak=weak)


@cache  # many files import the same
def _aliases(text: str) -> list[tuple[str, str]]:
    aliases = []
    for part in text.strip().strip("()").split(","):
        found = _ALIAS.fullmatch(part)
        if found is not None:
            aliases.append((found.group(1), found.group(2) or ""))
        elif part.strip():
            raise BadSourceError(f"cannot read the import of {part.strip()!r}")
    return aliases


def _call(source: _Source, found: re.Match[str], end: int, scope: _Scope, weak: bool) -> None:  # noqa: ARG001, FBT001
    text = lexer.code(source.text, source.masked, found.start(), end)
    scope.calls.append(Value(text, source.lines.at(found.start())))


#: What a simple statement looks like -> what it binds; the first that matches wins.
_SIMPLE = (
    (_FROM, _from),
    (_IMPORT, _import),
    (_DELETE, _delete),
    (_TARGET, _assignment),
    (_AUGMENTED, _augmented),
    (_TARGETS, _assignments),
    (_CALL, _call),
)


def _function(source: _Source, statement: lexer.Statement, decorators: tuple[Decorator, ...]) -> _Def:
    found = _DEF.match(source.masked, statement.start)
    if found is None:
        raise BadSourceError(f"line {source.lines.at(statement.start)}: not a function definition")
    line = source.lines.at(statement.start)
    return _Def(found[1], line, decorators, found.end(), statement.header_end, statement.end)


def _class(source: _Source, statement: lexer.Statement, decorators: tuple[Decorator, ...]) -> tuple[str, Class]:
    found = _CLASS.match(source.masked, statement.start)
    if found is None:
        raise BadSourceError(f"line {source.lines.at(statement.start)}: not a class definition")
    line = source.lines.at(statement.start)
    bases, keywords = _bases(source, found.end(), statement.header_end)
    span = statement.header_end, statement.end
    name = found.group(1)
    return name, Class(name, line, decorators, bases, keywords, {}, frozenset(), span)


def _bases(source: _Source, start: int, end: int) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    masked = source.masked
    if masked.startswith("[", start):  # type parameters
        start = masked.index("]", start) + 1
    opened = masked.find("(", start, end)
    if opened < 0:
        return (), ()
    parts = lexer.split(source.text, masked, opened + 1, masked.rindex(")", opened, end), ",")
    keywords = [_KEYWORD.fullmatch(part) for part in parts]
    return (
        tuple(part for part, keyword in zip(parts, keywords, strict=True) if keyword is None),
        tuple((keyword.group(1), keyword.group(2)) for keyword in keywords if keyword is not None),
    )


def _settled(source: _Source, names: dict[str, Binding], mentions: Mention | None) -> dict[str, Binding]:
    """Give each function its body: those of a module all of them, those of a class what could skip."""
    return {name: _settle(source, binding, mentions) for name, binding in names.items()}


def _settle(source: _Source, binding: Binding | _Def, mentions: Mention | None) -> Binding:
    if isinstance(binding, _Def):
        return _bodied(source, binding, mentions)
    if isinstance(binding, Class) and mentions is not None:
        return _filled(source, binding, mentions)
    if isinstance(binding, Value) and binding.previous is not None:
        previous: Any = _settle(source, binding.previous, mentions)
        return binding._replace(previous=previous)
    return binding


def _bodied(source: _Source, definition: _Def, mentions: Mention | None) -> Function:
    name, line, decorators, params, start, end = definition
    masked = source.masked[start:end]
    rest = masked.lstrip(_BLANK)
    empty = rest[:1] in _MAYBE_EMPTY and EMPTY.fullmatch(rest) is not None
    if empty or not (mentions is None or mentions.keeps(name, masked)):
        return Function(name, line, decorators, (), "", 0, empty=empty)
    begin, finish = start + len(masked) - len(masked.lstrip()), start + len(masked.rstrip())
    if source.masked.find("\n", start, begin) >= 0:
        begin = source.masked.rindex("\n", start, begin) + 1
    body, body_line = source.text[begin:finish], source.lines.at(begin)
    return Function(name, line, decorators, _parameters(source, params, start), body, body_line, empty=False)


def _parameters(source: _Source, start: int, end: int) -> tuple[str, ...]:
    opened = source.masked.index("(", start, end)
    if source.masked.startswith("(self)", opened):
        return ("self",)
    closed = lexer.top_level(source.masked, opened + 1, end, ")")
    parts = lexer.split(source.text, source.masked, opened + 1, closed[0] if closed else end, ",")
    return tuple(found.group(1) for part in parts if (found := _PARAM.match(part)))
