"""Settings of the tests that run real models."""

from importlib import import_module

import pytest

# torch refuses to load its compiler a second time. What the plugin looks for in ``sys.modules`` is not named here.
_LOADED_ONCE = (
    "torch._dynamo",
    "pytest_tfdebug.goldens.fixture",
    "pytest_tfdebug.goldens.session",
    "pytest_tfdebug.overflow.marker",
    "pytest_tfdebug.overflow.marker",
    "pytest_tfdebug.triage.plugin",
)


@pytest.fixture(scope="session", autouse=True)
def _loaded_once():
    """Load what pytester would unload after each run; a process that only hands out tests needs none of it."""
    for name in _LOADED_ONCE:
        import_module(name)
    package = import_module("pytest_tfdebug")
    for name in package.__all__:
        getattr(package, name)  # the package keeps the public names that it has looked up
