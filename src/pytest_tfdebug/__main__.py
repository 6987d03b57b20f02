"""The command ``tfdebug``, also ``python -m pytest_tfdebug``: ``scan``, ``review``, ``audit`` and others.

As a console script it imports nothing from the directory that it is started in, whatever lies there.
"""

from __future__ import annotations

import sys
from importlib import import_module

#: Command -> the module whose ``main`` it is, and what it does.
_COMMANDS = {
    "scan": ("pytest_tfdebug.scan.__main__", "which common tests does each model of a repository skip, and why"),
    "review": ("pytest_tfdebug.review", "how the goldens here differ from a git revision, in words"),
    "audit": ("pytest_tfdebug.loading.command", "did every tensor of a checkpoint arrive in the model"),
    "bisect": ("pytest_tfdebug.bisect.command", "which release or commit changed what a test's models compute"),
    "skill": ("pytest_tfdebug.skill", "how a program mends a port, on one page: for agents"),
    "env": ("pytest_tfdebug.environment", "the environment that a result depends on"),
}


def main() -> int:
    """Run the command that was typed; 2 where there is no such one."""
    name, arguments = (sys.argv[1] if len(sys.argv) > 1 else ""), sys.argv[2:]
    if name in _COMMANDS:
        status: int = import_module(_COMMANDS[name][0]).main(arguments)
        return status
    if name == "--version":
        sys.stdout.write(f"pytest-tfdebug {import_module('pytest_tfdebug').__version__}\n")
        return 0
    lines = [f"  {command:<7} {text}" for command, (_, text) in _COMMANDS.items()]
    usage = "\n".join(["usage: tfdebug COMMAND [OPTIONS]", "", *lines, "", "tfdebug COMMAND --help says more."])
    if name in ("-h", "--help"):
        sys.stdout.write(f"{usage}\n")
        return 0
    sys.stderr.write(f"{usage}\n\nerror: {name!r} is no command.\n" if name else f"{usage}\n")
    return 2


if __name__ == "__main__":
    raise SystemExit(main())
