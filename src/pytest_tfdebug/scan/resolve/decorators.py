"""What a decorator does to a test: the skips in it, and what each depends on."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import libcst as cst

from pytest_tfdebug.scan.read import syntax
from pytest_tfdebug.scan.read.bindings import BoundFunction, BoundValue, Class, Decorator
from pytest_tfdebug.scan.read.syntax import UNKNOWN
from pytest_tfdebug.scan.resolve.conditions import GuardedSkip, is_condition, negated
from pytest_tfdebug.scan.resolve.values import Evaluator, Scope
from pytest_tfdebug.scan.resolve.workspace import External, File, Found, Symbol, Workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_tfdebug.scan.read.syntax import Argument

_DEPTH = 8  # of decorators that call decorators


class SkipDecorator(NamedTuple):
    """A skip decorator: whether it has a condition, where its reason stands, and whether it skips when true."""

    kind: str
    has_condition: bool
    reason: int | None
    skips_when: bool = True


_UNITTEST = {
    "skip": SkipDecorator("unittest", has_condition=False, reason=0),
    "skipIf": SkipDecorator("unittest", has_condition=True, reason=1),
    "skipUnless": SkipDecorator("unittest", has_condition=True, reason=1, skips_when=False),
}
#: Every decorator that skips, by full name; ``unittest.skip`` is found under any alias.
SKIP_DECORATORS = {
    "pytest.mark.skip": SkipDecorator("pytest", has_condition=False, reason=0),
    "pytest.mark.skipif": SkipDecorator("pytest", has_condition=True, reason=None),
    **{f"{module}.{name}": skip for module in ("unittest", "unittest.case") for name, skip in _UNITTEST.items()},
}
_EXPECTED_FAILURE = frozenset({"unittest.expectedFailure", "unittest.case.expectedFailure"})
#: Functions that skip the test that calls them.
SKIP_CALLS = frozenset({"pytest.skip", "_pytest.outcomes.skip"})
#: Decorators outside the repository that always skip.
_ALWAYS = {"tooslow": "test is too slow"}
#: Follows the body of a decorator that the repository defines, with its parameters, and returns the skips it applies.
Follow: TypeAlias = "Callable[[File, BoundFunction, dict[str, Any], int], list[GuardedSkip]]"


class Decorators:
    """Finds the skips of decorators, whatever they are called and wherever they are defined.

    Attributes:
        follow: Follows a decorator of the repository; the runner, which asks for the skips of decorators, sets it.
        of: Returns the skips of one decorator of a module, or of the body of a class.
    """

    def __init__(self, workspace: Workspace, evaluator: Evaluator) -> None:
        self._workspace, self._evaluator = workspace, evaluator
        self.follow: Follow = lambda *_: []
        self.of, self._bare = cache(self._of), cache(self._of_bare)

    def _of(self, file: File, decorator: Decorator, body: Class | None = None) -> tuple[GuardedSkip, ...]:
        skips = self.skips(self._workspace.node(file, decorator), Scope(file, body=body))
        return tuple(each._replace(path=file.path, line=decorator.line) for each in skips)

    def is_mark(self, file: File, decorator: Decorator) -> bool:
        """Tell whether a decorator is a mark of pytest, which is callable whatever it is put on."""
        symbol = self._workspace.callee(file, self._workspace.node(file, decorator))
        return isinstance(symbol, External) and symbol.name.startswith("pytest.mark.")

    def expects_failure(self, file: File, decorators: Sequence[Decorator]) -> bool:
        """Tell whether a test may fail as far as its decorators go."""
        named = (each for each in decorators if "expectedFailure" in each.text)
        symbols = (self._workspace.callee(file, self._workspace.node(file, each)) for each in named)
        return any(isinstance(it, External) and it.name in _EXPECTED_FAILURE for it in symbols)

    def module_skip(self, file: File, call: Decorator) -> list[GuardedSkip]:
        """Return the skip of a ``pytest.skip(..., allow_module_level=True)`` at the top of a module."""
        node = self._workspace.node(file, call)
        symbol = self._workspace.callee(file, node)
        is_skip = isinstance(node, cst.Call) and isinstance(symbol, External) and symbol.name in SKIP_CALLS
        reason = self._evaluator.words(node.args[0].value, Scope(file)) if is_skip and node.args else ""
        return [GuardedSkip(reason, (), file.path, call.line, "pytest")] if is_skip else []

    def skips(self, node: Any, scope: Scope) -> list[GuardedSkip]:
        """Return the skips of a decorator expression."""
        if scope.depth > _DEPTH:
            return []
        scope = scope._replace(depth=scope.depth + 1)
        if isinstance(node, cst.Call):
            return self._called(node, scope)
        if isinstance(node, cst.Lambda):
            return self.skips(node.body, scope)
        if isinstance(node, cst.IfExp):
            branches = [skip for branch in (node.body, node.orelse) for skip in self.skips(branch, scope)]
            return [skip._replace(guards=skip.guards or ("a ternary",)) for skip in branches]
        if isinstance(node, (cst.List, cst.Tuple, cst.BinaryOperation)):  # marks in a list, or in a sum of lists
            is_sum = isinstance(node, cst.BinaryOperation)
            parts = (node.left, node.right) if is_sum else [item.value for item in node.elements]
            return [skip for part in parts for skip in self.skips(part, scope)]
        dotted = syntax.dotted(node)
        return self._named(dotted, (), scope) if dotted else []

    def _called(self, node: Any, scope: Scope) -> list[GuardedSkip]:
        args, dotted = syntax.arguments(node), syntax.dotted(node.func)
        if dotted.endswith("parametrize"):
            return [skip for arg in args[1:2] for skip in self._parameters(arg.value, scope)]
        found = self._named(dotted, args, scope) if dotted else self.skips(node.func, scope)
        if dotted and (found or dotted.rpartition(".")[2] in {"expand", "patch"}):
            return found
        inner = (arg.value for arg in args if isinstance(arg.value, (cst.Call, cst.Lambda)))
        return [*found, *(skip for each in inner for skip in self.skips(each, scope))]  # slow(require_gpu(test))

    def _parameters(self, node: Any, scope: Scope) -> list[GuardedSkip]:
        """Return the skips that ``pytest.param(..., marks=...)`` puts on some parameters of a test."""
        if scope.depth > _DEPTH:
            return []
        if isinstance(node, (cst.List, cst.Tuple)):
            return [skip for item in node.elements for skip in self._parameters(item.value, scope)]
        dotted = syntax.dotted(node)
        symbol = self._workspace.resolve(scope.file, dotted) if dotted else None
        if isinstance(symbol, Found) and isinstance(symbol.binding, BoundValue) and symbol.binding.text:
            value = self._workspace.node(symbol.file, symbol.binding)
            return self._parameters(value, Scope(symbol.file, depth=scope.depth + 1))
        is_one = isinstance(node, cst.Call) and syntax.dotted(node.func).endswith("param")
        marks = (arg.value for arg in (syntax.arguments(node) if is_one else ()) if arg.keyword == "marks")
        return [
            skip._replace(guards=("for some parameters", *skip.guards) if skip.guards else ("only some parameters",))
            for mark in marks
            for skip in self.skips(mark, scope)
        ]

    def _named(self, dotted: str, args: Sequence[Argument], scope: Scope) -> list[GuardedSkip]:
        symbol = self._workspace.resolve_in(scope.body, scope.file, dotted) if dotted not in scope.local else None
        name = symbol.name if isinstance(symbol, External) else dotted
        if isinstance(symbol, External) and symbol.name in SKIP_DECORATORS:
            return self._direct(SKIP_DECORATORS[symbol.name], args, scope)
        found = self._defined(symbol, args, scope)
        last = name.rpartition(".")[2]
        if found or name.startswith(("pytest.mark.", "unittest.")) or not is_condition(last):
            return [skip._replace(guards=skip.guards and (last + _given(args),)) for skip in found]
        if isinstance(symbol, External) and last in _ALWAYS:
            return [GuardedSkip(_ALWAYS[last], (), "", 0)]
        return [] if dotted in scope.local else [GuardedSkip("", (last + _given(args),), "", 0)]

    def _defined(self, symbol: Symbol | None, args: Sequence[Argument], scope: Scope) -> list[GuardedSkip]:
        file, binding = symbol if isinstance(symbol, Found) else (scope.file, None)
        if isinstance(binding, BoundFunction) and args:
            return self.follow(file, binding, self._evaluator.bind(binding.params, args, scope), scope.depth)
        if isinstance(binding, BoundFunction):
            return self._bare(file, binding, scope.depth)
        if isinstance(binding, BoundValue):
            body = scope.body if file is scope.file else None
            return self.skips(self._workspace.node(file, binding), Scope(file, depth=scope.depth, body=body))
        return []

    def _of_bare(self, file: File, function: BoundFunction, depth: int) -> list[GuardedSkip]:
        return self.follow(file, function, self._evaluator.bind(function.params, (), Scope(file)), depth)

    def _direct(self, decorator: SkipDecorator, args: Sequence[Argument], scope: Scope) -> list[GuardedSkip]:
        positional = [arg.value for arg in args if not arg.keyword]
        keywords = {arg.keyword: arg.value for arg in args if arg.keyword}
        given = keywords.get("reason")
        if given is None and decorator.reason is not None and len(positional) > decorator.reason:
            given = positional[decorator.reason]
        reason = self._evaluator.words(given, scope) if given is not None else ""
        plain = GuardedSkip(reason, (), "", 0, decorator.kind)
        tested = keywords.get("condition") or (positional[0] if positional else None)
        if not decorator.has_condition or tested is None:
            return [plain]
        truth = self._evaluator.truth(tested, scope)
        if truth is None or (decorator.kind == "pytest" and isinstance(syntax.constant(tested), str)):
            text = syntax.source(tested)
            return [plain._replace(guards=(text if decorator.skips_when else negated(text),))]
        return [plain] if truth is decorator.skips_when else []


def _given(args: Sequence[Argument]) -> str:
    """Return the arguments that tell one use of a decorator from another, such as ``("2.5")``."""
    if all(syntax.constant(arg.value) is UNKNOWN for arg in args):
        return ""
    texts = (f"{arg.keyword}={syntax.source(arg.value)}" if arg.keyword else syntax.source(arg.value) for arg in args)
    return f"({', '.join(texts)})"
