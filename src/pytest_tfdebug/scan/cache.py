"""What earlier runs found out, in the user's cache directory.

Two things are kept for a repository: its last answers, each with every question that was asked of the tree on the way,
so that an answer stands as long as the tree would reply as before; and the facts of each file by the hash of its
content, so that after an edit only the edited file is read again. Each is one file, replaced atomically: of concurrent
runs the last one wins, and every one of them reads a whole file.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_tfdebug.scan import facts
from pytest_tfdebug.scan.answer import Answer
from pytest_tfdebug.scan.tree import Record, digest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_tfdebug.scan.facts import Module
    from pytest_tfdebug.scan.syntax import Expr
    from pytest_tfdebug.scan.tree import Tree

_SEPARATOR = b"\n"


class Known(NamedTuple):
    """Facts of files by the digest of their content, and what expressions mean by their text."""

    files: dict[bytes, Module]
    expressions: dict[str, Expr]

    @classmethod
    def joined(cls, parts: Iterable[Known]) -> Known:
        """Return all that is known of several."""
        files: dict[bytes, Module] = {}
        expressions: dict[str, Expr] = {}
        for part in parts:
            files |= part.files
            expressions |= part.expressions
        return cls(files, expressions)


def directory() -> Path:
    """Return the user's cache directory of this package.

    Source:
        https://specifications.freedesktop.org/basedir-spec/latest/ and its equivalents on macOS and Windows.
    """
    home = os.path.expanduser("~")
    default = {"darwin": f"{home}/Library/Caches", "win32": f"{home}/AppData/Local"}.get(sys.platform, f"{home}/.cache")
    variable = "LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME"
    return Path(os.environ.get(variable) or default) / "pytest-tfdebug" / "scan"


class Cache:
    """The cache of one repository.

    Args:
        root: The repository.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._directory = directory() / digest(f"{self._root}\0{_version()}".encode()).hex()

    def answer(self, name: str, tree: Tree) -> Answer | None:
        """Return an earlier answer if the tree still replies to all its questions as before.

        Args:
            name: The name of the answer.
            tree: The tree.
        """
        try:
            content = (self._directory / f"{name}.answer").read_bytes()
            head, _, report = content.partition(_SEPARATOR)
            kept = json.loads(head)
            return Answer(name, [report], *kept["about"]) if Record(*kept["record"]).holds(tree) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def keep_answer(self, answer: Answer, record: Record) -> None:
        """Keep an answer with the questions that it rests on."""
        head = json.dumps({"record": record, "about": answer[2:]}, separators=(",", ":")).encode()
        self._replace(f"{answer.name}.answer", [head, _SEPARATOR, *answer.json])

    def known(self) -> Known:
        """Return the facts of earlier runs."""
        try:
            with open(self._directory / "facts", "rb") as file:
                files, expressions = _Unpickler(file).load()
            return Known(dict(files), dict(expressions))
        except (OSError, EOFError, ValueError, TypeError, LookupError, AttributeError, pickle.UnpicklingError):
            return Known({}, {})

    def keep(self, known: Known) -> None:
        """Keep the facts of this run."""
        self._replace("facts", [pickle.dumps(tuple(known), protocol=5)])

    def _replace(self, name: str, pieces: list[bytes]) -> None:
        """Write a file of the cache; a cache that cannot be written is no error."""
        temporary = ""
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self._directory, prefix=f".{name}.")
            with os.fdopen(handle, "wb") as file:
                file.writelines(pieces)
            os.replace(temporary, self._directory / name)
        except OSError:
            if temporary:
                Path(temporary).unlink(missing_ok=True)


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


def _version() -> str:
    """Return what changes whenever this package, libcst or Python does."""
    here = os.path.dirname(__file__)
    with os.scandir(here) as entries:
        sources = sorted((entry.name, entry.stat().st_mtime_ns) for entry in entries if entry.name.endswith(".py"))
    libcst = importlib.util.find_spec("libcst")
    stamp = os.stat(libcst.origin).st_mtime_ns if libcst is not None and libcst.origin is not None else 0
    return f"{sources}{stamp}{sys.version_info}"
