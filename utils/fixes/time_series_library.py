"""Fixes of Time-Series-Library."""

from __future__ import annotations

from fixes.fix import Build, Fix, made, numbers


def _fix(commit: str, file: str, build: Build) -> Fix:
    return Fix("Time-Series-Library", commit, f"models/{file}.py", build)


FIXES = (_fix("0213864", "Koopa", made("Koopa", "KPLayer", {"z": numbers(2, 12, 4), "pred_len": 3})),)
