"""The tests on every Python that is admitted, with the oldest and the newest libraries.

The classifiers name those on which tests have passed; docs/project.md has the table of which.

``nox --list`` shows the sessions; ``nox -s "tests-3.12(newest)"`` runs one. A Python that is not there is left out.
"""

from __future__ import annotations

import nox

nox.needs_version = ">=2024.10.9"
nox.options.sessions = ["tests", "release"]
nox.options.error_on_missing_interpreters = False

PYTHONS = ["3.10", "3.11", "3.12", "3.13"]
PROJECT = nox.project.load_toml("pyproject.toml")
#: What is pinned: by constraints.txt what `.ci/run` installs, and by nothing what the package index has today.
CONSTRAINTS = {"oldest": "constraints-oldest.txt", "pinned": "constraints.txt", "newest": None}


@nox.session(python=PYTHONS)
@nox.parametrize("libraries", list(CONSTRAINTS), ids=list(CONSTRAINTS))
def tests(session: nox.Session, libraries: str) -> None:
    """Run the tests; all but ``pinned`` on Python 3.11 download the torch for GPUs, which is gigabytes."""
    file = CONSTRAINTS[libraries]
    constraints = [] if file is None else ["--constraint", file]
    groups = nox.project.dependency_groups(PROJECT, "test")
    session.install(*constraints, "--editable", ".", *groups)
    session.run("python", "-m", "pytest", "-n", "2", *session.posargs)


@nox.session(python=PYTHONS)
def release(session: nox.Session) -> None:
    """Build the sdist and the wheel, and try each in an empty environment."""
    session.run("python", "utils/release.py")
