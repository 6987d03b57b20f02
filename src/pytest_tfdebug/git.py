"""Asks git in any repository: nothing that the repository configures is run, and nothing is fetched.

Source:
    https://git-scm.com/docs/git-config, the keys that name a program.
"""

from __future__ import annotations

import os
import subprocess

#: Keys of a repository's configuration that name a program or open a connection -> what they are for our calls.
_HARMLESS = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.sshCommand": "false",
    "credential.helper": "",
    "log.showSignature": "false",
    "protocol.allow": "never",
}
#: What keeps a command from running a program on the files that differ, and from looking into submodules: git asks
#: these by another git, which reads their own configuration and none of ours.
_SHOWING = ("--no-ext-diff", "--no-textconv")
_OPTIONS = {
    "diff": (*_SHOWING, "--ignore-submodules=dirty"),
    "log": _SHOWING,
    "show": _SHOWING,
    "status": ("--ignore-submodules=dirty",),
}
_OFF = {
    "GIT_ALLOW_PROTOCOL": "none",  # a blob that is not here stays away
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",  # a git that is killed leaves no lock behind
    "GIT_SSH_COMMAND": "false",
    "GIT_TERMINAL_PROMPT": "0",
}
#: What each filter of files has: a program, or one that is left running.
_FILTER = {"clean": "", "smudge": "", "process": "", "required": "false"}


class GitError(Exception):
    """Git is not there, or has no answer; the message is what it says."""


def git(
    root: str | os.PathLike[str], *arguments: str, seconds: float | None = None, given: bytes | None = None
) -> bytes:
    """Return what a command of git writes, which reads what it is given."""

    def run(settings: dict[str, str], *command: str) -> subprocess.CompletedProcess[bytes]:
        whole, environment = ["git", "-C", os.fspath(root), *command], _environment(settings)
        return subprocess.run(whole, check=False, capture_output=True, env=environment, timeout=seconds, input=given)  # noqa: S603 - git, with arguments of our own

    try:
        listed = run(_HARMLESS, "config", "--null", "--name-only", "--get-regexp", r"^filter\.")
        names = {key.split(".", 1)[1].rpartition(".")[0] for key in os.fsdecode(listed.stdout).split("\0") if key}
        filters = {f"filter.{name}.{key}": value for name in names for key, value in _FILTER.items()}
        done = run(_HARMLESS | filters, arguments[0], *_OPTIONS.get(arguments[0], ()), *arguments[1:])
    except FileNotFoundError as error:
        raise GitError("git is not installed") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise GitError(str(error)) from error
    if done.returncode:
        raise GitError(done.stderr.decode(errors="replace").strip())
    return done.stdout


def _environment(settings: dict[str, str]) -> dict[str, str]:
    """Return the environment of a git with these settings, which come before those of the repository."""
    first = int(os.environ.get("GIT_CONFIG_COUNT") or 0)  # a job may have named its own, such as safe.directory
    found = {**os.environ, **_OFF, "GIT_CONFIG_COUNT": str(first + len(settings))}
    for number, (key, value) in enumerate(settings.items(), first):
        found |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    found.pop("GIT_EXTERNAL_DIFF", None)
    return found
