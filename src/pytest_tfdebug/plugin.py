"""The pytest entry point: hooks and fixtures, each a few lines that delegate.

It is loaded in every pytest run of its users, so it imports the standard library and pytest alone; what a marker or
an option needs is imported when one asks for it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import pytest  # noqa: TC002 - fixtures and hook markers use it at run time

from pytest_tfdebug import options

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Marker -> module whose hooks run the marked tests; registered in a run that has such a test.
MARKER_PLUGINS: dict[str, str] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the ``--tf-*`` flags and ``tf_*`` ini keys."""
    options.register(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers and refuse bad ini values."""
    options.register_markers(config)
    options.Options.of(config)


def pytest_collection_modifyitems(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Register the hooks behind each marker that a collected test carries."""
    for marker, module in MARKER_PLUGINS.items():
        if any(item.get_closest_marker(marker) for item in items) and not config.pluginmanager.has_plugin(module):
            config.pluginmanager.register(import_module(module), module)
