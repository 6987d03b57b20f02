"""The lines between two calls: glue, the code of a forward that no child's call covers."""

from __future__ import annotations

import ast
import linecache
from functools import lru_cache
from typing import TYPE_CHECKING

from pytest_tfdebug.records import SourceRange

if TYPE_CHECKING:
    from pytest_tfdebug.records import Call, Site


def glue_lines(parent: Call, previous: Call | None, following: Call | None) -> SourceRange | None:
    """Return the lines of ``parent``'s forward between two of its children's calls.

    The statements that hold the two calls belong to the range: what is added to one call's result, or computed in the
    other's arguments, stands there. Where the second call stands above the first, they are turns of a loop, and the
    range is that loop.

    Args:
        parent: The call whose forward is meant.
        previous: Its last child call before the glue; None for the glue from the beginning.
        following: Its first child call after the glue; None for the glue to the end.

    Returns:
        The lines, or None where the source is not known.
    """
    before, after = _same_function(previous, following)
    site = before or after
    if site is None:
        return parent.source
    tree = _parse(site.file)
    if before and after and after.line <= before.line:
        loop = _innermost(tree, (ast.For, ast.AsyncFor, ast.While), (after.line, before.line))
        if loop is not None:
            return SourceRange(site.file, *loop)
        before, after = after, before
    first = _statement(tree, before.line)[0] if before else _body_start(tree, site)
    last = _statement(tree, after.end_line)[1] if after else site.last_line
    return SourceRange(site.file, first, max(first, last))


def _same_function(previous: Call | None, following: Call | None) -> tuple[Site | None, Site | None]:
    """Return the two call sites in one function: the helper method that holds both, or else the forward."""
    inner = [call.inner_site or call.site for call in (previous, following) if call is not None]
    if len(inner) == 2 and inner[0] and inner[1] and _function(inner[0]) == _function(inner[1]):  # noqa: PLR2004
        return inner[0], inner[1]
    return (previous.site if previous else None), (following.site if following else None)


def _function(site: Site) -> tuple[str, int]:
    return site.file, site.first_line


@lru_cache(maxsize=64)
def _parse_text(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except SyntaxError:
        return None


def _parse(file: str) -> ast.Module | None:
    return _parse_text("".join(linecache.getlines(file)))


def _innermost(
    tree: ast.Module | None, kinds: type[ast.AST] | tuple[type[ast.AST], ...], lines: tuple[int, ...]
) -> tuple[int, int] | None:
    """Return the extent of the smallest node of some kinds that holds all the lines."""
    found = [
        (node.lineno, node.end_lineno or node.lineno)  # type: ignore[attr-defined] # statements have positions
        for node in ast.walk(tree or ast.Module(body=[], type_ignores=[]))
        if isinstance(node, kinds) and all(node.lineno <= line <= (node.end_lineno or 0) for line in lines)  # type: ignore[attr-defined]
    ]
    return min(found, key=lambda extent: extent[1] - extent[0], default=None)


#: Statements that hold no other statement.
_SIMPLE = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Return, ast.Assert, ast.Raise, ast.Delete)


def _statement(tree: ast.Module | None, line: int) -> tuple[int, int]:
    return _innermost(tree, _SIMPLE, (line,)) or (line, line)


def _body_start(tree: ast.Module | None, site: Site) -> int:
    for node in ast.walk(tree or ast.Module(body=[], type_ignores=[])):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.lineno <= site.line <= (
            node.end_lineno or 0
        ):
            decorated = min((item.lineno for item in node.decorator_list), default=node.lineno)
            if site.first_line in (decorated, node.lineno):
                body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
                return body[0].lineno
    return site.first_line
