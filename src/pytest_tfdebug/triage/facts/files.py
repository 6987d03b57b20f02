"""What the hub was asked for and its cache holds; what a file or dict holds in place of the wanted weights."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from zipfile import is_zipfile

from pytest_tfdebug.environment import hub_cache
from pytest_tfdebug.errors import listed
from pytest_tfdebug.frames import module_of, package_of
from pytest_tfdebug.triage.facts.names import nearest
from pytest_tfdebug.triage.rules import LINE_LIMIT, Facts, listing, shown

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from pytest_tfdebug.triage.rules import Failure, Link


_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt")
_HEAD = 512
_CACHED = re.compile(
    r"(?P<kind>model|dataset|space)s--(?P<repo>[^/\\]+)[/\\]snapshots[/\\](?P<revision>[^/\\]+)[/\\](?P<file>.+)"
)


def read_weights_file(failure: Failure, _link: Link, _matched: re.Match[str]) -> Facts:
    """Name the broken file, what it is, and how to get the right one."""
    found = [(path, verdict) for path in _files(failure) if (verdict := verdict_of(path)) is not None]
    if not found:
        return Facts()
    path, verdict = found[0]
    names = {
        "broken": shown(path),
        "verdict": verdict,
        "restore": _restore(path, verdict),
        "look": f"head -c 200 {shlex.quote(str(path))}",
    }
    return Facts(names, tuple(f"{shown(each)}: {what}" for each, what in found[1:4]))


def read_weights_only(failure: Failure, link: Link, matched: re.Match[str]) -> Facts | None:
    """Like :func:`read_weights_file`; None if the file is a sound pickle that torch merely does not trust."""
    facts = read_weights_file(failure, link, matched)
    return facts if facts.names else None


def read_shard(_failure: Failure, _link: Link, matched: re.Match[str]) -> Facts | None:
    """Say how to get a shard again; None if no index beside it names it."""
    missing = Path(matched["shard"])
    is_named = any(missing.name in index.read_text(encoding="utf-8") for index in missing.parent.glob("*.index.json"))
    return Facts({"directory": shown(missing.parent), "restore": _restore(missing, "")}) if is_named else None


def read_directory(_failure: Failure, _link: Link, matched: re.Match[str]) -> Facts:
    """List what a directory holds in place of a model."""
    directory = Path(matched["directory"])
    if not directory.is_dir():
        return Facts()
    entries = sorted(entry.name for entry in directory.iterdir())
    return Facts(lines=(f"the directory holds: {listing(entries) or 'nothing'}",))


def verdict_of(path: Path) -> str | None:
    """Say what is wrong with a weights file; None if nothing is found."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        return f"not readable: {shown(error.strerror or error)}"
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
        return shown(error)


def _files(failure: Failure) -> Iterator[Path]:
    """Yield the weights files that the frames' variables name, innermost first."""
    values = (value for frame in failure.frames for value in list(frame.f_locals.values()))
    entries = (entry for value in values for entry in (value if isinstance(value, (list, tuple)) else (value,)))
    names = dict.fromkeys(str(entry) for entry in entries if isinstance(entry, (str, Path)))
    yield from (Path(name) for name in names if name.endswith(_WEIGHTS) and Path(name).is_file())


def _restore(path: Path, verdict: str) -> str:
    """Return the command that fetches the file again from its source."""
    directory, name = shlex.quote(str(path.parent)), shlex.quote(path.name)
    command = f"hf download REPO {name} --local-dir {directory} --force-download"
    cached = _CACHED.search(str(path))
    if cached is not None:
        kind = "" if cached["kind"] == "model" else f" --repo-type {cached['kind']}"
        revision = f"{cached['revision']}{kind} --force-download"
        command = f"hf download {cached['repo'].replace('--', '/')} {cached['file']} --revision {revision}"
    elif "LFS" in verdict:
        command = f"git -C {directory} lfs pull --include {name}"
    return shown(command, LINE_LIMIT)


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
    names = {"misfit": misfit, **_mended_by_a_prefix(found.get("missing", []), found.get("unexpected", []))}
    return Facts(names, tuple(f"{kind}: {listing(keys, 4)}" for kind, keys in found.items()))


def _mended_by_a_prefix(missing: list[str], unexpected: list[str]) -> dict[str, str]:
    """Return the line that loads weights whose names differ by what stands before them alone."""
    for there, here, mend in (
        (unexpected, missing, 'load_state_dict({{name.removeprefix("{}"): tensor for name, tensor in state.items()}})'),
        (missing, unexpected, 'load_state_dict({{"{}" + name: tensor for name, tensor in state.items()}})'),
    ):
        long, short = min(there, key=len, default=""), min(here, key=len, default="")
        prefix = long.removesuffix(short)
        if short and prefix and prefix != long and set(there) == {prefix + name for name in here}:
            return {"mend": f"{mend.format(shown(prefix))}    # all names differ by {shown(prefix)!r} alone"}
    return {}


_VOCABULARIES = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
)


def read_tokenizer_files(failure: Failure, _link: Link, _matched: re.Match[str]) -> Facts:
    """Say which files of a tokenizer a directory has, where its vocabulary is not among them."""
    for place in failure.local_values("pretrained_model_name_or_path"):
        folder = Path(str(place))
        if not folder.is_dir() or any((folder / name).exists() for name in _VOCABULARIES):
            continue
        present = sorted(path.name for path in folder.glob("*token*.json"))
        return Facts({"place": shown(folder), "present": listing(present)} if present else {})
    return Facts()


_SHOWN_REVISIONS = 4
_SHORT_HASH = 12
_DOWNLOADERS = frozenset(
    {"huggingface_hub.file_download", "huggingface_hub._snapshot_download", "transformers.utils.hub"}
)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_ADDRESS = re.compile(r"https?://[^/]+/(?P<repo>[\w.-]+/[\w.-]+)")
_SETTINGS = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME", "HF_ENDPOINT")


class Wanted(NamedTuple):
    """A file, or a whole snapshot, that the hub was asked for."""

    repo: str
    file: str  # empty for a snapshot
    revision: str
    cache: Path
    kind: str  # "model", "dataset" or "space"

    @property
    def folder(self) -> Path:
        """Where the cache keeps the repository."""
        return self.cache / f"{self.kind}s--{self.repo.replace('/', '--')}"

    def is_in(self, commit: str) -> bool:
        """Tell whether the cache holds it in a commit."""
        return (self.folder / "snapshots" / commit / self.file).exists()


def read_download(failure: Failure, _link: Link, _matched: re.Match[str]) -> Facts:
    """Name the file that was wanted, the revisions that the cache holds, and the settings in force."""
    wanted = _wanted(failure)
    if wanted is None:
        return Facts(lines=(_cache_line(hub_cache()),))
    repo, revision, revisions = wanted.repo, wanted.revision, _cached_revisions(wanted)
    told = f"{f'{wanted.file} of ' if wanted.file else ''}{repo} (revision {revision})"
    names = {"repo": shown(repo), "revision": shown(revision), "wanted": shown(told), "file": shown(wanted.file)}
    if any(module_of(frame) in _DOWNLOADERS for frame in failure.frames):  # not for a question to the hub's API
        kind = "" if wanted.kind == "model" else f" --repo-type {wanted.kind}"
        command = f"hf download {repo}{kind}" + (f" --revision {revision}" if revision != "main" else "")
        names["download"] = shown(command, LINE_LIMIT)
    names["cached"] = next(filter(wanted.is_in, revisions), "")
    if failure.site is not None and "local_files_only=True" in failure.site.code:
        names["local_only"] = "local_files_only=True"
    return Facts(names, (f"cached revisions of {repo}: {_shown(revisions, wanted)}", _cache_line(wanted.cache)))


def read_missing_file(failure: Failure, link: Link, matched: re.Match[str]) -> Facts:
    """List what a directory holds instead of the file; for a repository, like :func:`read_download`."""
    given = matched["directory"]
    if not given or not Path(given).is_dir():
        facts = read_download(failure, link, matched)
        return Facts({"repo": given or "", **facts.names, "directory": ""}, facts.lines)
    return read_directory(failure, link, matched)


def read_path(failure: Failure, _link: Link, matched: re.Match[str]) -> Facts:
    """List the deepest existing folder of a local path that does not exist, and name the nearest entry in it."""
    given = matched.group("path")
    address = _ADDRESS.match(given)
    if address is not None:
        return Facts({"address": shown(given), **failure.rewritten(given, address.group("repo"))})
    if "/" not in given and not given.startswith((".", "~", "\\")):
        return Facts({"path": shown(given)})
    path = Path(given).expanduser()
    parent = next((folder for folder in path.parents if folder.is_dir()), Path())
    entries = sorted(entry.name for entry in parent.iterdir())
    missing = path.relative_to(parent).parts[0] if path != parent and path.is_relative_to(parent) else path.name
    near = nearest(missing, entries, 0.6)
    names = {"path": shown(given), "parent": shown(parent), "local": "local"}
    names["near"] = shown(parent / near) if near else ""
    where = parent if parent != Path() else f"the working directory {Path.cwd()}"
    return Facts(names, (f"{where} holds: {listing(entries) or 'nothing'}",))


def _wanted(failure: Failure) -> Wanted | None:
    """Return what the hub was asked for, read from the innermost frame that says it; one that names a file first."""
    frames = [frame for frame in failure.frames if package_of(frame) in {"huggingface_hub", "transformers"}]
    found = [wanted for frame in frames if (wanted := _from_frame(frame)) is not None]
    return next((wanted for wanted in found if wanted.file), next(iter(found), None))


def _from_frame(frame: FrameType) -> Wanted | None:
    values = frame.f_locals

    def text_of(*names: str) -> str:
        return next((str(values[name]) for name in names if isinstance(values.get(name), (str, Path))), "")

    repo = text_of("repo_id", "path_or_repo_id", "pretrained_model_name_or_path")
    if not repo or Path(repo).is_dir():
        return None
    several = values.get("full_filenames") or values.get("filenames")
    first = str(several[0]) if isinstance(several, (list, tuple)) and several else ""
    cache = Path(text_of("cache_dir") or hub_cache())
    file, revision = text_of("filename") or first, text_of("revision") or "main"
    return Wanted(repo, file, revision, cache, text_of("repo_type") or "model")


def _cached_revisions(wanted: Wanted) -> dict[str, list[str]]:
    """Return a repository's commits in the cache, each with the branches and tags that point to it."""
    snapshots, refs = wanted.folder / "snapshots", wanted.folder / "refs"
    found: dict[str, list[str]] = {each.name: [] for each in sorted(snapshots.glob("*")) if each.is_dir()}
    for ref in filter(Path.is_file, sorted(refs.rglob("*"))):
        found.get(ref.read_text(errors="replace").strip(), []).append(str(ref.relative_to(refs)))
    return found


def _shown(revisions: dict[str, list[str]], wanted: Wanted) -> str:
    told = []
    for commit, refs in revisions.items():
        name = commit[:_SHORT_HASH] if _COMMIT.fullmatch(commit) else shown(commit, 40)
        notes = [*refs, *([] if wanted.is_in(commit) else [f"without {wanted.file}"])]
        told.append(f"{name} ({', '.join(notes)})" if notes else name)
    return listed(told, _SHOWN_REVISIONS) or "none"


def _cache_line(cache: Path) -> str:
    flags = [f"{name}={shown(os.environ[name])}" for name in _SETTINGS if name in os.environ]
    constants = sys.modules.get("huggingface_hub.constants")
    if getattr(constants, "HF_HUB_OFFLINE", False) and not {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"} & set(os.environ):
        flags.append("offline mode is on in huggingface_hub.constants")
    told = ", ".join(flags) or "no HF_HOME, HF_HUB_CACHE or offline flag is set"
    return f"cache: {shown(cache)}; settings: {told}"
