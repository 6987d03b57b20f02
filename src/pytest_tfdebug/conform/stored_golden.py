"""``golden``: the model gives what its golden holds, if the test has one or is recording one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_tfdebug.conform.finding import Finding
from pytest_tfdebug.errors import GoldenError, ParityError
from pytest_tfdebug.goldens.fixture import goldens_of
from pytest_tfdebug.goldens.modes import RECORDING, golden_mode
from pytest_tfdebug.goldens.session import GoldenSession
from pytest_tfdebug.goldens.variants import variants
from pytest_tfdebug.options import Options
from pytest_tfdebug.running import RUNNING

if TYPE_CHECKING:
    from pytest_tfdebug.conform.subject import Subject


def exists(subject: Subject) -> str:
    """Return why there is no golden to hold a model to; empty if there is one, or one is to be recorded."""
    item = RUNNING.item
    if item is None:
        return "goldens belong to tests, and no test is running"
    mode = golden_mode(item.config)
    if mode == "off":
        return "--tf-golden=off"
    chosen = variants(subject.model, Options.of(item.config).golden_variant)
    place = GoldenSession.of(item.config).place(item, subject.name, chosen, is_new=False)
    return "" if mode in RECORDING or place.exists() else "it has no golden; --tf-golden=missing records one"


def agrees(subject: Subject) -> Finding:
    """Hold the plain call to the golden, or record it."""
    if RUNNING.item is None:
        return Finding()
    try:
        goldens_of(RUNNING.item).check(subject.model, name=subject.name, **subject.call.inputs)
    except ParityError as error:
        return Finding(str(error), culprit=error.report.culprit)
    except GoldenError as error:
        return Finding(str(error))
    return Finding()
