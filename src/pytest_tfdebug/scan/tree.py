"""Where files come from: the work tree, or a revision of it that is never checked out."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pytest_tfdebug.scan.errors import BadSourceError, ScanError

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

#: Directories that hold no tests and may hold a great many files.
_PRUNED = frozenset({".git", "node_modules", "__pycache__", "site-packages", "build", "dist"})


class Tree(Protocol):
    """The files of a repository, by posix path relative to its root."""

    def files(self, under: str) -> Iterator[str]:
        """Yield every path below a directory, files and what stands in a file's place alike."""

    def is_file(self, path: str) -> bool:
        """Tell whether a path is a file."""

    def is_dir(self, path: str) -> bool:
        """Tell whether a path is a directory."""

    def read(self, path: str) -> bytes:
        """Return a file's bytes.

        Raises:
            BadSourceError: If there is no such file to read.
        """


class DiskTree:
    """The work tree."""

    def __init__(self, root: Path) -> None:
        self._root = os.fspath(root)

    def files(self, under: str) -> Iterator[str]:
        """Yield every path below a directory; a directory named like a Python file is yielded too."""
        for directory, names, files in os.walk(os.path.join(self._root, under)):
            names[:] = sorted(name for name in names if name not in _PRUNED and not name.startswith("."))
            base = os.path.relpath(directory, self._root).replace(os.sep, "/")
            prefix = "" if base == "." else f"{base}/"
            yield from (f"{prefix}{name}" for name in sorted([*files, *(n for n in names if n.endswith(".py"))]))

    def is_file(self, path: str) -> bool:
        """Tell whether a path is a file."""
        return os.path.isfile(os.path.join(self._root, path))

    def is_dir(self, path: str) -> bool:
        """Tell whether a path is a directory."""
        return os.path.isdir(os.path.join(self._root, path))

    def read(self, path: str) -> bytes:
        """Return a file's bytes."""
        try:
            with open(os.path.join(self._root, path), "rb") as file:
                return file.read()
        except FileNotFoundError as error:
            is_link = os.path.islink(os.path.join(self._root, path))
            raise BadSourceError("broken symlink" if is_link else "no such file") from error
        except IsADirectoryError as error:
            raise BadSourceError("a directory, not a file") from error
        except OSError as error:
            raise BadSourceError(error.strerror or str(error)) from error


class Record(NamedTuple):
    """What a tree replied to every question of a scan: while it replies the same, the scan's answer stands."""

    listings: dict[str, str]
    files: dict[str, bool]
    directories: dict[str, bool]
    contents: dict[str, str]

    @classmethod
    def joined(cls, records: Iterable[Record]) -> Record:
        """Return one record of all replies."""
        return cls(
            *(
                {key: value for reply in replies for key, value in reply.items()}
                for replies in zip(*records, strict=True)
            )
        )

    def holds(self, tree: Tree) -> bool:
        """Tell whether a tree still replies the same."""
        return (
            all(_listed(list(tree.files(under))) == listed for under, listed in self.listings.items())
            and all(tree.is_file(path) == reply for path, reply in self.files.items())
            and all(tree.is_dir(path) == reply for path, reply in self.directories.items())
            and all(_digest(tree, path) == content for path, content in self.contents.items())
        )


class RecordingTree:
    """A tree that records its replies."""

    def __init__(self, tree: Tree) -> None:
        self.record = Record({}, {}, {}, {})
        self._tree = tree

    def files(self, under: str) -> Iterator[str]:
        """Yield every path below a directory."""
        paths = list(self._tree.files(under))
        self.record.listings[under] = _listed(paths)
        yield from paths

    def is_file(self, path: str) -> bool:
        """Tell whether a path is a file."""
        return self.record.files.setdefault(path, self._tree.is_file(path))

    def is_dir(self, path: str) -> bool:
        """Tell whether a path is a directory."""
        return self.record.directories.setdefault(path, self._tree.is_dir(path))

    def read(self, path: str) -> bytes:
        """Return a file's bytes."""
        try:
            content = self._tree.read(path)
        except BadSourceError as error:
            self.record.contents[path] = str(error)
            raise
        self.record.contents[path] = digest(content).hex()
        return content


def digest(content: bytes) -> bytes:
    """Return the hash of a file's content."""
    return hashlib.blake2b(content, digest_size=16).digest()


def _listed(paths: list[str]) -> str:
    return digest("\n".join(paths).encode(errors="surrogateescape")).hex()


def _digest(tree: Tree, path: str) -> str:
    try:
        return digest(tree.read(path)).hex()
    except BadSourceError as error:
        return str(error)


class GitTree:
    """A revision, read from git's object store."""

    def __init__(self, root: Path, revision: str) -> None:
        self._root = os.fspath(root)
        self._commit = self._resolved(revision)
        listing = self._git("ls-tree", "-r", "-z", "--name-only", self._commit)
        self._files = frozenset(path for path in listing.decode().split("\0") if path)
        self._dirs = frozenset(
            path[:index] for path in self._files for index, character in enumerate(path) if character == "/"
        )
        self._batch: subprocess.Popen[bytes] | None = None

    def _resolved(self, revision: str) -> str:
        self._git("rev-parse", "--git-dir")
        try:
            return self._git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").decode().strip()
        except ScanError as error:
            raise ScanError(f"{revision!r} is not a revision of {self._root}; `git branch -a` lists some.") from error

    def _git(self, *arguments: str) -> bytes:
        import subprocess

        try:
            done = subprocess.run(["git", "-C", self._root, *arguments], check=True, capture_output=True)  # noqa: S603, S607 - git, with arguments of our own
        except FileNotFoundError as error:
            raise ScanError("git is not installed; --base needs it.") from error
        except subprocess.CalledProcessError as error:
            raise ScanError(f"{self._root} is not a git repository: {error.stderr.decode().strip()}") from error
        return done.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._batch is not None:
            self._batch.communicate()

    def files(self, under: str) -> Iterator[str]:
        """Yield every path below a directory."""
        prefix = f"{under}/" if under else ""
        yield from sorted(path for path in self._files if path.startswith(prefix))

    def is_file(self, path: str) -> bool:
        """Tell whether a path is a file."""
        return path in self._files

    def is_dir(self, path: str) -> bool:
        """Tell whether a path is a directory."""
        return path in self._dirs

    def read(self, path: str) -> bytes:
        """Return a file's bytes."""
        if path not in self._files:
            raise BadSourceError("no such file")
        if self._batch is None:
            import subprocess

            self._batch = subprocess.Popen(  # noqa: S603 - git, with arguments of our own
                ["git", "-C", self._root, "cat-file", "--batch"],  # noqa: S607 - git is found on PATH, as everywhere
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        stdin, stdout = self._batch.stdin, self._batch.stdout
        if stdin is None or stdout is None:
            raise ScanError("git gives no answer.")
        stdin.write(f"{self._commit}:./{path}\n".encode())
        stdin.flush()
        header = stdout.readline().split()
        if len(header) != 3:  # noqa: PLR2004 - object, type and size
            raise BadSourceError("not in the revision")
        return stdout.read(int(header[2]) + 1)[:-1]
