"""What one side of a comparison has recorded: a call that it left out is no evidence against the other side."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from pytest_tfdebug.records import Call, Site, Write


class RecordedModules:
    """The modules of one side that were recorded.

    A module that this side does not have is taken to be recorded if one of those beside it is.
    """

    def __init__(
        self,
        modules: Iterable[str],
        aliases: Mapping[str, tuple[str, ...]],
        unrecorded: Collection[str],
        rename: Callable[[str], str] = str,
    ) -> None:
        self._is_whole, left_out = not unrecorded, set(unrecorded)
        names = ((path, name) for path in modules if left_out for name in (path, *aliases.get(path, ())))
        self._recorded = {rename(name): path not in left_out for path, name in names}
        self._with_recorded = {_outer(path) for path, is_recorded in self._recorded.items() if is_recorded}

    def has(self, path: str) -> bool:
        """Tell whether this side would have recorded a module, by its path on the expected side."""
        return self._is_whole or self._recorded.get(path, _outer(path) in self._with_recorded)

    def among(self, names: Mapping[str, str]) -> set[str]:
        """Return the modules of the other side that this one would have recorded."""
        return {path for path, name in names.items() if self.has(name)}

    def common(self, calls: list[Call], rename: Callable[[str], str] = str) -> list[Call]:
        """Return those of the other side's calls that this side would have recorded.

        The calls inside of one that is left out become its caller's, as if the other side had been recorded in the
        same way: their line is the one that called it, and the line that really called them that of a helper. What it
        wrote into caches its caller wrote.
        """
        if self._is_whole:
            return calls
        kept: list[Call] = []
        begun: dict[int | None, list[tuple[int, int]]] = {}
        moved: list[tuple[int, Write, int | None]] = []
        inside: dict[int | None, tuple[int | None, Site | None]] = {None: (None, None)}
        for call in calls:
            parent, outer_site = inside[call.parent]
            site = outer_site or call.site
            if parent is not None and not self.has(rename(call.path)):
                inside[call.index] = parent, site
                moved += [(parent, write, call.index) for write in call.writes]
                continue
            inner_site = call.inner_site or call.site if outer_site else call.inner_site
            depth = 0 if parent is None else kept[parent].depth + 1
            inside[call.index] = len(kept), None
            moved += [(len(kept), write, write.before) for write in call.writes]
            begun.setdefault(parent, []).append((call.index, len(kept)))
            kept.append(
                replace(call, index=len(kept), parent=parent, depth=depth, site=site, inner_site=inner_site, writes=())
            )
        for owner, write, since in moved:
            later = (here for there, here in begun.get(owner, ()) if since is not None and there >= since)
            kept[owner].writes += (write._replace(before=next(later, None)),)
        return kept


def _outer(path: str) -> str:
    return path.rpartition(".")[0]
