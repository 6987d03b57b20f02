"""A golden directory behind a URL, by fsspec: a bucket, a repository of the hub, memory.

A golden that was read is kept on this machine under the version that the server gave it, so it is read only once.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import fsspec

from pytest_tfdebug.errors import GoldenError
from pytest_tfdebug.goldens.store.place import GoldenPlace, is_readable_golden
from pytest_tfdebug.marker_arguments import several
from pytest_tfdebug.redaction import redact
from pytest_tfdebug.tracing.record.replacing import replace_atomically

#: Names under which file systems give a hash of a file's content, and other facts that tell its versions apart.
_HASHES = ("ETag", "etag", "blob_id", "sha", "oid", "checksum", "md5", "md5Hash")
_TIMES = ("LastModified", "Last-Modified", "last_modified", "mtime", "created", "updated", "size")
#: File systems that have directories; in a store of objects, to make one may be to make a bucket.
_WITH_DIRECTORIES = frozenset({"file", "local", "ftp", "sftp", "ssh", "smb", "hdfs", "arrow_hdfs", "webhdfs"})
#: Seconds for which a copy of an earlier version stays: another run may be reading it.
_KEPT = 24 * 3600.0


class RemoteDirectory:
    """Goldens behind a URL."""

    def __init__(self, url: str, cache: Path | None = None) -> None:
        self._url = url.rstrip("/")
        self._cache = (cache or cache_directory()) / sha256(self._url.encode()).hexdigest()[:16]
        self._listings: dict[str, dict[str, dict[str, Any]]] = {}
        self._asked: set[str] = set()
        with _Told(self._url, "reached"):
            self._files, self._root = fsspec.core.url_to_fs(self._url)

    def named(self, name: str) -> str:
        """Return the golden's URL, without credentials."""
        return redact(f"{self._url}/{name}")

    def has(self, name: str) -> bool:
        """Tell whether there is such a golden."""
        return bool(self._entry(name))

    def fetch(self, name: str) -> Path:
        """Return a copy of the golden on this machine, and forget those of its earlier versions."""
        copy = self._copy(name)
        if not copy.exists():
            replace_atomically(copy, lambda temporary: self._download(name, Path(temporary)))
            for other in copy.parent.iterdir():
                if other != copy and other.is_file() and time.time() - other.stat().st_mtime > _KEPT:
                    other.unlink(missing_ok=True)
        with _Told(self.named(name), "read"), GoldenPlace(self, name).names(copy):
            is_readable_golden(copy)
        return copy

    def forget(self, name: str) -> bool:
        """Delete the copy of a golden on this machine: one that was damaged on its way is not read for ever."""
        copy = self._copy(name)
        is_there = copy.exists()
        copy.unlink(missing_ok=True)
        return is_there

    def _copy(self, name: str) -> Path:
        return self._cache / name / _version(self._entry(name))

    def _download(self, name: str, temporary: Path) -> None:
        """Fetch a golden; once more where fewer or more bytes came than the server says that it has."""
        size = self._entry(name).get("size")
        for _ in range(2):
            with _Told(self.named(name), "read"):  # what the server raises is no fault of the copy
                self._files.get_file(self._at(name), temporary)
            came = temporary.stat().st_size
            if size is None or came == size:
                return
        raise GoldenError(f"{self.named(name)} came with {came:,} of its {size:,} bytes, twice. Try again later.")

    def put(self, name: str, file: Path) -> None:
        """Put a copy of a file in the place of a golden; until then, others read the whole old golden."""
        with _Told(self.named(name), "written"), self._files.transaction:
            if not _WITH_DIRECTORIES.isdisjoint(several(self._files.protocol)):
                self._files.makedirs(self._at(name).rpartition("/")[0], exist_ok=True)
            with file.open("rb") as source, self._files.open(self._at(name), "wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
        with _Told(self.named(name), "read"):
            self._files.invalidate_cache()
            self._listing(name)[name.rpartition("/")[2]] = self._files.info(self._at(name))

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _entry(self, name: str) -> dict[str, Any]:
        """Return what the server says of a golden, nothing where there is none.

        A folder is listed once in a run. The server is asked for the golden itself where the listing does not have it,
        for what came may be no listing but the page of a proxy, or does not say how large it is.
        """
        listing, base = self._listing(name), name.rpartition("/")[2]
        if listing.get(base, {}).get("size") is None and name not in self._asked:
            with _Told(self.named(name), "read"):
                self._files.invalidate_cache()
                try:
                    entry = self._files.info(self._at(name))
                except FileNotFoundError as error:
                    if getattr(error.__cause__, "status", 404) != 404:  # noqa: PLR2004 - aiohttp's, of a broken server
                        raise OSError(str(error.__cause__)) from error
                    if not listing:
                        self._check_answer(name.rpartition("/")[0])
                else:
                    if entry["type"] == "file":
                        listing[base] = entry
            self._asked.add(name)
        return listing.get(base, {})

    def _listing(self, name: str) -> dict[str, dict[str, Any]]:
        folder = name.rpartition("/")[0]
        if folder not in self._listings:
            with _Told(redact(f"{self._url}/{folder}"), "listed"):
                self._files.invalidate_cache()
                try:
                    entries = self._files.ls(self._at(folder), detail=True)
                except FileNotFoundError:
                    entries = []
            self._listings[folder] = {
                entry["name"].rpartition("/")[2]: entry for entry in entries if entry["type"] == "file"
            }
        return self._listings[folder]

    def _check_answer(self, folder: str) -> None:
        """Raise if that of a folder from which nothing was read is no listing.

        A listing of S3 repeats what was asked for; its library reads an empty one from any other well-formed answer.
        Most other stores answer in JSON, which no page is. A web server has no listings: what it says of the golden
        counts.
        """
        if "s3" not in several(self._files.protocol):
            return
        with _Told(redact(f"{self._url}/{folder}"), "listed"):
            bucket, prefix, _ = self._files.split_path(self._at(folder))
            asked = {"Bucket": bucket, "Prefix": f"{prefix}/", "MaxKeys": 1, **self._files.req_kw}
            answer = self._files.call_s3("list_objects_v2", **asked)
            if "IsTruncated" not in answer:
                kind = answer["ResponseMetadata"]["HTTPHeaders"].get("content-type", "something else")
                raise OSError(f"what came is no listing of a bucket but {kind}, as of a proxy that wants a login")


class _Told:
    """Turns what a file system raises into a GoldenError; a generator would leave lines of contextlib in a report."""

    def __init__(self, url: str, done: str) -> None:
        self._url, self._done = url, done

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, GoldenError):  # every file system has its own
            why = redact(str(error).strip() or type(error).__name__)
            raise GoldenError(f"{redact(self._url)} cannot be {self._done}: {why}") from error


def cache_directory() -> Path:
    """Return where goldens behind URLs are kept on this machine."""
    home = Path.home()
    default = {"darwin": home / "Library/Caches", "win32": home / "AppData/Local"}.get(sys.platform, home / ".cache")
    return Path(os.environ.get("XDG_CACHE_HOME") or default) / "pytest-tfdebug" / "goldens"


def _version(entry: dict[str, Any]) -> str:
    content = next((f"{key}={entry[key]}" for key in _HASHES if entry.get(key)), None)
    facts = ((key, entry[key]) for key in _TIMES if entry.get(key) is not None)
    told = (f"{key}={it.timestamp() if isinstance(it, datetime) else it}" for key, it in facts)
    known = content or "\n".join(told)
    return sha256(known.encode()).hexdigest()[:32]
