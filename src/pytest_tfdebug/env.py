"""``tfdebug env``: print the environment that a result depends on."""

from __future__ import annotations

import argparse
import json
import sys
from importlib import import_module, util
from typing import TYPE_CHECKING

from pytest_tfdebug.environment import environment, lines

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the environment as text, or as one JSON object with ``--json``."""
    parser = argparse.ArgumentParser(prog="tfdebug env", description="Print the environment.")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    as_json = parser.parse_args(arguments).json
    if util.find_spec("torch") is not None:
        import_module("torch")  # its flags are part of the answer
    described = environment(with_git=True, with_driver=True)
    text = json.dumps(described.to_dict(), indent=2) if as_json else "\n".join(lines(described))
    sys.stdout.write(f"{text}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
