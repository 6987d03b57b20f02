"""What of a function's body could skip, from its libcst tree: what the cut of bodies is held to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_tfdebug.scan import lexer
from pytest_tfdebug.scan.bodies import is_kept, left, with_nested

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_tfdebug.scan.bodies import Body
    from pytest_tfdebug.scan.exact import Parsed
    from pytest_tfdebug.scan.facts import Function, Mention


def exact_body(function: Function, mentions: Mention) -> Body:
    """Return what of a function's body could skip, by parsing all of it."""
    from pytest_tfdebug.scan.exact import Parsed

    indented = function.body[:1] in {" ", "\t"}
    head = "if 1:\n" if indented else "if 1:"
    parsed = Parsed.of(f"{head}{function.body}\n")
    found = with_nested(lexer.mask(function.body), mentions)
    reader = _Reader(parsed, found, function.body_line - (2 if indented else 1))
    return reader.suite(parsed.module.body[0].body)


class _Reader:
    """Turns libcst statements into those of a body."""

    def __init__(self, parsed: Parsed, mentions: Mention, line: int) -> None:
        self._parsed, self._mentions, self._line = parsed, mentions, line

    def suite(self, suite: Any) -> Body:  # noqa: ANN401 - libcst is not typed here
        """Return the statements of an indented block or of a one-line body."""
        kind = type(suite).__name__
        return tuple(self._block(suite.body) if kind == "IndentedBlock" else self._simple(suite.body))

    def _block(self, statements: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        for node in statements:
            kind = type(node).__name__
            if kind == "SimpleStatementLine":
                yield from self._simple(node.body)
            elif kind in _COMPOUND:
                yield from _COMPOUND[kind](self, node)

    def _simple(self, smalls: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        for node in smalls:
            masked = lexer.mask(self._parsed.code(node))
            if not is_kept(masked, self._mentions):
                continue
            line = self._parsed.line(node) + self._line
            kind = type(node).__name__
            if kind in _LEAVE:
                attribute = {"Raise": "exc", "Return": "value"}.get(kind)
                value = getattr(node, attribute) if attribute else None
                text = self._parsed.code(value) if value is not None else ""
                if kind == "Raise" and node.cause is not None:
                    text = self._parsed.code(node).removeprefix("raise").strip()
                yield left(_LEAVE[kind], text, masked, line)
            elif kind in {"Expr", "Assign", "AnnAssign", "AugAssign"} and node.value is not None:
                yield ("do", self._parsed.code(node.value), line)

    def branch(self, node: Any) -> Iterator[tuple[Any, ...]]:  # noqa: ANN401
        """Yield an ``if`` or ``while`` with its other branches."""
        kind = "if" if type(node).__name__ == "If" else "while"
        body, orelse = self.suite(node.body), self._orelse(node.orelse)
        if body or orelse:
            yield (kind, self._parsed.code(node.test), body, orelse)

    def _orelse(self, orelse: Any) -> Body:  # noqa: ANN401
        if orelse is None:
            return ()
        return tuple(self.branch(orelse)) if type(orelse).__name__ == "If" else self.suite(orelse.body)

    def loop(self, node: Any) -> Iterator[tuple[Any, ...]]:  # noqa: ANN401
        """Yield a ``for`` loop."""
        body, orelse = self.suite(node.body), self._orelse(node.orelse)
        if body or orelse:
            yield ("for", self._parsed.code(node.iter), body, orelse)

    def attempt(self, node: Any) -> Iterator[tuple[Any, ...]]:  # noqa: ANN401
        """Yield a ``try`` with its handlers."""
        body, orelse = self.suite(node.body), self._orelse(node.orelse)
        handlers = tuple(
            (self._parsed.code(handler.type) if handler.type else "", self.suite(handler.body))
            for handler in node.handlers
        )
        final = self.suite(node.finalbody.body) if node.finalbody else ()
        if any((body, *(block for _, block in handlers), orelse, final)):
            yield ("try", body, handlers, orelse, final)

    def context(self, node: Any) -> Iterator[tuple[Any, ...]]:  # noqa: ANN401
        """Yield a ``with`` block."""
        body = self.suite(node.body)
        if body:
            yield ("with", "", body)

    def match(self, node: Any) -> Iterator[tuple[Any, ...]]:  # noqa: ANN401
        """Yield the cases of a ``match``."""
        for case in node.cases:
            body = self.suite(case.body)
            if body:
                guard = f" if {self._parsed.code(case.guard)}" if case.guard else ""
                yield ("maybe", self._parsed.code(case.pattern) + guard, body)

    def function(self, node: Any) -> Iterator[tuple[Any, ...]]:  # noqa: ANN401
        """Yield a nested function."""
        body = self.suite(node.body)
        if body:
            yield ("def", node.name.value, body)


_LEAVE = {"Return": "return", "Raise": "raise", "Break": "break", "Continue": "continue"}
_COMPOUND = {
    "If": _Reader.branch,
    "While": _Reader.branch,
    "For": _Reader.loop,
    "Try": _Reader.attempt,
    "TryStar": _Reader.attempt,
    "With": _Reader.context,
    "Match": _Reader.match,
    "FunctionDef": _Reader.function,
}
