"""The meaning of source text, each text once: by Python's own parser, and where that does not tell, by libcst."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_tfdebug.scan.bodies import cut_body
from pytest_tfdebug.scan.errors import BadSourceError
from pytest_tfdebug.scan.quick import quick

if TYPE_CHECKING:
    from pytest_tfdebug.scan.bodies import Body
    from pytest_tfdebug.scan.facts import Function, Mention
    from pytest_tfdebug.scan.syntax import Expr


class Parser:
    """Parses expressions and bodies, and remembers them.

    Args:
        known: Meanings from an earlier run, by text; grows as texts are parsed.
        is_exact: Parse everything with libcst, plain expressions and bodies too.
    """

    def __init__(self, known: dict[str, Expr] | None = None, *, is_exact: bool = False) -> None:
        self.known = {} if known is None else known
        self._is_exact = is_exact
        self._bodies: dict[tuple[str, int], Body] = {}
        self._plain: dict[str, Expr] = {}

    def expression(self, text: str) -> Expr:
        """Return the meaning of an expression; text that is none means nothing."""
        found = self._plain.get(text) or self.known.get(text)
        if found is not None:
            return found
        form = None if self._is_exact else quick(text)
        if form is not None:
            self._plain[text] = form
            return form
        from pytest_tfdebug.scan.syntax import parse

        try:
            self.known[text] = parse(text)
        except BadSourceError:
            self.known[text] = ("code", text)
        return self.known[text]

    def body(self, path: str, function: Function, mentions: Mention) -> Body:
        """Return what of a function's body could skip."""
        key = (path, function.body_line)
        if key not in self._bodies:
            if self._is_exact:
                from pytest_tfdebug.scan.exact_bodies import exact_body

                self._bodies[key] = exact_body(function, mentions)
            else:
                self._bodies[key] = cut_body(function, mentions)
        return self._bodies[key]
