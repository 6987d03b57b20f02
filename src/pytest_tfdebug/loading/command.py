"""``tfdebug audit CHECKPOINT --model module:build``: did every tensor of a checkpoint arrive in the model."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.redaction import leaving

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what did not arrive; 0 where all did, 1 where not, 2 where nothing can be judged."""
    parser = argparse.ArgumentParser(prog="tfdebug audit", description=(__doc__ or "").partition(": ")[2])
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="a directory, or a file of weights")
    parser.add_argument(
        "--model",
        required=True,
        metavar="MODULE:FUNCTION",
        help="what loads the model: a function without arguments of a module that can be imported from here",
    )
    parser.add_argument("--allow", action="append", default=[], metavar="REGEX", help="names that need not arrive")
    parser.add_argument("--all", action="store_true", help="list every tensor")
    chosen = parser.parse_args(arguments)
    try:
        from pytest_tfdebug.loading.audit import audit

        report = audit(_built(chosen.model), chosen.checkpoint, allow=chosen.allow)
    except TFDebugError as error:
        sys.stderr.write(leaving(f"error: {error}", keep="\n") + "\n")
        return 2
    sys.stdout.write(leaving(report.check_text().to_text("full" if chosen.all else "normal"), keep="\n") + "\n")
    return 0 if report else 1


def _built(named: str) -> Any:  # noqa: ANN401 - what a function of the user returns
    """Return what ``module:function`` makes; the user named the module, so the current directory is looked in."""
    module_name, _, function_name = named.partition(":")
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - a string is what the path holds
    try:
        build = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError, ValueError) as error:
        raise TFDebugError(
            f"--model={named} cannot be imported: {error}.\n"
            "Name a module that can be imported from this directory, and a function of it: --model=my_port:load."
        ) from error
    finally:
        sys.path.pop(0)
    try:
        return build()
    except Exception as error:
        raise TFDebugError(
            f"--model={named} raised {type(error).__name__}: {error}.\n"
            "Name a function that takes nothing and returns the model: --model=my_port:load."
        ) from error


if __name__ == "__main__":
    raise SystemExit(main())
