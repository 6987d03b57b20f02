"""Scanning in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_tfdebug.scan.found import result
from pytest_tfdebug.scan.layout import Work, model_files
from pytest_tfdebug.scan.scanner import Scanner
from pytest_tfdebug.scan.tree import DiskTree, Tree

if TYPE_CHECKING:
    import os

    from pytest_tfdebug.scan.report import ScanResult


def scan(
    repo: str | os.PathLike[str] = ".", test_method_name: str | None = None, *, models_dir: str = ""
) -> ScanResult:
    """Scan a transformers-style repository for the common tests that its models skip.

    Args:
        repo: Root of the repository.
        test_method_name: The one test to scan; every common test where it is not given.
        models_dir: Where its models' tests are, relative to the root; found where it is not given.

    Raises:
        ScanError: If there is no such directory, it has no model tests or no common tests, or none of this name.
    """
    return scan_tree(DiskTree(repo), test_method_name, models_dir)


def scan_tree(tree: Tree, test: str | None, models_dir: str) -> ScanResult:
    """Scan the files of a tree.

    Raises:
        ScanError: As for :func:`scan`.
    """
    places = tuple(model_files(tree, models_dir))
    part = Scanner(Work("", places, test), tree).scan()
    return result(part.models, part.bad, test)
