"""Scanning in one call."""

from __future__ import annotations

import os
from operator import attrgetter
from typing import TYPE_CHECKING

from pytest_tfdebug.scan.errors import ScanError
from pytest_tfdebug.scan.parser import Parser
from pytest_tfdebug.scan.reading import CHECKED, Reader
from pytest_tfdebug.scan.report import Case, CommonTest, ScanResult
from pytest_tfdebug.scan.scanner import Scanner, model_files
from pytest_tfdebug.scan.tree import DiskTree
from pytest_tfdebug.scan.workspace import Workspace

if TYPE_CHECKING:
    from pytest_tfdebug.scan.layout import Place
    from pytest_tfdebug.scan.scanner import Scan
    from pytest_tfdebug.scan.tree import Tree


def scan(repo: str | os.PathLike[str] = ".", test_method_name: str | None = None, *, exact: bool = False) -> ScanResult:
    """Scan a transformers-style repository for the common tests that its models skip.

    Args:
        repo: Root of the repository.
        test_method_name: The one test to scan; every common test where it is not given.
        exact: Parse every file whole instead of cutting out what matters. Slow, and the answers are the same.

    Raises:
        ScanError: If there is no such directory, it has no model tests or no common tests, or none of this name.
    """
    if not os.path.isdir(repo):
        raise ScanError(f"{repo} is not a directory; name the root of a repository with --repo.")
    return scan_tree(DiskTree(repo), test_method_name, exact=exact)


def scan_tree(tree: Tree, test: str | None = None, *, exact: bool = False) -> ScanResult:
    """Scan the files of a tree.

    Raises:
        ScanError: As for :func:`scan`.
    """
    places = model_files(tree)
    reader = Reader(tree, is_exact=exact, is_checked=len(places) <= CHECKED)
    workspace = Workspace(tree, reader, Parser(is_exact=exact))
    return result(Scanner(workspace, places).scan(places, test), places, test)


def result(found: Scan, places: list[Place], test: str | None) -> ScanResult:
    """Return the report of a scan.

    Args:
        found: What it found.
        places: The model test files.
        test: The one test that was scanned; all where it is None.

    Raises:
        ScanError: If there is nothing to report.
    """
    cases: dict[str, list[Case]] = {}
    for cls in sorted(found.classes, key=attrgetter("model", "name")):
        for name, state in cls.decided.states.items():
            cases.setdefault(name, []).append(Case(cls.model, cls.name, state))
    names = sorted(cases)
    check(found, names, places, test)
    tests = {name: CommonTest(name, found.origin(name), tuple(cases[name])) for name in names}
    return ScanResult(tests, sorted({where.model for where in places}), found.bad, bases(found))


def check(found: Scan, names: list[str], places: list[Place], test: str | None) -> None:
    """Check that a scan found a common test, and the one that was asked for.

    Raises:
        ScanError: If it did not.
    """
    common = {name for mixin in found.mixins for name in mixin.tests}
    if not common:
        count = len({where.model for where in places})
        raise ScanError(
            f"No common tests: no class of the {count} models inherits a test_* method from a mixin "
            "outside the models directory; check that the mixins' files are in the repository."
        )
    if test is not None and test not in names:
        import difflib

        near = difflib.get_close_matches(test, common, n=3, cutoff=0.5)
        hint = f"did you mean {', '.join(near)}?" if near else "run without --test_method_name to list all."
        raise ScanError(f"{test!r} is not one of the {len(common)} common tests; {hint}")


def bases(found: Scan) -> list[str]:
    """Return the base classes that a scan found neither in the repository nor among those known by name."""
    bases = sorted(found.unresolved, key=attrgetter("path", "line"))  # whichever process met them first
    return [f"{base.path}:{base.line}: {base.base}, a base of {base.cls}" for base in bases]
