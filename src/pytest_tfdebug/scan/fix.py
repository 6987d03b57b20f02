"""What ``--fix`` rewrites, with libcst: skips that skip nothing any more, and skips that could say why."""

from __future__ import annotations

import difflib
import json
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from pytest_tfdebug.scan.errors import ScanError
from pytest_tfdebug.scan.read.bindings import BoundFunction, Decorator
from pytest_tfdebug.scan.read.files import decode, replace
from pytest_tfdebug.scan.read.layout import Work, is_owned, model_files
from pytest_tfdebug.scan.read.outline import uncommented
from pytest_tfdebug.scan.resolve.class_states import unnumbered
from pytest_tfdebug.scan.resolve.decorators import SKIP_DECORATORS
from pytest_tfdebug.scan.resolve.workspace import External
from pytest_tfdebug.scan.scanner import Scanner

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_tfdebug.scan.read.tree import DiskTree, Tree
    from pytest_tfdebug.scan.resolve.classes import Linked


#: How comments begin that are meant for tools.
_NO_REASONS = ("noqa", "type:", "fmt:", "pylint:", "pragma:", "copied from", "ignore copy")


class StaleMark(NamedTuple):
    """Something to rewrite: the file and line of a ``def`` or decorator, and the name that the ``def`` binds.

    ``reason`` is what to give a decorator, empty where none is known, and None for a function that is to go.
    """

    path: str
    line: int
    name: str
    text: str
    reason: str | None = None


class StaleSkips:
    """Finds the stale skips of a repository whose models have been scanned."""

    def __init__(self, scanner: Scanner, tree: Tree) -> None:
        self._scanner, self._tree = scanner, tree
        self._classes = [cls for cls in scanner.linker.classes if is_owned(cls.file.path, scanner.owned)]
        self._heirs: dict[Linked, list[Linked]] = {}
        for cls in scanner.linker.classes:
            for base in cls.mro:
                self._heirs.setdefault(base, []).append(cls)

    def find(self) -> list[StaleMark]:
        """Return every override that skips a test that no base gives it, by place."""
        found: list[StaleMark] = []
        for cls in self._classes:
            heirs = self._heirs[cls]
            if not any(heir.is_test_case or heir.name.startswith("Test") for heir in heirs):
                continue
            if any(not heir.is_closed for heir in heirs):
                continue
            for name, member in cls.facts.members.items():
                if not isinstance(member, BoundFunction) or not name.startswith("test_"):
                    continue
                # a base may give this name to the class or to one that inherits from it
                names = (name, *unnumbered(name))
                is_needed = any(heir.after(cls, each) is not None for heir in heirs for each in names)
                if not is_needed and member.does_nothing_but_skip and self._is_skipped(cls, name, member):
                    text = f"{cls.name}.{name} skips a test that no base gives it"
                    found.append(StaleMark(cls.file.path, member.line, name, text))
        return sorted(set(found), key=lambda each: each[:4])

    def _is_skipped(self, cls: Linked, name: str, function: BoundFunction) -> bool:
        state = self._scanner.states.definitions.of(name, cls, function).state
        is_skipped = state is not None and state.is_skipped
        return is_skipped or any(not skip.guards for skip in self._scanner.runner.test(cls, function, cls)[0])

    def without_reason(self) -> Iterator[StaleMark]:
        """Yield every decorator that skips without a reason, with the reason that a comment or docstring gives."""
        for cls in self._classes:
            functions = [member for member in cls.facts.members.values() if isinstance(member, BoundFunction)]
            holders = [(cls.name, each, "") for each in cls.facts.decorators]
            holders += [(f"{cls.name}.{of.name}", each, of.docstring) for of in functions for each in of.decorators]
            for name, decorator, docstring in holders:
                if self._is_bare(cls, decorator):
                    reason = self._comment(cls.file.path, decorator.line) or docstring
                    text = f"{name} is skipped without a reason{'' if reason else ', and nothing beside it says why'}"
                    yield StaleMark(cls.file.path, decorator.line, "", text, reason)

    def _comment(self, path: str, line: int) -> str:
        """Return the comment on a line, or the one above it."""
        lines = decode(self._tree.read(path)).split("\n")
        own, above = lines[line - 1], lines[line - 2].strip() if line > 1 else ""
        comments = (own[len(uncommented(own)) :], above if above.startswith("#") else "")
        texts = (comment.lstrip("# ").strip() for comment in comments)
        return next((text for text in texts if text and not text.lower().startswith(_NO_REASONS)), "")

    def _is_bare(self, cls: Linked, decorator: Decorator) -> bool:
        symbol = self._scanner.workspace.callee(cls.file, self._scanner.workspace.node(cls.file, decorator))
        known = SKIP_DECORATORS.get(symbol.name) if isinstance(symbol, External) else None
        skips = self._scanner.decorators.of(cls.file, decorator, cls.facts)
        return known is not None and not known.has_condition and not any(skip.reason.strip() for skip in skips)


def rewrites(tree: DiskTree, models_dir: str, kind: str) -> tuple[list[Rewrite], dict[str, str]]:
    """Return every file of a repository that is to be rewritten, and those that were left out, with the reason.

    ``kind`` is ``"stale"`` for what skips nothing any more, ``"reasons"`` for skips whose reason stands beside them.
    """
    scanner = Scanner(Work("", tuple(model_files(tree, models_dir)), None), tree)
    bad = scanner.scan().bad
    skips = StaleSkips(scanner, tree)
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
    """Takes out functions, and gives decorators a reason."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, findings: Iterable[StaleMark]) -> None:
        super().__init__()
        self._findings = {(each.line, each.name): each for each in findings}
        self._removed: list[Any] = []

    def _finding(self, node: Any, name: str = "") -> StaleMark | None:
        return self._findings.get((self.get_metadata(PositionProvider, node).start.line, name))

    def leave_FunctionDef(self, original_node: Any, updated_node: Any) -> Any:  # noqa: N802 - libcst's name
        if self._finding(original_node, original_node.name.value) is None:
            return updated_node
        self._removed.append(original_node)
        return cst.RemoveFromParent()

    def leave_Decorator(self, original_node: Any, updated_node: Any) -> Any:  # noqa: N802
        finding = self._finding(original_node)
        if finding is None:
            return updated_node
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
