"""Puts skips right in the source, with libcst: nothing else in a file changes."""

from __future__ import annotations

import difflib
import json
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from pytest_tfdebug.scan.errors import ScanError
from pytest_tfdebug.scan.ratchet.stale import StaleMark, StaleSkips
from pytest_tfdebug.scan.read.files import replace
from pytest_tfdebug.scan.read.layout import Work, model_files
from pytest_tfdebug.scan.scanner import Scanner

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_tfdebug.scan.read.tree import DiskTree


def rewrites(tree: DiskTree, models_dir: str, kind: str, today: dt.date) -> tuple[list[Rewrite], dict[str, str]]:
    """Return every file of a repository that is to be rewritten, and those that were left out, with the reason.

    ``kind`` is ``"stale"`` for what skips nothing any more, ``"reasons"`` for skips whose reason stands beside them.
    """
    scanner = Scanner(Work("", tuple(model_files(tree, models_dir)), None), tree)
    bad = scanner.scan().bad
    skips = StaleSkips(scanner, tree, today)
    found = skips.find() if kind == "stale" else sorted(skips.without_reason())
    by_path = {path: list(findings) for path, findings in groupby(found, attrgetter("path"))}
    outside = {path for path in by_path if not tree.is_inside(path)}
    inside = [Rewrite(path, tree.read(path), by_path[path]) for path in by_path if path not in outside]
    return inside, bad | dict.fromkeys(outside, "a link that leads out of the repository")


class Rewrite:
    """A file with its findings put right; where libcst cannot read the whole of it, ``problem`` says why."""

    def __init__(self, path: str, content: bytes, findings: Sequence[StaleMark]) -> None:
        self.path, self.findings, self.content, self.problem = path, findings, content, ""
        self._before = self._after = ""
        wanted = [each for each in findings if each.reason != ""]
        try:
            module = cst.parse_module(content)
            changed = MetadataWrapper(module, unsafe_skip_copy=True).visit(_Rewriter(wanted))
            self._before, self._after, self.content = module.code, changed.code, changed.bytes
        except (cst.ParserSyntaxError, UnicodeError, RecursionError) as error:
            self.problem = f"{path}: left as it is, as libcst cannot read all of it: {str(error).splitlines()[0]}"

    def diff(self) -> Iterator[str]:
        """Yield the lines of a unified diff."""
        before, after = self._before.splitlines(), self._after.splitlines()
        yield from difflib.unified_diff(before, after, f"a/{self.path}", f"b/{self.path}", lineterm="")

    def write(self, root: str) -> None:
        """Replace the file, which keeps its mode; of a link inside the root what it leads to is replaced."""
        target = Path(root, self.path).resolve()
        if not target.is_relative_to(Path(root).resolve()):  # the link has changed since it was read
            raise ScanError(f"Cannot write {self.path}: a link that leads out of the repository.")
        try:
            mode = target.stat().st_mode
            replace(target, [self.content])
            target.chmod(mode)
        except OSError as error:
            raise ScanError(f"Cannot write {self.path}: {error.strerror or error}.") from error


class _Rewriter(cst.CSTTransformer):  # type: ignore[misc] # libcst is not typed here
    """Takes out functions and decorators, and gives decorators a reason."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, findings: Iterable[StaleMark]) -> None:
        super().__init__()
        self._findings = {(each.line, each.name): each for each in findings}
        self._removed: list[Any] = []

    def _finding(self, node: Any, name: str = "") -> StaleMark | None:
        return self._findings.get((self.get_metadata(PositionProvider, node).start.line, name))

    def _out(self, node: Any) -> Any:
        self._removed.append(node)
        return cst.RemoveFromParent()

    def leave_FunctionDef(self, original_node: Any, updated_node: Any) -> Any:  # noqa: N802 - libcst's name
        """Take a function out."""
        return self._out(original_node) if self._finding(original_node, original_node.name.value) else updated_node

    def leave_Decorator(self, original_node: Any, updated_node: Any) -> Any:  # noqa: N802
        """Take a decorator out, or give it a reason."""
        finding = self._finding(original_node)
        if finding is None:
            return updated_node
        if finding.reason is None:
            return cst.RemoveFromParent()
        reason = cst.parse_expression(f"_(reason={json.dumps(finding.reason, ensure_ascii=False)})").args
        function = getattr(updated_node.decorator, "func", updated_node.decorator)
        return updated_node.with_changes(decorator=cst.Call(function, reason))

    def leave_IndentedBlock(self, original_node: Any, updated_node: Any) -> Any:  # noqa: N802
        """Leave no blank line at the top of a block whose first statement is gone."""
        was, (first, *rest) = original_node.body[0], updated_node.body or (None,)
        if first is None or not any(was is each for each in self._removed):
            return updated_node
        kept = [line for line in first.leading_lines if line.comment is not None]
        blank = [line for line in was.leading_lines if line.comment is None]
        return updated_node.with_changes(body=[first.with_changes(leading_lines=[*blank, *kept]), *rest])
