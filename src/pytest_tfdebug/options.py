"""Every flag, ini key and marker of the plugin, in tables; the only file that knows their names.

To add one, add a row to ``FLAGS``, ``INI`` or ``MARKERS``. What a marker takes is a dataclass on
:class:`~pytest_tfdebug.marker_arguments.Arguments`, in the room of its check.

Every run of pytest imports this file: it has no dataclass and no named tuple, which take longer to make than to read.
"""

from __future__ import annotations

import sys
from argparse import SUPPRESS
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pytest


class Flag:
    """One command-line flag."""

    choices: tuple[str, ...] = ()
    metavar: str | None = None
    bare: str | None = None  # what stands for it without a value
    has_ini = False

    def __init__(self, flag: str, text: str, default: str | None = None, **others: Any) -> None:  # noqa: ANN401
        self.flag, self.text, self.default = flag, text, default
        self.ini = flag.lstrip("-").replace("-", "_")
        vars(self).update(others)


#: Title of a group in ``--help`` -> its flags.
FLAGS: dict[str, tuple[Flag, ...]] = {
    "model debugging (pytest-tfdebug)": (
        Flag(
            "--tf-golden",
            "check against goldens, write them all (update), write those that do not exist (missing), or skip (off)",
            "check",
            choices=("check", "update", "missing", "off"),
            has_ini=True,
        ),
        Flag(
            "--tf-golden-dir",
            "directory of the goldens, or a URL that fsspec knows (default: goldens/ beside the test file)",
            metavar="DIR|URL",
            has_ini=True,
        ),
        Flag(
            "--tf-golden-variant",
            "which of a test's goldens to check or write: device, dtype or a name; without it the plain one is checked",
            metavar="VARIANT",
        ),
        Flag(
            "--tf-explain",
            "after a failed golden check, run the model once more to name the line (auto), or do not (off)",
            "auto",
            choices=("auto", "off"),
            has_ini=True,
        ),
        Flag(
            "--tf-repro",
            "write a folder for each failed check: its inputs, the environment, a script that runs the test "
            "(default: tfdebug-repro)",
            metavar="DIR",
            bare="tfdebug-repro",
        ),
        Flag(
            "--tf-html",
            "write a page for each check, passed or failed, and an index of them into this directory",
            metavar="DIR",
        ),
        Flag("--tf-json", "write every check, passed or failed, into this JSON file", metavar="FILE"),
        Flag("--tf-json-forward", "with --tf-json: both forwards of each check, call by call, too"),
        Flag("--tf-patch", "write the diffs that mend failed checks into this file, for git apply", metavar="FILE"),
        Flag(
            "--tf-triage",
            "say which kind of failure a failed test is, with the smallest fix (auto), or do not (off)",
            "auto",
            choices=("auto", "off"),
            has_ini=True,
        ),
        Flag(
            "--tf-certify",
            "change the port of each golden check that passes in so many places (default 100), and say which changes "
            "the test does not catch",
            metavar="N",
            bare="100",
        ),
        Flag(
            "--tf-run-skipped",
            "run skipped tests once more without their skips, and list those that pass now: skips that always hold "
            "(unconditional, the default) or those on a condition too (all)",
            choices=("unconditional", "all"),
            bare="unconditional",
        ),
    ),
    "a second look at a failure (pytest-tfdebug)": (
        Flag("--tf-offline", "read only the local cache of the Hugging Face hub"),
        Flag(
            "--tf-device",
            "hide the GPUs before CUDA starts (cpu), demand one (cuda), or leave the choice to the tests (auto)",
            "auto",
            choices=("cpu", "cuda", "auto"),
        ),
        Flag("--tf-sync-cuda", "CUDA_LAUNCH_BLOCKING=1: CUDA errors appear at the call that caused them"),
        Flag(
            "--tf-watch-masks",
            "warn of attention masks that are missing, too short, inverted, additive or misnamed, in every test",
        ),
    ),
}
#: Keys that have no flag.
INI = (
    (
        "tf_golden_tolerances",
        "tolerances of golden checks, a line each: '<dtype or module glob>: <rtol> <atol>', as in 'float32: 1e-4 1e-5'",
    ),
    (
        "tf_golden_tolerance",
        "where golden checks get their tolerance from: the dtype (dtype, the default) or a forward in float64 (fp64)",
    ),
    ("tf_golden_internal", "what to do if the outputs agree and values inside differ: warn (default) or fail"),
    ("tf_golden_store", "what a golden keeps: a sample of each tensor (values, the default) or all (full)"),
    ("tf_golden_max_size", "size above which a golden is not written (default: 100 MB)"),
    (
        "tf_explain_seconds",
        "how long to search for the change that fixes a failed check (default: 5; 0: never)",
    ),
    ("tf_certify_seconds", "how long --tf-certify may take for one test (default: 60)"),
)

#: Keys of several lines: in pyproject.toml a list.
LINES = ("tf_golden_tolerances",)

#: Key under which a test's notes travel to the terminal summary, also from xdist workers.
NOTE = "tfdebug_note"
#: Key likewise of its verdicts on models and promises.
CONFORMANCE = "tfdebug_conformance"

MARKERS: dict[str, str] = {
    "tf_golden": (
        "tf_golden(*, tolerance, rename, internal, store, include, exclude, level, dtypes): defaults of golden checks."
    ),
    "tf_ranks": (
        "tf_ranks(count, *, timeout=300): run the test on so many processes, in a process group of torch.distributed."
    ),
    "overflow_free": (
        "overflow_free(*, frames, dtype, headroom, gradients, ignore): "
        "fail when a module that runs in the test gives inf or nan, or leaves too little headroom."
    ),
    "padding_invariant": (
        "padding_invariant(*, side, lengths, filler, position_ids, rtol, atol, inputs, expect, reason): every model "
        "call of the test gives the same answer with padding."
    ),
    "invariant": (
        "invariant(*checks, rtol, atol, inputs, ...): every model call of the test gives the same answer in other ways "
        "(batch, cache, attention, save_load, dtype, padding), and loads every weight (clean_load)."
    ),
}


class Options(SimpleNamespace):
    """The plugin's options of one run, flags and ini keys resolved, each under its name without ``tf_``."""

    @classmethod
    def of(cls, config: pytest.Config) -> Options:
        """Read the options of a run, flag before ini key before default."""
        values = {flag.ini: _value(config, flag) for group in FLAGS.values() for flag in group}
        given = {key: _ini(config, key, "\n" if key in LINES else None) for key, _ in INI}
        values |= {key: str(value) if isinstance(value, bool) else value for key, value in given.items()}
        return cls(**{key.removeprefix("tf_"): value for key, value in values.items()})


def register(parser: pytest.Parser) -> None:
    """Add the flags and ini keys to pytest's parser."""
    for title, flags in FLAGS.items():
        group = parser.getgroup(title)
        for flag in flags:
            extra: dict[str, Any] = {"metavar": flag.metavar}
            words: tuple[str, ...] = ()
            if flag.choices and flag.bare is not None:  # each a flag of its own: a path behind the bare one is no value
                words, extra = flag.choices, {"action": "store_const", "const": flag.bare}
            elif flag.choices:
                extra = {"choices": flag.choices}
            elif flag.bare is not None:
                extra |= {"nargs": "?", "const": flag.bare}
            elif flag.metavar is None:
                extra = {"action": "store_true"}
            text = f"{flag.text}; ini key {flag.ini}" if flag.has_ini else flag.text
            group.addoption(flag.flag, dest=flag.ini, default=None, help=text, **extra)
            for word in words:
                name = f"{flag.flag}={word}"
                group.addoption(name, dest=flag.ini, default=None, action="store_const", const=word, help=SUPPRESS)
            if flag.has_ini:
                parser.addini(flag.ini, f"default of {flag.flag}", type="string", default=None)
    for key, text in INI:
        shape: Literal["linelist", "string"] = "linelist" if key in LINES else "string"
        parser.addini(key, text, type=shape, default=None)


def _value(config: pytest.Config, flag: Flag) -> Any:  # noqa: ANN401 - a flag's value is text, a switch or None
    value = config.getoption(flag.ini, None)
    if value is None:  # before the conftests are loaded, what is parsed so far stands here
        value = getattr(config.known_args_namespace, flag.ini, None)
    if value is None and flag.has_ini:
        value = _ini(config, flag.ini, None)
        if isinstance(value, bool):
            value = flag.default if value else "off"
        if value and flag.ini == "tf_golden_dir" and "://" not in value:  # relative to the file that says it
            value = str((config.inipath.parent if config.inipath else config.rootpath) / value)
    if value is None or value == "":
        return flag.default
    if flag.choices and value not in flag.choices:
        import pytest

        raise pytest.UsageError(f"{flag.ini} = {value!r} is not one of {', '.join(flag.choices)} (see {flag.flag}).")
    return value


def _ini(config: pytest.Config, key: str, separator: str | None) -> Any:  # noqa: ANN401 - text or None
    """Return an ini value as text: a list, a number or a switch, as TOML can hold them, too."""
    import pytest

    try:
        value = config.getini(key)
    except (TypeError, pytest.UsageError):  # [tool.pytest] has no text for a number, nor one value for a list
        value = _native(config, key)
        if value is None:
            raise
    if not isinstance(value, list):
        return value if value is None or isinstance(value, bool) else str(value)
    if separator is None:
        raise pytest.UsageError(f"{key} = {value!r} is a list. Give one value.")
    return separator.join(map(str, value))


def _native(config: pytest.Config, key: str) -> Any:  # noqa: ANN401 - a TOML value
    """Return the value of a key of ``[tool.pytest]``, or of ``[pytest]`` in pytest.toml; None where there is none."""
    if config.inipath is None or config.inipath.suffix != ".toml":
        return None
    document = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli").loads(
        config.inipath.read_text(encoding="utf-8")
    )
    return {**document.get("pytest", {}), **document.get("tool", {}).get("pytest", {})}.get(key)
