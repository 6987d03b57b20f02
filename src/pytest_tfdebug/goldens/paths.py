"""Where a test's goldens lie, and whether they are checked or written."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.options import Options
from pytest_tfdebug.redaction import printable, redact
from pytest_tfdebug.running import told

if TYPE_CHECKING:
    import pytest
    import torch

    from pytest_tfdebug.goldens.place import GoldenPlace


#: Characters that every file system takes; others become ``_`` and the name gets a hash, so that it stays unique.
_UNSAFE = re.compile(r"[^\w\-\[\]=,+.@ ]")
#: Longest file name without its ending, in bytes; file systems take 255.
_LONGEST = 150
SUFFIX = ".safetensors"


def directory_of(file: Path, config: pytest.Config, golden_dir: str | None) -> Path:
    """Return the golden directory of a test file: ``goldens/`` beside it, or the one asked for."""
    if golden_dir is not None:
        return (config.invocation_params.dir / golden_dir).resolve()
    return file.parent / "goldens"


def folder_of_file(file: Path, config: pytest.Config, golden_dir: str | None) -> Path:
    """Return the folder in the golden directory that holds the goldens of a test file."""
    return directory_of(file, config, golden_dir) / _safe(file.stem)


def golden_name(item: pytest.Item, name: str | None, *, variant: str = "") -> str:
    """Return ``<test file stem>/<test name with parameter id>[.<name>][@<variant>].safetensors``.

    Tests of a class are named ``Class.test``. Nothing that a parameter id holds leads out of the directory.
    """
    if name is not None and not (isinstance(name, str) and is_file_name(name)):
        raise TFDebugError(f"name={name!r} of a golden is made of letters, digits and -_=,+@[] (no path separators).")
    test = label_of(item)
    label = _safe(f"{test}.{name}" if name else test)
    return f"{_safe(item.path.stem)}/{label}{f'@{variant}' if variant else ''}{SUFFIX}"


def is_file_name(text: str) -> bool:
    """Tell whether a text can stand in the name of a golden as it is."""
    return bool(text) and not _UNSAFE.search(text) and text[0] != "."


def is_url(golden_dir: str | None) -> bool:
    """Tell whether a golden directory is a URL."""
    return golden_dir is not None and "://" in golden_dir


def label_of(item: pytest.Item) -> str:
    """Return the test's name within its file: ``Class.test[parameter id]``."""
    classes = item.nodeid.removesuffix(item.name).partition("::")[2].split("::")
    return ".".join([*filter(None, classes), item.name])  # a parameter id may hold "::" as well


def _safe(text: str) -> str:
    cleaned = _UNSAFE.sub("_", text)
    if cleaned == text and len(text.encode()) <= _LONGEST and not text.startswith("."):
        return text
    short = cleaned.lstrip(".").encode()[:_LONGEST].decode("utf-8", "ignore")
    return f"{short}-{blake2b(text.encode('utf-8', 'replace'), digest_size=4).hexdigest()}"


def shown(path: Path | str, config: pytest.Config) -> str:
    """Return a path as a user would type it from where pytest was started; a URL as it is."""
    if not is_url(str(path)):
        with suppress(ValueError):  # it lies elsewhere
            path = Path(path).relative_to(config.invocation_params.dir)
    return printable(str(path))


def variants(model: torch.nn.Module, chosen: str | None) -> tuple[str, ...]:
    """Return the variants that may hold a model, the most special one first; the plain golden is tried after them."""
    from pytest_tfdebug.tensors import dtype_name

    tensors = [*model.parameters(), *model.buffers()]
    device = tensors[0].device.type if tensors else "cpu"
    dtype = next((dtype_name(tensor.dtype) for tensor in tensors if tensor.is_floating_point()), "float32")
    if chosen is None:
        return (f"{device}-{dtype}", device, dtype)
    if not isinstance(chosen, str) or not is_file_name(chosen) or "@" in chosen:
        raise TFDebugError(
            f"variant={chosen!r} of a golden is not 'device', 'dtype' or a name of letters, digits and characters of "
            "-_=,+."
        )
    return ({"device": device, "dtype": dtype}.get(chosen, chosen),)


#: Modes that write.
RECORDING = frozenset({"update", "missing"})
_FLAG = "--tf-golden"
#: Where a worker of pytest-xdist finds whether the flag was typed.
TYPED = "tfdebug_typed"
_FALSE = frozenset({"", "0", "false", "no", "off"})
#: What CI servers set: most of them CI; Jenkins, Azure Pipelines, TeamCity and CodeBuild a name of their own.
_SERVERS = ("CI", "GITHUB_ACTIONS", "JENKINS_URL", "TF_BUILD", "TEAMCITY_VERSION", "CODEBUILD_BUILD_ID")


def golden_mode(config: pytest.Config) -> str:
    """Return the mode of a run: that of the flag or the ini key; ``check`` where that would record unasked on CI.

    Nobody reads what a CI server writes because of an ini file, so a golden that is missing there would pass for ever.
    """
    mode = Options.of(config).golden
    return "check" if mode in RECORDING and ci_server() and not is_typed(config) else mode


def ci_server() -> str | None:
    """Return the variable by which a CI server is known; ``CI=false`` says that it is none."""
    set_to = {name: os.environ[name].strip().lower() for name in _SERVERS if os.environ.get(name)}
    if set_to.get("CI") in _FALSE:
        return None
    return next((name for name, value in set_to.items() if value not in _FALSE), None)


def is_typed(config: pytest.Config) -> bool:
    """Tell whether the flag stands on the command line itself, not in ``addopts`` or ``PYTEST_ADDOPTS``.

    A worker of pytest-xdist is told by the process that started it.
    """
    typed: bool | None = told(config, TYPED)
    arguments = map(str, config.invocation_params.args)
    return any(it == _FLAG or it.startswith(f"{_FLAG}=") for it in arguments) if typed is None else typed


def missing(item: pytest.Item, place: GoldenPlace) -> str:
    """Say that a test has no golden yet, and what to type."""
    mode, asked = golden_mode(item.config), Options.of(item.config).golden
    told = f"{item.nodeid} has no golden yet: {shown(str(place), item.config)} does not exist.\n"
    if asked != mode:
        name = ci_server() or "CI"
        told += f"  On a CI server ({name}={os.environ.get(name)}) {_FLAG}={asked} counts only on the command line.\n"
    places = {flag: item.config.getoption(flag) for flag in ("--tf-golden-dir", "--tf-golden-variant")}
    typed = "".join(f" {quote(f'{flag}={redact(value)}')}" for flag, value in places.items() if value)
    return f"{told}To record it, run: pytest {quote(item.nodeid)} {_FLAG}=missing{typed}"
