"""What stood in the environment when a port was written, and is gone from it."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import packaging.version


def with_pkg_resources():
    """Let a port find ``pkg_resources``, which setuptools has had no more since version 82."""
    sys.modules.setdefault("pkg_resources", SimpleNamespace(packaging=packaging, parse_version=packaging.version.parse))
