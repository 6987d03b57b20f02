"""Where files come from: the work tree, or a revision of it that is never checked out."""

from __future__ import annotations

import os
import posixpath
from typing import TYPE_CHECKING, TypeAlias

from pytest_tfdebug.scan.errors import BadSourceError, ScanError
from pytest_tfdebug.scan.read.files import read

if TYPE_CHECKING:
    from collections.abc import Iterator

#: What a tree has said: a digest of each directory, whose path ends with a slash, and of each file, or why it cannot be
#: read. A scan's answer is valid as long as the tree says the same.
Record: TypeAlias = "dict[str, str]"
#: Directories that hold no tests and may hold a great many files.
_PRUNED = frozenset({".git", "node_modules", "__pycache__", "site-packages", "build", "dist"})
#: Bytes of a file that are read, of which no test file has a tenth, and symlinks that may lead to each other.
_MOST, _LINKS = 10_000_000, 40
#: Kinds of what stands in a directory; a linked directory is not gone through.
_FILE, _DIRECTORY, _LINKED, _OTHER = "", "/", "@", "?"
_FILES, _DIRECTORIES = frozenset({_FILE, _OTHER}), frozenset({_DIRECTORY, _LINKED})


class DiskTree:
    """The work tree; paths are posix paths relative to its root. Each directory is listed once and says what it has."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = _directory(root)
        self._listings: dict[str, dict[str, str]] = {}
        self._contents: Record = {}

    def files(self, under: str) -> Iterator[str]:
        """Yield every path below a directory; a directory named like a Python file is yielded too."""
        left = [under]
        while left:
            directory = left.pop()
            prefix, names = f"{directory}/" if directory else "", self._names(directory)
            yield from (f"{prefix}{name}" for name, kind in names.items() if kind in _FILES or name.endswith(".py"))
            inner = (name for name, kind in names.items() if kind == _DIRECTORY and name not in _PRUNED)
            left.extend(reversed([f"{prefix}{name}" for name in inner if not name.startswith(".")]))

    def is_file(self, path: str) -> bool:
        """Tell whether a path is a file."""
        directory, _, name = path.rpartition("/")
        return self._names(directory).get(name) == _FILE

    def is_dir(self, path: str) -> bool:
        """Tell whether a path is a directory."""
        directory, _, name = path.rpartition("/")
        return not path or self._names(directory).get(name) in _DIRECTORIES

    def is_inside(self, path: str) -> bool:
        """Tell whether a file stands in the tree, also where links lead to it."""
        root = os.path.realpath(self._root)
        return os.path.commonpath([root, os.path.realpath(os.path.join(root, path))]) == root

    def read(self, path: str) -> bytes:
        """Return a file's bytes; BadSourceError if there is no such file to read."""
        try:
            content = self._bytes(path)
        except BadSourceError as error:
            self._contents[path] = str(error)
            raise
        self._contents[path] = digest(content)
        return content

    def _bytes(self, path: str) -> bytes:
        try:
            return read(os.path.join(self._root, path), _MOST)
        except FileNotFoundError as error:
            is_link = os.path.islink(os.path.join(self._root, path))
            raise BadSourceError("broken symlink" if is_link else "no such file") from error
        except IsADirectoryError as error:
            raise BadSourceError("a directory, not a file") from error
        except (OSError, ValueError) as error:
            raise BadSourceError(getattr(error, "strerror", None) or str(error)) from error

    @property
    def record(self) -> Record:
        """What the tree has said so far."""
        return {f"{path}/": _summary(names) for path, names in self._listings.items()} | self._contents

    def still_says(self, record: Record) -> bool:
        """Tell whether the tree says what it said in a record."""
        return all(self._said(path) == said for path, said in record.items())

    def _said(self, path: str) -> str:
        try:
            return _summary(self._listed(path[:-1])) if path.endswith("/") else digest(self._bytes(path))
        except BadSourceError as error:
            return str(error)

    def _names(self, directory: str) -> dict[str, str]:
        """Return what a directory held the first time; nothing where there is no such directory."""
        if directory not in self._listings:
            if not self.is_dir(directory):
                return {}
            self._listings[directory] = self._listed(directory)
        return self._listings[directory]

    def _listed(self, directory: str) -> dict[str, str]:
        """Return the kind of each module or package that could stand in a directory; none if it cannot be read."""
        try:
            with os.scandir(os.path.join(self._root, directory)) as entries:
                found = sorted((each.name, _kind(each)) for each in entries)
        except OSError:
            return {}
        seen = ((name, kind) for name, kind in found if not name.startswith((".", "__pycache__")))
        return {name: kind for name, kind in seen if kind in _DIRECTORIES or name.endswith(".py")}


def _kind(entry: os.DirEntry[str]) -> str:
    try:
        if entry.is_dir():
            return _LINKED if entry.is_symlink() else _DIRECTORY
        return _FILE if entry.is_file() else _OTHER
    except OSError:  # a symlink that leads to itself
        return _OTHER


def digest(content: bytes) -> str:
    """Return the hash of a file's content."""
    import hashlib  # which takes 2.5 ms, and is not needed to say what is wrong with an option

    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _summary(names: dict[str, str]) -> str:
    return digest("\n".join([name + kind for name, kind in names.items()]).encode(errors="surrogateescape"))


def _directory(root: str | os.PathLike[str]) -> str:
    if not os.path.isdir(root):
        raise ScanError(f"{root} is not a directory; name the root of a repository with --repo.")
    return os.fspath(root)


def _git(root: str, *arguments: str, given: bytes | None = None) -> bytes:
    from pytest_tfdebug.git import GitError, git

    try:
        return git(root, *arguments, given=given)
    except GitError as error:
        raise ScanError(f"{root} is not a git repository that answers: {error}") from error


class GitTree:
    """A revision, read from git's object store; no later scan is held to it."""

    def __init__(self, root: str | os.PathLike[str], revision: str) -> None:
        self.record: Record = {}
        self._root = _directory(root)
        _git(self._root, "rev-parse", "--git-dir")
        try:
            commit = _git(self._root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").decode().strip()
        except ScanError as error:
            raise ScanError(f"{revision!r} is not a revision of {self._root}; `git branch -a` lists some.") from error
        listing = os.fsdecode(_git(self._root, "ls-tree", "-r", "-z", commit))
        entries = [entry.partition("\t")[::2] for entry in listing.split("\0") if entry]
        self._blobs = {path: kind.split()[2] for kind, path in entries}
        self._links = frozenset(path for kind, path in entries if kind.startswith("120000"))
        self._dirs = frozenset(path[:at] for path in self._blobs for at, mark in enumerate(path) if mark == "/")
        wanted = {name for path, name in self._blobs.items() if path.endswith(".py") or path in self._links}
        self._contents = _contents(_git(self._root, "cat-file", "--batch", given="\n".join(wanted).encode()))

    def files(self, under: str) -> Iterator[str]:
        """Yield every path below a directory."""
        yield from sorted(path for path in self._blobs if not under or path.startswith(f"{under}/"))

    def is_file(self, path: str) -> bool:
        """Tell whether a path is a file."""
        return path in self._blobs

    def is_dir(self, path: str) -> bool:
        """Tell whether a path is a directory."""
        return path in self._dirs

    def read(self, path: str) -> bytes:
        """Return a file's bytes, those that a symlink leads to; BadSourceError if there is no such file to read."""
        for _ in range(_LINKS):
            content = self._blob(self._blobs.get(path, ""))
            if path not in self._links:
                return content
            path = posixpath.normpath(posixpath.join(posixpath.dirname(path), os.fsdecode(content)))
        raise BadSourceError("a symlink that leads to itself")

    def _blob(self, name: str) -> bytes:
        if not name:
            raise BadSourceError("no such file")
        content = self._contents.get(name)
        if content is None:
            raise ScanError(
                f"{self._root} is a partial clone without all files of the revision, and nothing is fetched here. "
                "Type: git fetch --refetch --no-filter"
            )
        if len(content) > _MOST:
            raise BadSourceError(f"{len(content):,} bytes, more than the {_MOST:,} that are read")
        return content


def _contents(told: bytes) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    at = 0
    while at < len(told):
        end = told.index(b"\n", at)
        name, *header = told[at:end].decode().split()
        at = end + 1
        if len(header) == 2:  # noqa: PLR2004 - type and size, where another says that it is missing
            size = int(header[1])
            found[name], at = told[at : at + size], at + size + 1
    return found


#: Where the files of a repository come from.
Tree: TypeAlias = "DiskTree | GitTree"
