"""What of a function's body could skip: its skips, what guards them and what can end it before them.

A body is a tuple of statements; everything that can neither skip nor leave is gone:

===========================================  ==========================================
``("do", text, line)``                       an expression, or the value of an assignment
``("raise", text, line)``                    and ``("return", text, line)``
``("leave", "", line)``                      ``break`` and ``continue``
``("if", test, body, orelse)``               and ``("while", test, body, orelse)``
``("for", iterable, body, orelse)``
``("with", "", body)``                       and ``("maybe", subject, body)``: a ``case``
``("try", body, handlers, orelse, final)``   ``handlers``: ``(type, body)`` each
``("def", name, body)``                      a nested function
===========================================  ==========================================
"""

from __future__ import annotations

import re
from bisect import bisect_left
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pytest_tfdebug.scan import lexer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.scan.facts import Function, Mention

Body: TypeAlias = "tuple[tuple[Any, ...], ...]"

_LEAVING = ("return", "raise", "break", "continue")
_LEAVE = re.compile(rf"({'|'.join(_LEAVING)})\b")
_LEAVES = tuple(re.compile(rf"{word}\b") for word in _LEAVING)
_HEADER = re.compile(r"(?:async\s+)?(\w+)\b\s*")
_CALLS = re.compile(r"[\w.()]+\)")
_FOR = re.compile(r"(.*?)\s+in\b", re.DOTALL)
_AS = re.compile(r"\bas\s+\w+\s*$")
_CONTINUES = frozenset({"elif", "else", "except", "finally"})
_NESTED = re.compile(r"def\s+(\w+)\s*\(")
_NO_EXPRESSION = re.compile(r"(?:assert|del|global|nonlocal|import|from|pass|type)\b")


class _Text(NamedTuple):
    text: str
    masked: str
    line: int  # of the first character
    marks: list[int]  # where something is that could skip or leave

    def code(self, start: int, end: int) -> str:
        return lexer.code(self.text, self.masked, start, end)

    def is_kept(self, start: int, end: int) -> bool:
        """Tell whether something between two offsets could skip or leave."""
        first = bisect_left(self.marks, start)
        return first < len(self.marks) and self.marks[first] < end

    def line_at(self, offset: int) -> int:
        return self.line + self.text.count("\n", 0, offset)


def cut_body(function: Function, mentions: Mention) -> Body:
    """Return what of a function's body could skip, by a lexical cut of its text."""
    text = function.body.strip()
    plain = lexer.PLAIN.fullmatch(text)
    if plain is not None and plain[3] is not None and not iskeyword(plain[1]):  # self.skipTest("why")
        return (("do", text, function.body_line),) if is_kept(f"{plain[1]}()", mentions) else ()
    if _CALLS.fullmatch(text) and not _LEAVE.match(text):  # super().test_forward()
        return (("do", text, function.body_line),) if is_kept(text, mentions) else ()
    masked = lexer.mask(function.body)
    kept = with_nested(masked, mentions)
    patterns = (*kept.skips, *kept.delegates, *_LEAVES)  # one by one: each begins with literal text
    marks = sorted([mark.start() for pattern in patterns for mark in pattern.finditer(masked)])
    return _block(_Text(function.body, masked, function.body_line, marks), 0, len(masked))


def with_nested(masked: str, mentions: Mention) -> Mention:
    """Return patterns that also find calls of the functions defined in a body, which could skip when called."""
    names = set(_NESTED.findall(masked)) if "def" in masked else ()
    calls = tuple(re.compile(rf"{re.escape(name)}\(") for name in sorted(names))
    return mentions._replace(delegates=(*mentions.delegates, *calls)) if calls else mentions


def is_kept(masked: str, mentions: Mention) -> bool:
    """Tell whether a simple statement is kept, from its text with strings and comments blanked."""
    return _LEAVE.match(masked) is not None or mentions.keeps("test", masked)


def _block(source: _Text, start: int, end: int) -> Body:
    if not source.is_kept(start, end):
        return ()
    body: list[tuple[Any, ...]] = []
    for chain in _chains(lexer.statements(source.masked, start, end)):
        head = chain[0]
        if head.kind == "":
            body.extend(_simple(source, head.start, head.header_end))
        elif head.kind in _COMPOUND:
            body.extend(_COMPOUND[head.kind](source, chain))
    return tuple(body)


def _chains(statements: list[lexer.Statement]) -> Iterator[list[lexer.Statement]]:
    """Yield each statement with the ``elif``, ``else``, ``except`` and ``finally`` that belong to it."""
    chain: list[lexer.Statement] = []
    for statement in statements:
        if statement.kind not in _CONTINUES and chain:
            yield chain
            chain = []
        chain.append(statement)
    if chain:
        yield chain


def _simple(source: _Text, start: int, end: int) -> Iterator[tuple[Any, ...]]:
    marks = lexer.top_level(source.masked, start, end, ";") if source.masked.find(";", start, end) >= 0 else []
    for begin, finish in zip([start, *(mark + 1 for mark in marks)], [*marks, end], strict=True):
        if not source.is_kept(begin, finish):
            continue
        piece = source.masked[begin:finish].strip()
        if not piece or _NO_EXPRESSION.match(piece):
            continue
        at = begin + len(source.masked[begin:finish]) - len(source.masked[begin:finish].lstrip())
        line, leave = source.line_at(at), _LEAVE.match(piece)
        if leave is None:
            yield ("do", source.code(_value_start(source.masked, at, finish), finish), line)
        else:
            word, text = leave.group(1), source.code(at + leave.end(), finish)
            yield left(word, text, piece, line)


def left(word: str, text: str, masked: str, line: int) -> tuple[Any, ...]:
    """Return the statement that leaves a body; a returned value that calls nothing is dropped."""
    if word == "raise":
        return ("raise", text, line)
    if word == "return":
        return ("return", text if "(" in masked else "", line)
    return ("leave", "", line)


def _value_start(masked: str, start: int, end: int) -> int:
    """Return where the value of an assignment begins, or the expression that is no assignment."""
    value = start
    for mark in lexer.top_level(masked, start, end, "="):
        before, after = masked[mark - 1], masked[mark + 1 : mark + 2]
        if after == "=" or before in "=!<>:":
            if masked[mark - 2 : mark] in {"<<", ">>"}:
                value = mark + 1
            continue
        value = mark + 1
    return value


def _suite(source: _Text, statement: lexer.Statement) -> Body:
    start = statement.header_end
    if source.masked.startswith("\n", start):
        return _block(source, start + 1, statement.end)
    return tuple(_simple(source, start, lexer.line_end(source.masked, start, statement.end)))


def _header(source: _Text, statement: lexer.Statement) -> tuple[int, int]:
    """Return the span between a compound statement's keyword and its colon."""
    found = _HEADER.match(source.masked, statement.start)
    end = len(source.masked[: statement.header_end].rstrip()) - 1
    return (found.end() if found else statement.start), end


def _if(source: _Text, chain: list[lexer.Statement]) -> Iterator[tuple[Any, ...]]:
    branches = [(source.code(*_header(source, branch)), _suite(source, branch)) for branch in chain]
    orelse: Body = branches.pop()[1] if chain[-1].kind == "else" and len(chain) > 1 else ()
    for test, body in reversed(branches):
        orelse = ((chain[0].kind, test, body, orelse),) if body or orelse else ()
    yield from orelse


def _for(source: _Text, chain: list[lexer.Statement]) -> Iterator[tuple[Any, ...]]:
    start, end = _header(source, chain[0])
    found = _FOR.match(source.masked, start, end)
    iterable = source.code(found.end() if found else start, end)
    body, orelse = _suite(source, chain[0]), _suite(source, chain[1]) if len(chain) > 1 else ()
    if body or orelse:
        yield ("for", iterable, body, orelse)


def _try(source: _Text, chain: list[lexer.Statement]) -> Iterator[tuple[Any, ...]]:
    suites = {branch.kind: _suite(source, branch) for branch in chain if branch.kind != "except"}
    handlers = tuple(
        (_AS.sub("", source.code(*_header(source, branch))).strip(), _suite(source, branch))
        for branch in chain
        if branch.kind == "except"
    )
    orelse, final = suites.get("else", ()), suites.get("finally", ())
    if any((suites["try"], *(body for _, body in handlers), orelse, final)):
        yield ("try", suites["try"], handlers, orelse, final)


def _with(source: _Text, chain: list[lexer.Statement]) -> Iterator[tuple[Any, ...]]:
    body = _suite(source, chain[0])
    if body:
        is_case = chain[0].kind == "case"
        yield ("maybe", source.code(*_header(source, chain[0])), body) if is_case else ("with", "", body)


def _match(source: _Text, chain: list[lexer.Statement]) -> Iterator[tuple[Any, ...]]:
    yield from _suite(source, chain[0])


def _def(source: _Text, chain: list[lexer.Statement]) -> Iterator[tuple[Any, ...]]:
    start, end = _header(source, chain[0])
    body = _suite(source, chain[0])
    if body:
        yield ("def", re.split(r"\W", source.masked[start:end], maxsplit=1)[0], body)


_COMPOUND = {
    "if": _if,
    "while": _if,
    "for": _for,
    "try": _try,
    "with": _with,
    "match": _match,
    "case": _with,
    "def": _def,
}
