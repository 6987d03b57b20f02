"""Fixes of conformer."""

from __future__ import annotations

from fixes.fix import Fix, made, numbers

FIXES = (
    Fix(
        "conformer",
        "9453375",
        "conformer/conformer.py",
        made("conformer", "ConformerConvModule", {"x": numbers(2, 6, 8)}, 8, kernel_size=3),
    ),
)
