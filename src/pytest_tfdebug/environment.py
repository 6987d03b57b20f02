"""What a result depends on besides the code: versions, machine, numeric flags, offline flags, caches, commit.

:func:`environment` is a plain function of the present process. It imports none of the libraries it reports on: a
version comes from the installed distribution, a flag from the library only where that is loaded already.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
from contextlib import suppress
from functools import cache
from importlib import import_module, metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.redaction import printable, redact, redacted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


_QUERY_SECONDS = 5
_DISTRIBUTIONS = ("transformers", "safetensors", "huggingface_hub", "tokenizers", "pytest_tfdebug")
#: The only environment variables that are ever shown; each is a place, a switch or a device list.
_OFFLINE_FLAGS = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")
_CACHE_VARIABLES = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE", "XDG_CACHE_HOME")
_DEVICE_VARIABLES = ("CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "CUBLAS_WORKSPACE_CONFIG")
#: What a shown variable may hold, whole: anything else is not repeated.
_SWITCH = re.compile(r"(?i)(?:[01]|true|false|yes|no|on|off|)")
_DEVICES = re.compile(r"(?:-?\d{1,4}|(?:GPU|MIG)-[0-9a-fA-F/-]{4,80}|:\d{1,8}:\d{1,8}|none|void|all|[,: ])*")
_NOT_SHOWN = "(set, not shown)"


def environment(model: object = None, *, with_git: bool = False, with_driver: bool = False) -> dict[str, Any]:
    """Describe the present process; None where something does not apply or was not asked for.

    ``cuda`` is the version that torch was built with; ``gpu`` and ``driver`` are the machine's.
    """
    commit, dirty = git_state() if with_git else (None, None)
    gpus, driver = _driver() if with_driver else (None, None)
    torch = sys.modules.get("torch")
    of_torch = {} if torch is None else _of_torch(torch)
    return {
        "python": platform.python_version(),
        "torch": _version("torch"),
        "cuda": of_torch.get("cuda"),
        **{name: _version(name) for name in _DISTRIBUTIONS},
        "os": f"{platform.system()} {platform.release()} ({platform.machine()})",
        "cpu": _cpu(),
        "gpu": gpus if gpus is not None else of_torch.get("gpu"),
        "driver": driver,
        **{name: of_torch.get(name) for name in ("default_dtype", "tf32", "deterministic", "threads")},
        "attention_implementation": _attention(model),
        "offline": _shown(_OFFLINE_FLAGS, _SWITCH),
        "cache": redacted(cache_locations()),
        "devices": _shown(_DEVICE_VARIABLES, _DEVICES),
        "git_commit": commit,
        "git_dirty": dirty,
    }


def lines(described: Mapping[str, Any]) -> Iterator[str]:
    """Yield the environment as text, one ``name: value`` a line, what is not known left out."""
    known = {name: value for name, value in described.items() if value not in (None, {})}
    yield from (f"{name}: {printable(as_text(value))}" for name, value in known.items())


def as_text(value: object) -> str:
    """Return a field of the environment as text."""
    if isinstance(value, dict):
        return ", ".join(f"{key}={item}" for key, item in value.items())
    return (", ".join(map(str, value)) or "none") if isinstance(value, list) else str(value)


def cache_locations() -> dict[str, str]:
    """Return where the hub's files are kept: the cache in force, and the variables that decide it."""
    locations = {name: os.environ[name] for name in _CACHE_VARIABLES if name in os.environ}
    return {"in force": str(hub_cache()), **locations}


def hub_cache() -> Path:
    """Return the directory of the hub's cache.

    Source:
        https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables
    """
    constants = sys.modules.get("huggingface_hub.constants")
    if constants is not None:
        return Path(str(constants.HF_HUB_CACHE))
    direct = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if direct:
        return Path(os.path.expandvars(direct)).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or f"{base}/huggingface"
    return Path(os.path.expandvars(home)).expanduser() / "hub"


def _shown(names: tuple[str, ...], form: re.Pattern[str]) -> dict[str, str]:
    """Return the variables that are set, and their values where these are of the form that belongs there."""
    held = {name: os.environ[name] for name in names if name in os.environ}
    return {name: value if form.fullmatch(value) else _NOT_SHOWN for name, value in held.items()}


@cache
def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


@cache
def _cpu() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(errors="replace"), re.MULTILINE)
        if found:
            return f"{found.group(1).strip()} ({os.cpu_count()} cores)"
    return f"{platform.processor() or platform.machine()} ({os.cpu_count()} cores)"


def _of_torch(torch: Any) -> dict[str, Any]:  # noqa: ANN401 - the torch module
    gpus = None
    if torch.cuda.is_initialized():  # starting CUDA here would take seconds and break a later fork
        gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    try:
        cudnn: bool | str = bool(torch.backends.cudnn.allow_tf32)
    except RuntimeError:  # torch refuses to read the old flag after the new per-operator one was set
        cudnn = str(torch.backends.cudnn.fp32_precision)
    return {
        "cuda": torch.version.cuda,
        "gpu": gpus,
        "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "tf32": {"matmul_precision": torch.get_float32_matmul_precision(), "cudnn": cudnn},
        "deterministic": {
            "algorithms": torch.are_deterministic_algorithms_enabled(),
            "warn_only": torch.is_deterministic_algorithms_warn_only_enabled(),
            "cudnn_deterministic": torch.backends.cudnn.deterministic,
            "cudnn_benchmark": torch.backends.cudnn.benchmark,
        },
        "threads": {"intra": torch.get_num_threads(), "inter": torch.get_num_interop_threads()},
    }


def _attention(model: object) -> str | None:
    chosen = getattr(getattr(model, "config", None), "_attn_implementation", None)
    return None if chosen is None else redact(str(chosen))


def _driver() -> tuple[list[str], str | None]:
    command = ("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=_QUERY_SECONDS)  # noqa: S603 - the one above
    except (OSError, subprocess.SubprocessError):
        return [], None
    rows = [row.rpartition(",") for row in done.stdout.splitlines() if "," in row]
    return [name.strip() for name, _, _ in rows], rows[0][2].strip() if rows else None


def git_state() -> tuple[str | None, bool | None]:
    """Return the commit of the working directory's repository, and whether its files differ from that."""
    from pytest_tfdebug.git import GitError, git

    commit, is_changed = None, None
    with suppress(GitError):
        commit = git(".", "rev-parse", "HEAD", seconds=_QUERY_SECONDS).decode().strip()
        is_changed = bool(git(".", "status", "--porcelain", seconds=_QUERY_SECONDS).strip())
    return commit, is_changed


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the environment as text, or as one JSON object with ``--json``."""
    parser = argparse.ArgumentParser(prog="tfdebug env", description="Print the environment.")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    as_json = parser.parse_args(arguments).json
    if util.find_spec("torch") is not None:
        import_module("torch")  # its flags are part of the answer
    described = environment(with_git=True, with_driver=True)
    text = json.dumps(described, indent=2) if as_json else "\n".join(lines(described))
    sys.stdout.write(f"{text}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
