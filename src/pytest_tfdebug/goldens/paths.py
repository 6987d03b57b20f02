"""Where a test's goldens lie."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TYPE_CHECKING

from pytest_tfdebug.errors import TFDebugError

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

#: Characters that every file system takes; others become ``_`` and the name gets a hash, so that it stays unique.
_UNSAFE = re.compile(r"[^\w\-\[\]=,+.@ ]")
#: Longest file name without its ending, in bytes; file systems take 255.
_LONGEST = 150
SUFFIX = ".safetensors"


def directory_of(item: pytest.Item, golden_dir: str | None) -> Path:
    """Return the golden directory of a test: ``goldens/`` beside its file, or the one asked for."""
    if golden_dir is not None:
        return (item.config.invocation_params.dir / golden_dir).resolve()
    return item.path.parent / "goldens"


def golden_path(item: pytest.Item, golden_dir: str | None, name: str | None) -> Path:
    """Return ``<golden dir>/<test file stem>/<test name with parameter id>[.<name>].safetensors``.

    Tests of a class are named ``Class.test``. Nothing that a parameter id holds leads out of the directory.

    Raises:
        TFDebugError: If ``name`` is empty or holds a path separator.
    """
    if name is not None and not (isinstance(name, str) and name and not _UNSAFE.search(name) and name[0] != "."):
        raise TFDebugError(f"name={name!r} of a golden is made of letters, digits and -_=,+@[] (no path separators).")
    classes = item.nodeid.removesuffix(item.name).partition("::")[2].split("::")
    test = ".".join([*filter(None, classes), item.name])  # a parameter id may hold "::" as well
    label = f"{test}.{name}" if name else test
    return directory_of(item, golden_dir) / _safe(item.path.stem) / f"{_safe(label)}{SUFFIX}"


def _safe(text: str) -> str:
    cleaned = _UNSAFE.sub("_", text)
    if cleaned == text and len(text.encode()) <= _LONGEST and not text.startswith("."):
        return text
    short = cleaned.lstrip(".").encode()[:_LONGEST].decode("utf-8", "ignore")
    return f"{short}-{blake2b(text.encode('utf-8', 'replace'), digest_size=4).hexdigest()}"


def shown(path: Path, config: pytest.Config) -> str:
    """Return a path as a user would type it from where pytest was started."""
    try:
        return str(path.relative_to(config.invocation_params.dir))
    except ValueError:
        return str(path)
