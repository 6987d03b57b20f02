"""Whose code a frame runs, the user's or that of a library; and for whom a library did something, by the frames."""

from __future__ import annotations

import os
import sys
import sysconfig
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

    import pytest


#: Packages that are never the user's code, even if a developer has installed them from a checkout.
_LIBRARIES = frozenset(
    {
        *("accelerate", "huggingface_hub", "peft", "pytest_tfdebug", "safetensors", "tokenizers", "torch"),
        *("transformers", "transformers_modules"),  # the last is the code of a repository, in the hub's cache
    }
)


def is_users(frame: FrameType) -> bool:
    """Tell whether a frame runs the user's code: not the standard library, an installed package or this package."""
    return package_of(frame) not in _LIBRARIES and not is_installed(frame.f_code.co_filename)


def module_of(frame: FrameType) -> str:
    """Return the name of the module whose code a frame runs."""
    return str(frame.f_globals.get("__name__", ""))


def package_of(frame: FrameType) -> str:
    """Return the name of the package whose code a frame runs."""
    return module_of(frame).partition(".")[0]


@cache
def is_installed(file: str) -> bool:
    """Tell whether a file is one of the standard library or of an installed package, or none at all: ``<string>``."""
    folders = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return file.startswith("<") or os.path.realpath(file).startswith(
        tuple(f"{os.path.realpath(folder)}{os.sep}" for folder in folders)
    )


_MAX_DEPTH = 400


@dataclass(frozen=True)
class Owner:
    """For whom it was done; nobody at import."""

    test: str = ""  # the node id of the test that ran, empty outside a test
    # name and base id of the fixture that was being set up, when its scope is wider than a test
    fixture: tuple[str, str] | None = None

    def is_for(self, item: pytest.Item | pytest.Collector) -> bool:
        """Tell whether it was done in a test, or in a fixture that the test uses."""
        if self.fixture is None:
            return bool(self.test) and self.test == item.nodeid
        name, base = self.fixture
        return name in getattr(item, "fixturenames", ()) and item.nodeid.startswith(base)


def running_owner() -> Owner:
    """Walk up the frames to the fixture's set-up and the test that runs."""
    fixture = None
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - only the frames show the test and the fixture's set-up
    for _ in range(_MAX_DEPTH):
        if frame is None:
            break
        name, values = frame.f_code.co_name, frame.f_locals
        if name == "pytest_fixture_setup" and fixture is None and "fixturedef" in values:
            definition = values["fixturedef"]
            fixture = (definition.argname, definition.baseid) if definition.scope != "function" else None
        elif name == "pytest_runtest_protocol" and "item" in values:
            return Owner(values["item"].nodeid, fixture)
        elif name in {"pytest_make_collect_report", "pytest_load_initial_conftests"}:
            return Owner()
        frame = frame.f_back
    return Owner(os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0], fixture)  # another thread of the test
