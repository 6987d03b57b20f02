"""Which names a function binds, and so are local in all of it."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import libcst as cst

from pytest_tfdebug.scan.syntax import walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.scan.bindings import Function

#: Nodes with names in them that are bound.
_BINDERS = (
    cst.AssignTarget, cst.AnnAssign, cst.AugAssign, cst.For, cst.CompFor, cst.AsName, cst.NamedExpr, cst.ImportAlias,
)  # fmt: skip


def is_local(name: str, function: Function) -> bool:
    """Tell whether a function binds a name, other than as a parameter."""
    return name in function.text and name in _bound(function)


@cache
def _bound(function: Function) -> frozenset[str]:
    nodes = walk(function.node.body) if function.node is not None else ()
    return frozenset(name for node in nodes if isinstance(node, _BINDERS) for name in _names(node))


def _names(node: Any) -> Iterator[str]:  # noqa: ANN401 - libcst is not typed here
    """Yield the names that a node binds."""
    if isinstance(node, cst.ImportAlias):
        if node.asname is None:
            yield node.evaluated_name.partition(".")[0]
    elif isinstance(node, cst.AsName):
        yield from _of_target(node.name)
    elif not isinstance(node, cst.AnnAssign) or node.value is not None:
        yield from _of_target(node.target)


def _of_target(target: Any) -> Iterator[str]:  # noqa: ANN401
    if isinstance(target, cst.Name):
        yield target.value
    elif isinstance(target, (cst.Tuple, cst.List)):
        for element in target.elements:
            yield from _of_target(element.value)
