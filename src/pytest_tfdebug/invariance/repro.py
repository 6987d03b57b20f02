"""What ``--tf-repro`` writes for a failed invariance check: the observed call and the function of the marker's name."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.invariance import api
from pytest_tfdebug.repro.write import FailedCall, write_repro

if TYPE_CHECKING:
    from pytest_tfdebug.invariance.calls.observed_call import ObservedCall
    from pytest_tfdebug.invariance.checks.settings import Settings
    from pytest_tfdebug.options import Repros


def write(repros: Repros, test: str, name: str, settings: Settings, call: ObservedCall) -> str:
    """Write a repro and return the line that says how to run it, or why there is none.

    Args:
        repros: Where repros go.
        test: Node id of the test.
        name: The marker.
        settings: The settings of the marker.
        call: The call whose answer changed.
    """
    with call.restored():
        return write_repro(
            repros,
            FailedCall(test, name, call.model, (), call.inputs, tuple(_check(name, settings)), autocast=call.autocast),
        )


def _check(name: str, settings: Settings) -> list[str]:
    function = f"assert_{name}"
    known = inspect.signature(getattr(api, function)).parameters
    given: dict[str, Any] = {item.name: getattr(settings, item.name) for item in fields(settings)}
    given["names"] = given.pop("inputs")
    options = {
        key: value for key, value in given.items() if key in known and value is not None and value != known[key].default
    }
    written = ", ".join(["model", "kwargs", *(f"{key}={value!r}" for key, value in options.items())])
    return [
        "try:",
        f"    pytest_tfdebug.{function}({written})",
        "except pytest_tfdebug.InvarianceError as error:",
        "    print(error)",
        "    sys.exit(1)",
    ]
