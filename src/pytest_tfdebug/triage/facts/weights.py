"""What a file or dict holds in place of the wanted weights: an LFS pointer, a web page, nothing, half, other shapes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import is_zipfile

from pytest_tfdebug.triage import text
from pytest_tfdebug.triage.rules import Facts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.triage.failure import Failure, Link


_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt")
_HEAD = 512
_CACHED = re.compile(
    r"(?P<kind>model|dataset|space)s--(?P<repo>[^/\\]+)[/\\](?:snapshots[/\\](?P<revision>[^/\\]+)[/\\](?P<file>.+)|blobs)"
)


def read_weights_file(failure: Failure, _link: Link, _matched: re.Match[str]) -> Facts:
    """Name the broken file, what it is, and how to get the right one."""
    found = [(path, verdict) for path in _files(failure) if (verdict := verdict_of(path)) is not None]
    if not found:
        return Facts()
    path, verdict = found[0]
    names = {
        "broken": text.value(path),
        "verdict": verdict,
        "restore": _restore(path, verdict),
        "look": f"head -c 200 {shlex.quote(str(path))}",
    }
    return Facts(names, tuple(f"{text.value(each)}: {what}" for each, what in found[1:4]))


def read_weights_only(failure: Failure, link: Link, matched: re.Match[str]) -> Facts | None:
    """Like :func:`read_weights_file`; None if the file is a sound pickle that torch merely does not trust."""
    facts = read_weights_file(failure, link, matched)
    return facts if facts.names else None


def read_shard(_failure: Failure, _link: Link, matched: re.Match[str]) -> Facts | None:
    """Say how to get a shard again; None if no index beside it names it."""
    missing = Path(matched["shard"])
    is_named = any(missing.name in index.read_text(encoding="utf-8") for index in missing.parent.glob("*.index.json"))
    return Facts({"directory": text.value(missing.parent), "restore": _restore(missing, "")}) if is_named else None


def read_directory(_failure: Failure, _link: Link, matched: re.Match[str]) -> Facts:
    """List what a directory holds in place of a model."""
    directory = Path(matched["directory"])
    if not directory.is_dir():
        return Facts()
    entries = sorted(entry.name for entry in directory.iterdir())
    return Facts(lines=(f"the directory holds: {text.listing(entries) or 'nothing'}",))


def verdict_of(path: Path) -> str | None:
    """Say what is wrong with a weights file; None if nothing is found."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        return f"not readable: {text.value(error.strerror or error)}"
    verdict = None
    if size == 0:
        verdict = "empty, 0 bytes"
    elif head.startswith(b"version https://git-lfs.github.com/spec/"):
        verdict = f"a Git LFS pointer ({size} bytes)"
    elif re.match(rb"\s*<(!doctype|html|\?xml)", head, re.IGNORECASE):
        verdict = f"a web page (HTML), {size} bytes: the download got an error or login page"
    elif path.suffix == ".safetensors":
        refused = _refused(path)
        verdict = refused and f"damaged or cut off at {size} bytes ({refused})"
    elif head.startswith(b"PK") and not is_zipfile(path):
        verdict = f"cut off: a zip archive of {size} bytes without its central directory"
    return verdict


def _refused(path: Path) -> str | None:
    """Return what safetensors finds wrong with a file; None if nothing."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "np"):
            return None
    except SafetensorError as error:
        return text.value(error)


def _files(failure: Failure) -> Iterator[Path]:
    """Yield the weights files that the frames' variables name, innermost first."""
    seen: set[str] = set()
    for frame in failure.frames:
        for value in list(frame.f_locals.values()):
            for entry in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(entry, (str, Path)) and str(entry).endswith(_WEIGHTS) and str(entry) not in seen:
                    seen.add(str(entry))
                    path = Path(entry)
                    if path.is_file():
                        yield path


def _restore(path: Path, verdict: str) -> str:
    """Return the command that fetches the file again from its source."""
    cached = _CACHED.search(str(path))
    if cached is not None and cached["file"]:
        kind = "" if cached["kind"] == "model" else f" --repo-type {cached['kind']}"
        repo = cached["repo"].replace("--", "/")
        return text.value(
            f"hf download {repo} {cached['file']} --revision {cached['revision']}{kind} --force-download",
            text.LINE_LIMIT,
        )
    directory, name = shlex.quote(str(path.parent)), shlex.quote(path.name)
    if "LFS" in verdict:
        return text.value(f"git -C {directory} lfs pull --include {name}", text.LINE_LIMIT)
    return text.value(f"hf download REPO {name} --local-dir {directory} --force-download", text.LINE_LIMIT)


_SHAPES = re.compile(
    r"size mismatch for (\S+): copying a param with shape torch\.Size\((.*?)\) from checkpoint, "
    r"the shape in current model is torch\.Size\((.*?)\)"
)
_KEYS = {
    "missing": re.compile(r"Missing key\(s\) in state_dict: ([^\n]*)"),
    "unexpected": re.compile(r"Unexpected key\(s\) in state_dict: ([^\n]*)"),
}


def read_state_dict(_failure: Failure, link: Link, _matched: re.Match[str]) -> Facts:
    """Count and list the weights of another shape, those that are missing, and those that are unexpected."""
    shapes = [f"{key} (checkpoint {theirs}, model {ours})" for key, theirs, ours in _SHAPES.findall(link.message)]
    found = {"of other shapes": shapes} if shapes else {}
    for kind, pattern in _KEYS.items():
        listed = pattern.search(link.message)
        if listed is not None:
            found[kind] = re.findall(r'"([^"]+)"', listed[1])
    misfit = ", ".join(f"{len(keys)} {kind}" for kind, keys in found.items())
    return Facts({"misfit": misfit}, tuple(f"{kind}: {text.listing(keys, 4)}" for kind, keys in found.items()))
