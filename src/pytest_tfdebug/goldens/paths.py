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
#: Longest file name without its ending; file systems take 255 bytes.
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
    if name is not None and (not name or _UNSAFE.search(name) or name.startswith(".")):
        raise TFDebugError(f"name={name!r} of a golden is made of letters, digits and -_=,+@[] (no path separators).")
    test = ".".join(item.nodeid.partition("::")[2].split("::")) or item.name
    label = f"{test}.{name}" if name else test
    return directory_of(item, golden_dir) / _safe(item.path.stem) / f"{_safe(label)}{SUFFIX}"


def _safe(text: str) -> str:
    cleaned = _UNSAFE.sub("_", text)
    if cleaned == text and len(text) <= _LONGEST and not text.startswith("."):
        return text
    return f"{cleaned.lstrip('.')[:_LONGEST]}-{blake2b(text.encode('utf-8', 'replace'), digest_size=4).hexdigest()}"


def shown(path: Path, config: pytest.Config) -> str:
    """Return a path as a user would type it from where pytest was started."""
    try:
        return str(path.relative_to(config.invocation_params.dir))
    except ValueError:
        return str(path)
