"""The repro of a failed golden check: the model, its inputs, the golden and a script that compares them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_tfdebug.parity.rules import missed
from pytest_tfdebug.parity.tolerance import DEFAULTS, flattened
from pytest_tfdebug.tracing.selection import names_of
from pytest_tfdebug.tracing.state import autocast_of

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from pytest_tfdebug.goldens.port_call import PortCall
    from pytest_tfdebug.goldens.settings import CheckSettings
    from pytest_tfdebug.options import Repros


def write_golden_repro(
    wanted: Repros, golden: Path, test: str, *, model: torch.nn.Module, called: PortCall, settings: CheckSettings
) -> str:
    """Write the repro of a check and return where it lies, in a sentence.

    Args:
        wanted: Where the run's repros go.
        golden: The golden's file.
        test: Node id of the test.
        model: The model under test.
        called: How it was called.
        settings: The settings of the check.
    """
    from pytest_tfdebug.repro.write import FailedCall, write_repro

    if settings.rename is not None and callable(settings.rename):
        return "No repro: rename= is a function; a dict can be written."
    allowed, own = flattened(settings.tolerances), names_of(model)
    options = {
        "rtol": allowed.rtol,
        "atol": allowed.atol,
        "tolerances": {
            key: (pair.rtol, pair.atol)
            for key, pair in allowed.overrides
            if key in DEFAULTS or missed(key, own) is None
        },
        "rename": None if settings.rename is None else dict(settings.rename),
        "internal": settings.internal,
        "tolerance": allowed.by,
    }
    given = {**_picked(settings), **({} if called.method == "forward" else {"method": called.method})}
    picked = "".join(f", {name}={value!r}" for name, value in given.items())
    check = (
        'expected = pytest_tfdebug.Trace.load(HERE / "golden.safetensors")',
        f"actual = pytest_tfdebug.trace(model, *args, **kwargs{picked})",
        f"report = pytest_tfdebug.compare(expected, actual, **{options!r})",
        "print(report)",
        "sys.exit(not report.ok)",
    )
    files, autocast = {"golden.safetensors": golden}, autocast_of(model)
    failed = FailedCall(test, "parity", model, called.args, called.kwargs, check, files, autocast)
    return write_repro(wanted, failed)


def _picked(settings: CheckSettings) -> dict[str, str | tuple[str, ...]]:
    """Return what a trace of the port leaves out; globs are over the paths of the reference, so only without rename."""
    picked: dict[str, str | tuple[str, ...]] = {} if settings.level == "all" else {"level": settings.level}
    if settings.rename is None:
        globs = {"include": settings.include, "exclude": settings.exclude}
        picked |= {name: (glob,) if isinstance(glob, str) else tuple(glob) for name, glob in globs.items() if glob}
    return picked
