"""Follows a body as Python would, as far as its skips go."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

import libcst as cst

from pytest_tfdebug.scan.read import syntax
from pytest_tfdebug.scan.read.bindings import BoundFunction, Class
from pytest_tfdebug.scan.read.syntax import UNKNOWN
from pytest_tfdebug.scan.resolve.conditions import Condition, GuardedSkip, Guards, negated
from pytest_tfdebug.scan.resolve.decorators import SKIP_CALLS, Decorators
from pytest_tfdebug.scan.resolve.values import Evaluator, Scope
from pytest_tfdebug.scan.resolve.workspace import External, File, Found, Workspace

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from pytest_tfdebug.scan.read.bindings import Body
    from pytest_tfdebug.scan.read.syntax import Argument
    from pytest_tfdebug.scan.resolve.classes import Dependency, Linked

_DEPTH = 5  # of helpers that call helpers
_LOOKING = 20  # helpers of helpers that are looked into
_IMPORT_OR_SKIP = frozenset({"pytest.importorskip", "_pytest.outcomes.importorskip"})
#: Errors that are a skip, and those whose handlers catch one.
_SKIP_ERRORS = frozenset({"SkipTest", "Skipped"})
_CATCH_ALL = ("BaseException", "Exception", "SkipTest", "Skipped")
#: Guards of a skip in a ``try`` statement: no handler catches it, and nothing raises before it.
_UNCAUGHT, _QUIET = "no handler catches it", "no exception"


class End(Enum):
    """How the statements of a block end."""

    FALLS_THROUGH = "the next statement runs"
    RETURNED = "it returned"
    RAISED = "it raised, which a handler may catch"
    BROKE = "what follows the loop runs"
    SKIPPED = "it skipped"


#: A way to leave a block before its end: what must hold for it, and how it leaves.
EarlyExit: TypeAlias = "tuple[Guards, End]"
#: How the statements of a block end, and the exits by which they may have left it earlier.
Ending: TypeAlias = "tuple[End, list[EarlyExit]]"
#: The skips in a body, how it ends, and what both depend on in the class.
Outcome: TypeAlias = "tuple[list[GuardedSkip], End, frozenset[Dependency]]"


class BodyFrame(NamedTuple):
    """Where a body runs: its names, the lines of its statements, the class that defines it, what must hold to reach it.

    ``nested`` holds the functions that are defined in it.
    """

    scope: Scope
    lines: dict[int, int]
    definer: Linked | None
    guards: Guards
    skips: list[GuardedSkip]
    is_decorator: bool
    depth: int
    nested: dict[str, Any]
    is_guarded: bool = False

    def line(self, node: Any) -> int:
        """Return the line of a statement."""
        function = self.scope.function
        return self.lines.get(id(node), function.line if function is not None else 0)

    def guarded(self, guard: str) -> BodyFrame:
        """Return the frame of a branch."""
        return BodyFrame(self.scope, self.lines, self.definer, (*self.guards, guard), *self[4:])  # faster than _replace

    def past(self, exits: Iterable[EarlyExit]) -> BodyFrame:
        """Return the frame of the statements that run where none of some exits was taken."""
        held = self.guards
        for guards, _ in exits:
            rest = tuple(guard for guard in guards if guard not in held) or guards[-1:]
            held = (*held, negated(rest[0]) if len(rest) == 1 else f"not ({Condition.of([rest])})")
        return self if held is self.guards else self._replace(guards=held)

    def skip(self, reason: str, line: int, guards: Guards = (), kind: str = "unittest", path: str = "") -> None:
        """Note a skip, which may have guards of its own and stand in another file than what is run."""
        where = path or self.scope.file.path
        self.skips.append(GuardedSkip(reason, (*self.guards, *guards), where, line, kind, self.is_guarded))


class Runner:
    """Follows bodies to their skips."""

    def __init__(self, workspace: Workspace, decorators: Decorators, evaluator: Evaluator) -> None:
        self._workspace, self._decorators, self._evaluator = workspace, decorators, evaluator
        self._known: dict[tuple[int, int], dict[frozenset[Dependency], dict[Hashable, Outcome]]] = {}
        self._running: set[tuple[int, int]] = set()
        self._may: dict[int, bool] = {}
        decorators.follow, evaluator.skipping_helper = self.decorator, self.helper
        workspace.may_skip = lambda file, dotted: self._may_skip(dotted, Scope(file))

    def test(self, definer: Linked, function: BoundFunction, cls: Linked) -> Outcome:
        """Return the outcome of a method that is called without arguments.

        A mixin's body is followed once for all classes that agree on what it depends on.
        """
        key = id(definer), id(function)
        known = self._known.setdefault(key, {})
        for dependencies, outcomes in known.items():
            outcome = outcomes.get(self._evaluator.resolved(cls, dependencies))
            if outcome is not None:
                return outcome
        before, self._evaluator.dependencies = self._evaluator.dependencies, set()
        self._running.add(key)
        scope = Scope(definer.file, cls, dict.fromkeys(function.params[1:], UNKNOWN), function=function)
        try:
            body = None if self._is_idle(function, scope) else function.body
            skips, end = self._followed(body, scope, definer)
            dependencies = frozenset(self._evaluator.dependencies)
        finally:
            self._running.discard(key)
            self._evaluator.dependencies = before
        outcome = skips, end, dependencies
        known.setdefault(dependencies, {})[self._evaluator.resolved(cls, dependencies)] = outcome
        return outcome

    def decorator(self, file: File, function: BoundFunction, local: dict[str, Any], depth: int) -> list[GuardedSkip]:
        """Return the skips that a decorator function applies."""
        return self._followed(function.body, Scope(file, None, local, depth, function=function), is_decorator=True)[0]

    def function(self, file: File, function: BoundFunction) -> tuple[list[GuardedSkip], End]:
        """Return the skips of a module's function that is called with unknown arguments, and how it ends."""
        local = dict.fromkeys(function.params, UNKNOWN)
        return self._followed(function.body, Scope(file, None, local, function=function))

    def _followed(
        self, body: Body | None, scope: Scope, definer: Linked | None = None, *, is_decorator: bool = False
    ) -> tuple[list[GuardedSkip], End]:
        if body is None:
            return [], End.FALLS_THROUGH
        frame = BodyFrame(scope, body.lines, definer, (), [], is_decorator=is_decorator, depth=0, nested={})
        return frame.skips, self._run(body.suite, frame)[0]

    def _run(self, suite: Any, frame: BodyFrame) -> Ending:
        exits: list[EarlyExit] = []
        entered = frame.guards
        lines = (node.body if isinstance(node, cst.SimpleStatementLine) else (node,) for node in suite.body)
        for node in (node for line in lines for node in line if type(node) in self._STATEMENTS):
            end: End
            left: list[EarlyExit]
            end, left = self._STATEMENTS[type(node)](self, node, frame)
            exits += left
            if end is End.FALLS_THROUGH:
                frame = frame.past(left)
                continue
            if end is End.SKIPPED and exits:  # an earlier statement may have left: then it is not sure to skip
                end = exits[0][1]
            is_whole = end is not End.SKIPPED and all(how is not End.BROKE for _, how in exits)
            return end, [(entered, end)] if is_whole else exits
        return End.FALLS_THROUGH, exits

    def _orelse(self, orelse: Any, frame: BodyFrame) -> Ending:
        if orelse is None:
            return End.FALLS_THROUGH, []
        return self._if(orelse, frame) if isinstance(orelse, cst.If) else self._run(orelse.body, frame)

    def _if(self, node: Any, frame: BodyFrame) -> Ending:
        branches: list[Ending] = []
        while True:
            truth = self._evaluator.truth(node.test, frame.scope)
            if truth is not None:
                inner = frame._replace(is_guarded=True)
                last = self._run(node.body, inner) if truth else self._orelse(node.orelse, inner)
                break
            test = syntax.code(node.test)
            branches.append(self._run(node.body, frame.guarded(test)))
            frame = frame.guarded(negated(test))
            if not isinstance(node.orelse, cst.If):
                last = self._orelse(node.orelse, frame)
                break
            node = node.orelse
        for branch in reversed(branches):
            last = _either([branch, last])
        return last

    def _loop(self, node: Any, frame: BodyFrame) -> Ending:
        is_for = isinstance(node, cst.For)
        value = self._evaluator.value(node.iter, frame.scope) if is_for else UNKNOWN
        is_known = isinstance(value, (tuple, list, dict))
        if is_known and not value:
            return self._orelse(node.orelse, frame)
        guard = f"for {syntax.code(node.iter)}" if is_for else f"while {syntax.code(node.test)}"
        inner = frame._replace(is_guarded=True) if is_known else frame.guarded(guard)
        end, exits = self._run(node.body, inner)
        if is_known and end is not End.FALLS_THROUGH and all(how is not End.BROKE for _, how in exits):
            return end, exits
        last, left = self._orelse(node.orelse, frame.past(exits))
        rest = [each for each in exits if each[1] is not End.BROKE]
        return End.FALLS_THROUGH if len(rest) < len(exits) else last, rest + left

    def _try(self, node: Any, frame: BodyFrame) -> Ending:
        before = len(frame.skips)
        ending = self._handled(node, frame) if node.handlers else self._run(node.body, frame)
        after = len(frame.skips)
        last, left = self._orelse(node.finalbody, frame)
        if last is End.FALLS_THROUGH:
            return ending
        del frame.skips[before:after]  # as Python forgets an exception when a ``finally`` leaves
        return last, left

    def _handled(self, node: Any, frame: BodyFrame) -> Ending:
        """Follow a body whose exceptions, and perhaps its own skip, are handled, its handlers and its ``else``."""
        is_caught = any(each.type is None or syntax.mentions(each.type, *_CATCH_ALL) for each in node.handlers)
        errors = ["" if each.type is None else syntax.code(each.type) for each in node.handlers]
        quiet = _UNCAUGHT if is_caught else _QUIET
        end, found = self._run(node.body, frame.guarded(quiet))
        kept = [each for each in found if each[1] is not End.RAISED]
        exits = [(tuple(guard for guard in guards if guard != quiet), how) for guards, how in kept]
        caught = [
            self._run(handler.body, frame.guarded(f"except {error}".rstrip()))
            for handler, error in zip(node.handlers, errors, strict=True)
        ]
        if end is End.FALLS_THROUGH:
            end, left = self._orelse(node.orelse, frame.past(exits).guarded(_QUIET))
            return _either([(end, exits + left), *caught])
        on = [error for error, (how, _) in zip(errors, caught, strict=True) if how is End.FALLS_THROUGH]
        if end is End.RETURNED and on:
            guard = negated(f"except {on[0] if len(on) == 1 else ''}".rstrip())
            return End.FALLS_THROUGH, [((*frame.guards, guard), end), *(each for _, left in caught for each in left)]
        is_on = end is End.RAISED or (end is End.SKIPPED and is_caught)
        return _either([(End.FALLS_THROUGH if is_on and on else end, exits), *caught])

    def _with(self, node: Any, frame: BodyFrame) -> Ending:
        return self._run(node.body, frame)

    def _match(self, node: Any, frame: BodyFrame) -> Ending:
        exits: list[EarlyExit] = []
        for case in node.cases:
            guard = f" if {syntax.code(case.guard)}" if case.guard else ""
            left = self._run(case.body, frame.guarded(f"case {syntax.code(case.pattern)}{guard}"))[1]
            exits += left
            frame = frame.past(left)
        return End.FALLS_THROUGH, exits

    def _def(self, node: Any, frame: BodyFrame) -> Ending:
        """Follow a nested function: in a decorator now, because it replaces the test; elsewhere when it is called."""
        if frame.is_decorator:
            self._run(node.body, frame)
        else:
            frame.nested[node.name.value] = node.body
        return End.FALLS_THROUGH, []

    def _leave(self, node: Any, frame: BodyFrame) -> Ending:  # noqa: ARG002
        return End.BROKE, [(frame.guards, End.BROKE)]

    def _return(self, node: Any, frame: BodyFrame) -> Ending:
        if node.value is not None and self._do(node, frame)[0] is End.SKIPPED:
            return End.SKIPPED, []
        return End.RETURNED, [(frame.guards, End.RETURNED)]

    def _raise(self, node: Any, frame: BodyFrame) -> Ending:
        args = syntax.arguments(node.exc) if isinstance(node.exc, cst.Call) else []
        dotted = syntax.dotted(getattr(node.exc, "func", node.exc))
        if dotted and self._is_skip_error(dotted, frame.scope):
            frame.skip(self._reason(args, frame), frame.line(node))
            return End.SKIPPED, []
        return End.RAISED, [(frame.guards, End.RAISED)]

    def _do(self, node: Any, frame: BodyFrame) -> Ending:
        """Follow the calls of an expression, or of the value of an assignment."""
        value = node.value
        if isinstance(value, cst.Await):  # an ``await`` skips as the call that it waits for does
            value = value.expression
        if not isinstance(value, (cst.Call, cst.BooleanOperation, cst.IfExp, cst.Lambda)):
            return End.FALLS_THROUGH, []
        line = frame.line(node)
        if frame.is_decorator and (isinstance(node, cst.Return) or "kip" in syntax.code(value)):
            for skip in self._decorators.skips(value, frame.scope):
                frame.skip(skip.reason, line, skip.guards, skip.kind)
        return self._evaluate(value, line, frame), []

    def _is_idle(self, function: BoundFunction, scope: Scope) -> bool:
        """Tell, from the names that a body calls, that nothing in it can skip in a class."""
        return not any(not dotted or self._may_skip(dotted, scope) for dotted in function.callees)

    def _is_skip_error(self, dotted: str, scope: Scope) -> bool:
        name = self._full_name(dotted, scope)
        return name.rpartition(".")[2] in _SKIP_ERRORS or f".{name}".endswith(".skip.Exception")

    def _may_skip(self, dotted: str, scope: Scope) -> bool:
        """Tell whether what is called, or raised, by a name could skip."""
        first, _, rest = dotted.partition(".")
        if first in {"self", "cls"} and scope.cls is not None:
            return self._helper_of(scope.cls, rest) is not None
        symbol = self._workspace.resolve(scope.file, dotted)
        if isinstance(symbol, Found) and isinstance(symbol.binding, BoundFunction):
            return self._function_may(symbol.file, symbol.binding)
        is_skip = isinstance(symbol, External) and (symbol.name in SKIP_CALLS or symbol.name in _IMPORT_OR_SKIP)
        return is_skip or self._is_skip_error(dotted, scope)

    def _function_may(self, file: File, function: BoundFunction) -> bool:
        """Tell whether a function of a module could skip, by what its body calls."""
        key = id(function)
        if key not in self._may:
            self._may[key] = False  # should it call itself
            self._may[key] = not self._is_idle(function, Scope(file))
        return self._may[key]

    def _evaluate(self, node: Any, line: int, frame: BodyFrame) -> End:
        if isinstance(node, cst.Call):
            return self._call(node, line, frame)
        if isinstance(node, cst.BooleanOperation):
            first, *_, last = syntax.operands(node)
            is_and = isinstance(node.operator, cst.And)
            decided = self._evaluator.truth(first, frame.scope)
            if decided is is_and:
                return self._evaluate(last, line, frame)
            if decided is None:
                self._evaluate(last, line, frame.guarded(_guard(first, holds=is_and)))
        if isinstance(node, cst.IfExp):
            for branch, holds in ((node.body, True), (node.orelse, False)):
                self._evaluate(branch, line, frame.guarded(_guard(node.test, holds=holds)))
        return End.FALLS_THROUGH

    def _call(self, node: Any, line: int, frame: BodyFrame) -> End:  # noqa: PLR0911 - one return for each case
        args, dotted = syntax.arguments(node), syntax.dotted(node.func)
        if not dotted:
            return self._inherited(node.func, args, frame)
        if dotted in frame.nested:
            return self._inline(frame.nested.pop(dotted), frame)
        if dotted.endswith(".skipTest"):
            frame.skip(self._reason(args, frame), line)
            return End.SKIPPED
        first, _, rest = dotted.partition(".")
        if first in {"self", "cls"} and frame.scope.cls is not None:
            return self._method(self._helper_of(frame.scope.cls, rest), args, frame)
        name = self._full_name(dotted, frame.scope)
        if name in SKIP_CALLS:
            frame.skip(self._reason(args, frame), line, kind="pytest")
            return End.SKIPPED
        if name in _IMPORT_OR_SKIP:
            module = f"no module {syntax.source(args[0].value)}" if args else "no module"
            frame.skip("", line, (module,), "pytest")
            return End.FALLS_THROUGH
        return self._helper(dotted, args, frame)

    def _helper_of(self, cls: Linked, name: str) -> tuple[Linked, BoundFunction] | None:
        """Return the method that ``self.name`` is, if it could skip, and note that the class was asked for it."""
        if "." in name:
            return None
        self._evaluator.dependencies.add(("helper", name))
        return cls.helper(name) if self._evaluator.resolve(cls, ("helper", name)) else None

    def helper(self, cls: Linked, name: str) -> tuple[Linked, BoundFunction] | None:
        """Return the method that Python picks for a name, or None if it cannot skip whatever it is given.

        Classes whose methods do nothing then share an outcome. A method whose skips depend on other names of the class
        is always returned.
        """
        found = cls.helper(name)
        if found is None or found[1].decorators:
            return found
        key = id(found[0]), id(found[1])
        if key in self._running or len(self._running) > _LOOKING:  # it may call itself
            return found
        self._running.add(key)
        try:
            skips, _, dependencies = self.test(*found, cls)
        finally:
            self._running.discard(key)
        return found if skips or any(each[-1] != name for each in dependencies) else None

    def _helper(self, dotted: str, args: Sequence[Argument], frame: BodyFrame) -> End:
        symbol = self._workspace.resolve(frame.scope.file, dotted)
        file, function = symbol if isinstance(symbol, Found) else (frame.scope.file, None)
        is_other = not frame.is_decorator and dotted.partition(".")[0] not in frame.scope.local
        if not is_other or not isinstance(function, BoundFunction) or not self._function_may(file, function):
            return End.FALLS_THROUGH
        return self._entered(file, function, args, frame, is_method=False)

    def _inherited(self, function: Any, args: Sequence[Argument], frame: BodyFrame) -> End:
        cls, definer = frame.scope.cls, frame.definer
        of = function.value if isinstance(function, cst.Attribute) else None
        is_super = isinstance(of, cst.Call) and syntax.dotted(of.func) == "super"
        if not is_super or cls is None or definer is None:
            return End.FALLS_THROUGH
        name = function.attr.value
        self._evaluator.dependencies.add(("after", definer, name))
        return self._method(cls.after(definer, name), args, frame)

    def _method(self, found: tuple[Linked, Any] | None, args: Sequence[Argument], frame: BodyFrame) -> End:
        if found is None or not isinstance(found[1], BoundFunction):
            return End.FALLS_THROUGH
        (definer, binding), cls = found, frame.scope.cls
        if not frame.is_decorator:
            for decorator in binding.decorators:
                for skip in self._decorators.of(definer.file, decorator):
                    if skip.kind == "unittest":  # a mark of pytest is read only from the test that is collected
                        frame.skip(skip.reason, skip.line, skip.guards, path=skip.path)
                        if not skip.guards:
                            return End.SKIPPED
        is_alone = not (frame.guards or frame.is_guarded or frame.is_decorator or args)
        is_new = (id(definer), id(binding)) not in self._running
        if cls is not None and is_alone and is_new and binding.takes_nothing:
            skips, end, dependencies = self.test(definer, binding, cls)
            self._evaluator.dependencies |= dependencies
            frame.skips.extend(skips)
            return End.SKIPPED if end is End.SKIPPED else End.FALLS_THROUGH
        return self._entered(definer.file, binding, args, frame._replace(definer=definer), is_method=True)

    def _entered(
        self, file: File, function: BoundFunction, args: Sequence[Argument], frame: BodyFrame, *, is_method: bool
    ) -> End:
        scope = Scope(file, frame.scope.cls, function=function)
        is_idle = self._is_idle(function, scope) if is_method else not function.callees
        if frame.depth >= _DEPTH or is_idle or function.body is None:
            return End.FALLS_THROUGH
        params = function.params[1:] if is_method and function.params[:1] in (("self",), ("cls",)) else function.params
        body, scope = function.body, scope._replace(local=self._evaluator.bind(params, args, frame.scope))
        return self._inline(body.suite, frame._replace(scope=scope, lines=body.lines, nested={}))

    def _inline(self, suite: Any, frame: BodyFrame) -> End:
        if frame.depth >= _DEPTH:
            return End.FALLS_THROUGH
        end, _ = self._run(suite, frame._replace(depth=frame.depth + 1))
        return End.SKIPPED if end is End.SKIPPED else End.FALLS_THROUGH

    def _full_name(self, dotted: str, scope: Scope) -> str:
        if dotted.partition(".")[0] in scope.local:
            return dotted
        symbol = self._workspace.resolve(scope.file, dotted)
        if isinstance(symbol, External):
            return symbol.name
        if isinstance(symbol, Found) and isinstance(symbol.binding, Class):
            return syntax.code(symbol.binding.bases[0]) if symbol.binding.bases else dotted
        return dotted if symbol is None else ""

    def _reason(self, args: Sequence[Argument], frame: BodyFrame) -> str:
        given = (value for keyword, value in args if keyword in {"", "reason", "msg"})
        return next((self._evaluator.words(value, frame.scope) for value in given), "")

    _STATEMENTS: ClassVar = {
        cst.AnnAssign: _do, cst.Assign: _do, cst.AugAssign: _do, cst.Break: _leave, cst.Continue: _leave, cst.Expr: _do,
        cst.For: _loop, cst.FunctionDef: _def, cst.If: _if, cst.Match: _match, cst.Raise: _raise, cst.Return: _return,
        cst.Try: _try, cst.TryStar: _try, cst.While: _loop, cst.With: _with,
    }  # fmt: skip


def _guard(node: Any, *, holds: bool) -> str:
    text = syntax.describe(node)
    return text if holds else negated(text)


def _either(endings: list[Ending]) -> Ending:
    """Return how a statement ends that runs one of several branches."""
    ends = {end for end, _ in endings}
    exits = [each for _, left in endings for each in left]
    if End.FALLS_THROUGH in ends:
        return End.FALLS_THROUGH, exits
    # what raises in a handled body has no way out of it: there is none where each handler skips
    return ends.pop() if len(ends) == 1 else next((how for _, how in exits), End.RETURNED), exits
