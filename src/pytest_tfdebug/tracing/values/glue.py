"""The lines between two calls: glue, the code of a forward that no child's call covers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_tfdebug.records import SourceRange
from pytest_tfdebug.tracing.values.slicing import function_at, innermost_loop, statement_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_tfdebug.records import Call, Site


def glue_lines(
    parent: Call, previous: Call | None, following: Call | None, earlier: Sequence[Call] = ()
) -> SourceRange | None:
    """Return the lines of ``parent``'s forward between two of its children's calls.

    The statements that hold the two calls belong to the range: what is added to one call's result, or computed in the
    other's arguments, stands there. So do earlier statements that feed the second call past the first (a residual that
    is kept, a projection that is reshaped). Where the second call stands above the first, they are turns of a loop,
    and the range is that loop.
    """
    before, after = _same_function(previous, following)
    site = before or after
    if site is None:
        return parent.source
    function = function_at(site)
    if function is None:
        return SourceRange(
            site.file, before.line if before else site.first_line, after.end_line if after else site.last_line
        )
    if before and after and after.line <= before.line:
        loop = innermost_loop(function.tree, after.line, before.line)
        if loop is not None:
            return SourceRange(site.file, *loop)
        before, after = after, before
    first = statement_at(function.tree, before.line)[0] if before else function.first
    last = statement_at(function.tree, after.end_line)[1] if after else function.last
    if before:
        covered = [call.inner_site or call.site for call in earlier]
        calls = {place.line for place in covered if place is not None and place.file == site.file}
        first = min(first, *function.lines_feeding(after, calls, before.end_line), last)
    return SourceRange(site.file, first, max(first, last))


def _same_function(previous: Call | None, following: Call | None) -> tuple[Site | None, Site | None]:
    """Return the two call sites in one function: the helper method that holds both, or else the forward."""
    inner = [call.inner_site or call.site for call in (previous, following) if call is not None]
    if len(inner) == 2 and inner[0] and inner[1] and _function(inner[0]) == _function(inner[1]):  # noqa: PLR2004
        return inner[0], inner[1]
    return (previous.site if previous else None), (following.site if following else None)


def _function(site: Site) -> tuple[str, int]:
    return site.file, site.first_line
