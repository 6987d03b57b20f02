"""The answer to the command line's question: one that was kept and is still valid, or a scan.

The last few answers of a repository are kept in one file of the user's cache directory: a checksum and JSON. It is
replaced, never added to, and read as untrusted input: a file that is not whole, or an answer that is not of the right
types, is ignored, and the scan starts cold.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import zlib
from contextlib import suppress
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_tfdebug.scan.read.files import check_json, read, replace, stamp
from pytest_tfdebug.scan.read.tree import DiskTree, digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_tfdebug.scan.read.tree import Record
    from pytest_tfdebug.scan.result import PartialScan, ScanResult


#: Answers that are kept, and bytes of all together; one of transformers takes 100 kB.
_ANSWERS, _MOST = 8, 17_000_000
_MARK = "pytest-tfdebug scan 2"
#: The errors that may come of reading what this package did not write.
MISTAKES = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError, MemoryError)


class Head(NamedTuple):
    """What is kept of an answer.

    It is valid as long as the work tree says the same as ``record``. ``size`` and ``checksum`` are those of the report.
    """

    record: Record
    bad: dict[str, str]
    unresolved: list[str]
    summary: str
    size: int
    checksum: int
    unread: list[str]


class Cache:
    """The cache of one repository, with a models directory that the user named or an empty one."""

    def __init__(self, root: str | os.PathLike[str], models_dir: str) -> None:
        name = digest(f"{os.path.realpath(root)}\n{models_dir}".encode(errors="surrogateescape"))
        self._path = os.path.join(directory(), f"{name}.answers")
        self._version, self._heads = [_MARK, _version()], dict[str, Any]()
        with suppress(OSError, *MISTAKES):
            content = check_json(read(self._path, _MOST))
            if content[:9] == b"%08x " % zlib.crc32(content[9:]):
                version, heads = json.loads(content[9:])
                self._heads = dict(heads) if version == self._version else {}

    def head(self, name: str) -> Head | None:
        """Return what is kept of an answer; None where there is none, or it is not what it should be."""
        with suppress(*MISTAKES):
            record, bad, unresolved, summary, size, checksum, unread = self._heads[name]
            texts = (*record.values(), *bad.values(), *unresolved, *unread, summary)
            if all(isinstance(text, str) for text in texts) and not any(
                isinstance(it, str) for it in (unresolved, unread)
            ):
                return Head(record, bad, unresolved, summary, int(size), int(checksum), unread)
        return None

    def keep(self, name: str, head: Head) -> None:
        """Keep an answer in place of what was kept under its name; a cache that cannot be written is no error."""
        others = {other: kept for other in self._heads if other != name and (kept := self.head(other)) is not None}
        self._heads = dict(islice({name: head, **others}.items(), _ANSWERS))
        text = _text([self._version, self._heads])
        if len(text) <= _MOST:
            with suppress(OSError):
                os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
                replace(self._path, [text])


def _text(value: object) -> bytes:
    text = json.dumps(value, separators=(",", ":")).encode()
    return b"%08x %b" % (zlib.crc32(text), text)


def directory() -> str:
    """Return the user's cache directory of this package.

    Source:
        https://specifications.freedesktop.org/basedir-spec/latest/ and its equivalents on macOS and Windows.
    """
    home = os.path.expanduser("~")
    default = {"darwin": f"{home}/Library/Caches", "win32": f"{home}/AppData/Local"}.get(sys.platform, f"{home}/.cache")
    variable = "LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME"
    return os.path.join(os.environ.get(variable) or default, "pytest-tfdebug", "scan")


def _version() -> str:
    """Return what changes whenever this package, libcst or Python does."""
    here = os.path.dirname(__file__)
    paths = (os.path.join(folder, name) for folder, _, names in os.walk(here) for name in names)
    sources = sorted((path, os.stat(path).st_mtime_ns) for path in paths if path.endswith(".py"))
    libcst = importlib.util.find_spec("libcst")
    stamp = os.stat(libcst.origin).st_mtime_ns if libcst is not None and libcst.origin is not None else 0
    return digest(f"{sources}{stamp}{sys.version_info}".encode())


class Answer:
    """What the command line shows: the report, its summary, and what went wrong on the way.

    If nothing has changed since an answer was kept, its head stands; what is not in that is scanned if it is asked for.
    """

    def __init__(
        self,
        repo: str,
        models_dir: str,
        test: str | None = None,
        cache: Cache | None = None,
        *,
        is_strict: bool = False,
    ) -> None:
        self._repo, self._models_dir, self._test, self._is_strict = repo, models_dir, test, is_strict
        self.name = "all_tests_scan_result" if test is None else f"scan_{test}"
        self._cache, tree = cache, DiskTree(repo)
        head = cache.head(self.name) if cache is not None else None
        self._kept = head if head is not None and tree.still_says(head.record) else None

    @cached_property
    def _found(self) -> PartialScan:
        from pytest_tfdebug.scan.read.layout import Work, model_files
        from pytest_tfdebug.scan.scanner import scan_all

        tree = DiskTree(self._repo)
        work = Work(self._repo, tuple(model_files(tree, self._models_dir)), self._test, self._is_strict)
        sys.stderr.write(f"🔬 Parsing {len(work.places)} model test files once each...\n")
        sys.stderr.flush()
        return scan_all(work, tree)

    @cached_property
    def head(self) -> Head:
        """What is kept of the answer."""
        if self._kept is not None:
            return self._kept
        found = self.result
        return Head(
            self._found.record,
            found.skipped_files,
            found.unresolved_bases,
            "\n".join(self._summary()),
            0,
            0,
            found.unread,
        )

    @cached_property
    def result(self) -> ScanResult:
        """What the scan found."""
        from pytest_tfdebug.scan.result import result

        return result(self._found, self._test)

    @cached_property
    def report(self) -> dict[str, dict[str, Any]]:
        """The report as dictionaries."""
        return self.result.to_dict()

    def save(self, path: str) -> None:
        """Write the JSON report where it is not already."""
        with suppress(OSError):
            if stamp(path) == (self.head.size, self.head.checksum) != (0, 0):
                return
        from pytest_tfdebug.scan.result import chunks, write

        size, checksum = write(path, chunks(self.result.tests))
        self.head = self.head._replace(size=size, checksum=checksum)

    def keep(self) -> None:
        """Keep the answer for the next scan, if it is new."""
        if self._cache is not None and self.head != self._kept:
            self._cache.keep(self.name, self.head)

    @property
    def warnings(self) -> Iterator[str]:
        """Yield a line for each file that was left out and each base class that is not known."""
        bad, unresolved = self.head.bad, self.head.unresolved
        if bad:
            yield f"warning: {len(bad)} file(s) left out:"
            yield from (f"  {path}: {reason}" for path, reason in sorted(bad.items()))
        if unresolved:
            yield f"warning: {len(unresolved)} base class(es) not found; the tests that they bring are not counted:"
            yield from (f"  {base}" for base in unresolved)
        if self.head.unread:
            yield f"warning: {len(self.head.unread)} line(s) make or leave out tests when they run, which was not read:"
            yield from (f"  {line}" for line in self.head.unread)

    def summarize(self, *, verbose: bool = False) -> Iterable[str]:
        """Return the lines of the summary."""
        return self._summary(verbose=True) if verbose else [self.head.summary]

    def _summary(self, *, verbose: bool = False) -> Iterable[str]:
        from pytest_tfdebug.scan import render

        if self._test is not None:
            return render.one_test(self._test, self.result[self._test].to_dict(), verbose=verbose)
        left_out = [f"/{file}" for file in self.result.skipped_files]  # nobody knows what classes are in these
        ends = {model: (f"/{model}/", f"_{model}.py") for model in self.result.models}
        read = [model for model, ends_ in ends.items() if not any(end in file for file in left_out for end in ends_)]
        return render.all_tests(self.result.tests.values(), read, verbose=verbose)
