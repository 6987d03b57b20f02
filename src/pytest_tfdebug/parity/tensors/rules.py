"""Rules of ``rename=`` and ``tolerance=`` that match nothing: whoever misspelt one is told, with the nearest path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.parity.pair.rename import rules_of
from pytest_tfdebug.parity.tensors.tolerance import DEFAULTS
from pytest_tfdebug.tracing.record.modules import MEANING, matches, nearest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pytest_tfdebug.parity.pair.rename import Rename, Rule
    from pytest_tfdebug.tracing.trace import Trace


def check_rules(rename: Rename, globs: Iterable[str], port: Collection[str], reference: Collection[str]) -> None:
    """Refuse rules that match nothing."""
    for rule in rules_of(rename) if isinstance(rename, Mapping) else ():
        _check_rename(rule, port, reference)
    for glob in globs:
        if (hint := missed(glob, port)) is not None:
            raise TFDebugError(f"tolerance: no module of the port matches {glob!r} ({MEANING}).{hint}")


def missed(glob: str, paths: Collection[str]) -> str | None:
    """Return a hint on a glob of ``tolerances`` that matches none of some paths; None where it matches one."""
    return None if any(matches(path, glob) for path in paths) else nearest(glob, [*paths, *DEFAULTS])


def paths_of(trace: Trace) -> set[str]:
    """Return the module paths of a traced model, those of shared modules and the root's name included."""
    others = (path for paths in trace.aliases.values() for path in paths)
    return {trace.model_class, *trace.modules, *others, *(call.path for call in trace.calls)}


def _check_rename(rule: Rule, port: Collection[str], reference: Collection[str]) -> None:
    named = [name for path in port if (name := rule.apply(path)) is not None]
    if not named:
        raise TFDebugError(
            f"rename: no module of the port matches {rule.source!r} ({MEANING}).{nearest(rule.source, port)}"
        )
    if not any(name in reference or not name for name in named):
        wanted = min(named, key=lambda name: (name.count("."), name))
        raise TFDebugError(
            f"rename: {rule.source!r} -> {rule.target!r} names no module of the reference: it has no {wanted!r}."
            f"{nearest(wanted, reference)}"
        )
