"""The statements of a port's function in the reference's names: what is only called otherwise is no difference.

::

    port                                  reference                             port, in the reference's names
    def forward(self, x, mask):           def forward(self, hidden, mask):      def forward(self, hidden, mask):
        for block in self.blocks:             for layer in self.layers:             for layer in self.layers:
            x = block(x, mask)                    hidden = layer(hidden, mask)          hidden = layer(hidden)

A name that both functions use means itself, so that two names that a port exchanges stay a difference. Another
one means the name that stands in its place in most of the statements of the same shape, if the port does not use that.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


class Clause(NamedTuple):
    """A simple statement, or the head of one that holds others."""

    first: int
    last: int
    text: str
    kind: str  # of a statement whose head these are; empty for a simple statement
    nodes: tuple[ast.AST, ...]


def statement(node: ast.stmt, last: int | None, *parts: ast.AST) -> Clause:
    """Return a statement of a function, or the parts of its head."""
    kind = "" if parts == (node,) else type(node).__name__
    return Clause(node.lineno, last or node.lineno, _text(kind, parts), kind, parts)


def texts_in_names_of(mine: Sequence[Clause], theirs: Sequence[Clause]) -> list[str]:
    """Return the texts of a port's statements with its local names replaced by those of the reference's."""
    renamed = _renames(mine, theirs)
    return (
        [_spelt(each, lambda name: renamed.get(name, name)) for each in mine] if renamed else [it.text for it in mine]
    )


def _renames(mine: Sequence[Clause], theirs: Sequence[Clause]) -> Mapping[str, str]:
    """Return the reference's name for each name of a port that the reference does not use."""
    tokens, others = _tokens(mine), _tokens(theirs)
    own, other = {name for each in tokens for name in each}, {name for each in others for name in each}
    if own <= other:
        return {}
    votes = Counter[tuple[str, str]]()
    for block in SequenceMatcher(
        None, _shapes(mine, own), _shapes(theirs, other), autojunk=False
    ).get_matching_blocks():
        for step in range(block.size):
            votes.update(zip(tokens[block.a + step], others[block.b + step], strict=True))
    found: dict[str, str] = {}
    for (name, meant), _ in votes.most_common():
        if name not in other and meant not in own and name not in found and meant not in found.values():
            found[name] = meant
    return found


def _shapes(statements: Sequence[Clause], local: set[str]) -> list[str]:
    return [_spelt(each, lambda name: "_" if name in local else name) for each in statements]


def _tokens(statements: Sequence[Clause]) -> list[list[str]]:
    """Return the local names and attributes of ``self`` that each statement uses, as often as it does."""
    local = {name for each in statements for name in _bound(each)}
    found: list[list[str]] = []
    for each in statements:
        used: list[str] = []

        def note(name: str, used: list[str] = used) -> str:
            if name in local or name.startswith("self."):
                used.append(name)
            return name

        _spelt(each, note)
        found.append(used)
    return found


def _bound(statement: Clause) -> Iterator[str]:
    """Yield the names to which a statement gives a value; the variables of comprehensions are renamed already."""
    for node in (node for part in statement.nodes for node in ast.walk(part)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg) and node.arg != "self":
            yield node.arg


def _text(kind: str, parts: Sequence[ast.AST]) -> str:
    """Return the text of some parts; the variables of comprehensions are numbered, whatever they are called."""
    variables = [
        name.id
        for part in parts
        for node in ast.walk(part)
        if isinstance(node, ast.comprehension)
        for name in ast.walk(node.target)
        if isinstance(name, ast.Name)
    ]
    if variables:
        numbered = {name: f"_{place}" for place, name in enumerate(dict.fromkeys(variables))}
        parts = [_Spelling(lambda name: numbered.get(name, name)).visit(copy.deepcopy(part)) for part in parts]
    return "; ".join([kind, *map(ast.unparse, parts)])


def _spelt(statement: Clause, name: Callable[[str], str]) -> str:
    parts = [_Spelling(name).visit(copy.deepcopy(part)) for part in statement.nodes]
    return _text(statement.kind, parts)


class _Spelling(ast.NodeTransformer):
    """Spells each name, and each attribute of ``self``, as a function says."""

    def __init__(self, name: Callable[[str], str]) -> None:
        self._name = name

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self._name(node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.arg = self._name(node.arg)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            node.attr = self._name(f"self.{node.attr}").removeprefix("self.")
            return node
        return self.generic_visit(node)
