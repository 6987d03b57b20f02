"""Scanning in one call."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_tfdebug.scan.cache import Known
from pytest_tfdebug.scan.errors import ScanError
from pytest_tfdebug.scan.parser import Parser
from pytest_tfdebug.scan.reading import Reader
from pytest_tfdebug.scan.report import Case, CommonTest, ScanResult
from pytest_tfdebug.scan.scanner import Scan, Scanner, model_files
from pytest_tfdebug.scan.tree import DiskTree
from pytest_tfdebug.scan.workspace import Workspace

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable

    from pytest_tfdebug.scan.layout import Place
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
    root = Path(repo)
    if not root.is_dir():
        raise ScanError(f"{repo} is not a directory; name the root of a repository with --repo.")
    return scan_tree(DiskTree(root), test_method_name, exact=exact)


def scan_tree(tree: Tree, test: str | None = None, *, exact: bool = False) -> ScanResult:
    """Scan the files of a tree.

    Raises:
        ScanError: As for :func:`scan`.
    """
    return scan_with(tree, Reader(tree, Known({}, {}), is_exact=exact), test)


def scan_with(
    tree: Tree, reader: Reader, test: str | None, track: Callable[[list[Place]], Iterable[Place]] = iter
) -> ScanResult:
    """Scan the files of a tree with facts that a reader may know already.

    Args:
        tree: The files.
        reader: Reads facts from the tree.
        test: The one test to scan; all where it is None.
        track: Is given the model test files and yields them, showing how far the scan is.

    Raises:
        ScanError: As for :func:`scan`.
    """
    places = model_files(tree)
    reader.prefetch([found.path for found in places])
    workspace = Workspace(tree, reader, Parser(reader.known.expressions, is_exact=reader.is_exact))
    scanner = Scanner(workspace, places)
    return result(scanner.scan(test, track), scanner.common_tests(), test)


def result(found: Scan, common: set[str], test: str | None) -> ScanResult:
    """Return the report of a scan.

    Raises:
        ScanError: If there is nothing to report.
    """
    if not common:
        raise ScanError(
            f"No common tests: no class of the {len(found.models)} models inherits a test_* method from a mixin "
            "outside the models directory; check that the mixins' files are in the repository."
        )
    if test is not None and test not in found.origins:
        near = difflib.get_close_matches(test, common, n=3, cutoff=0.5)
        hint = f"did you mean {', '.join(near)}?" if near else "run without --test_method_name to list all."
        raise ScanError(f"{test!r} is not one of the {len(common)} common tests; {hint}")
    cases: dict[str, list[Case]] = {name: [] for name in found.origins}
    for cls in sorted(found.classes, key=lambda cls: (cls.model, cls.name)):
        for name, state in cls.states.items():
            cases[name].append(Case(cls.model, cls.name, state))
    tests = {name: CommonTest(name, origin, tuple(cases[name])) for name, origin in found.origins.items()}
    unresolved = [f"{base.path}:{base.line}: {base.base}, a base of {base.cls}" for base in found.unresolved]
    return ScanResult(tests, found.models, found.bad, unresolved)
