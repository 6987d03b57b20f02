"""What reads or writes text."""

from __future__ import annotations

PORTS = ()
