"""What earlier runs found out about files, by their content: after an edit only the edited file is read again."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_tfdebug.scan import facts

if TYPE_CHECKING:
    from pytest_tfdebug.scan.cache import Cache
    from pytest_tfdebug.scan.facts import Module
    from pytest_tfdebug.scan.syntax import Expr

_NAME = "facts"
#: The parts that a scan may have, each of which keeps what it found out.
_PARTS = 2


class Known(NamedTuple):
    """Facts of files by the digest of their content, and what expressions mean by their text."""

    files: dict[str, Module]
    expressions: dict[str, Expr]

    @classmethod
    def load(cls, cache: Cache) -> Known:
        """Return what a cache holds."""
        files: dict[str, Module] = {}
        expressions: dict[str, Expr] = {}
        for number in range(_PARTS):
            found = _load(cache.path(f"{_NAME}-{number}"))
            files.update(found[0])
            expressions.update(found[1])
        return cls(files, expressions)

    def keep(self, cache: Cache, number: int) -> None:
        """Keep what one part of a scan found out for the next run."""
        cache.keep(f"{_NAME}-{number}", [pickle.dumps(tuple(self), protocol=5)])


def _load(path: str) -> tuple[dict[str, Module], dict[str, Expr]]:
    try:
        with open(path, "rb") as file:
            files, expressions = _Unpickler(file).load()
        return dict(files), dict(expressions)
    except (OSError, EOFError, ValueError, TypeError, LookupError, AttributeError, pickle.UnpicklingError):
        return {}, {}


class _Unpickler(pickle.Unpickler):
    """Reads facts and nothing else: no other class is ever imported."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401
        """Return a class of the facts."""
        if module == facts.__name__ and name in _FACTS:
            return getattr(facts, name)
        if (module, name) == ("builtins", "frozenset"):
            return frozenset
        raise pickle.UnpicklingError(f"{module}.{name} is not a fact")


_FACTS = frozenset({"Class", "Decorator", "Function", "Import", "Module", "Value"})
