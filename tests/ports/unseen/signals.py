"""What looks at pictures, sound or series."""

from __future__ import annotations

PORTS = ()
