"""Follows a body as Python would, as far as its skips go."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import libcst as cst

from pytest_tfdebug.scan import syntax
from pytest_tfdebug.scan.bindings import Class, Function
from pytest_tfdebug.scan.conditions import Condition, Guards, negated
from pytest_tfdebug.scan.decorators import SKIP_CALLS
from pytest_tfdebug.scan.states import Effect
from pytest_tfdebug.scan.values import SELF, UNKNOWN, Scope
from pytest_tfdebug.scan.workspace import External, Found

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_tfdebug.scan.classes import Linked, Question
    from pytest_tfdebug.scan.decorators import Decorators
    from pytest_tfdebug.scan.syntax import Argument
    from pytest_tfdebug.scan.values import Evaluator
    from pytest_tfdebug.scan.workspace import File, Workspace

_DEPTH = 5  # of helpers that call helpers
_ASKING = 20  # helpers of helpers that are asked whether they do anything
_IMPORT_OR_SKIP = frozenset({"pytest.importorskip", "_pytest.outcomes.importorskip"})
#: Errors that are a skip, and those whose handlers catch one.
_SKIP_ERRORS = frozenset({"SkipTest", "Skipped"})
_CATCH_ALL = ("BaseException", "Exception", "SkipTest", "Skipped")
#: Guards of what stands in a ``try`` statement: that no handler catches the skip, and that nothing raises before it.
_UNCAUGHT, _QUIET = "no handler catches it", "no exception"


class End(Enum):
    """How the statements of a block end."""

    ON = "the next statement runs"
    RETURNED = "it returned"
    RAISED = "it raised, which a handler may catch"
    BROKE = "what follows the loop runs"
    SKIPPED = "it skipped"


#: A way to leave a block before its end: what must hold for it, and how it leaves.
Way: TypeAlias = "tuple[Guards, End]"
#: How the statements of a block end, and the ways in which some of them may have left it earlier.
Ending: TypeAlias = "tuple[End, list[Way]]"
#: The skips in a body, how it ends, and the questions about the class that it hangs on.
Outcome: TypeAlias = "tuple[list[Effect], End, frozenset[Question]]"


class Frame(NamedTuple):
    """Where a body runs: its names, the class that defines it, and what must hold for it to be reached.

    ``lines`` are those of its statements, ``nested`` the functions that are defined in it.
    """

    scope: Scope
    lines: dict[int, int]
    definer: Linked | None
    guards: Guards
    effects: list[Effect]
    is_decorator: bool
    depth: int
    nested: dict[str, Any]
    is_guarded: bool = False

    def line(self, node: Any) -> int:  # noqa: ANN401 - libcst is not typed here
        """Return the line of a statement."""
        function = self.scope.function
        return self.lines.get(id(node), function.line if function is not None else 0)

    def guarded(self, guard: str) -> Frame:
        """Return the frame of a branch."""
        return Frame(self.scope, self.lines, self.definer, (*self.guards, guard), *self[4:])  # faster than _replace

    def past(self, ways: Iterable[Way]) -> Frame:
        """Return the frame of what runs where none of some ways to leave was taken."""
        held = self.guards
        for guards, _ in ways:
            rest = tuple(guard for guard in guards if guard not in held) or guards[-1:]
            held = (*held, negated(rest[0]) if len(rest) == 1 else f"not ({Condition.of([rest])})")
        return self if held is self.guards else self._replace(guards=held)

    def skip(self, reason: str, line: int, guards: Guards = (), kind: str = "unittest", path: str = "") -> None:
        """Note a skip, which may have guards of its own and stand in another file than what is run."""
        where = path or self.scope.file.path
        self.effects.append(Effect(reason, (*self.guards, *guards), where, line, kind, self.is_guarded))


class Runner:
    """Follows bodies to their skips."""

    def __init__(self, workspace: Workspace, decorators: Decorators, evaluator: Evaluator) -> None:
        self._workspace, self._decorators, self._evaluator = workspace, decorators, evaluator
        self._known: dict[tuple[int, int], dict[frozenset[Question], dict[int, Outcome]]] = {}
        self._asked: dict[frozenset[Question], frozenset[Question]] = {}
        self._running: set[tuple[int, int]] = set()
        self._asking: set[tuple[Linked, str]] = set()
        self._may: dict[int, bool] = {}
        decorators.follow, evaluator.has_effect = self.decorator, self.helper
        workspace.may_skip = lambda file, dotted: self._may_skip(dotted, Scope(file))

    def test(self, definer: Linked, function: Function, cls: Linked) -> Outcome:
        """Return the outcome of the body of a method of a class that is called with nothing.

        A mixin's body is followed once for all classes that answer alike what it asks of them.
        """
        key = id(definer), id(function)
        known = self._known.setdefault(key, {})
        for questions, outcomes in known.items():
            outcome = outcomes.get(self._evaluator.answer(cls, questions))
            if outcome is not None:
                return outcome
        before, self._evaluator.asked = self._evaluator.asked, set()
        self._running.add(key)
        try:
            effects, end = self._test(definer, function, cls)
            asked = frozenset(self._evaluator.asked)
        finally:
            self._running.discard(key)
            self._evaluator.asked = before
        questions = self._asked.setdefault(asked, asked)
        outcome = effects, end, questions
        known.setdefault(questions, {})[self._evaluator.answer(cls, questions)] = outcome
        return outcome

    def _test(self, definer: Linked, function: Function, cls: Linked) -> tuple[list[Effect], End]:
        if self._is_idle(function, Scope(definer.file, cls, function=function)):
            return [], End.ON
        scope = Scope(definer.file, cls, dict.fromkeys(function.params[1:], UNKNOWN), function=function)
        return self._followed(function, scope, definer, is_decorator=False)

    def decorator(self, file: File, function: Function, local: dict[str, Any], depth: int) -> list[Effect]:
        """Return the skips that a decorator function applies."""
        scope = Scope(file, None, local, depth, function=function)
        return self._followed(function, scope, None, is_decorator=True)[0]

    def function(self, file: File, function: Function) -> tuple[list[Effect], End]:
        """Return the skips of a function of a module that is called with what nobody knows, and how it ends."""
        scope = Scope(file, None, dict.fromkeys(function.params, UNKNOWN), function=function)
        return self._followed(function, scope, None, is_decorator=False)

    def _followed(
        self, function: Function, scope: Scope, definer: Linked | None, *, is_decorator: bool
    ) -> tuple[list[Effect], End]:
        body = function.whole if is_decorator else function.body
        if body is None:
            return [], End.ON
        frame = Frame(scope, body.lines, definer, (), [], is_decorator=is_decorator, depth=0, nested={})
        end, _ = self._run(body.suite, frame)
        return frame.effects, end

    def _run(self, suite: Any, frame: Frame) -> Ending:  # noqa: ANN401 - libcst is not typed here
        ways: list[Way] = []
        entered = frame.guards
        for node in _statements(suite):
            end: End
            left: list[Way]
            end, left = _STATEMENTS[type(node)](self, node, frame)
            ways += left
            if end is End.ON:
                frame = frame.past(left)
                continue
            if end is End.SKIPPED and ways:  # an earlier statement may have left: then it is not sure to skip
                end = ways[0][1]
            is_whole = end is not End.SKIPPED and all(how is not End.BROKE for _, how in ways)
            return end, [(entered, end)] if is_whole else ways
        return End.ON, ways

    def _orelse(self, orelse: Any, frame: Frame) -> Ending:  # noqa: ANN401
        if orelse is None:
            return End.ON, []
        return self._if(orelse, frame) if isinstance(orelse, cst.If) else self._run(orelse.body, frame)

    def _if(self, node: Any, frame: Frame) -> Ending:  # noqa: ANN401
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

    def _loop(self, node: Any, frame: Frame) -> Ending:  # noqa: ANN401
        is_for = isinstance(node, cst.For)
        value = self._evaluator.value(node.iter, frame.scope) if is_for else UNKNOWN
        is_known = isinstance(value, (tuple, list, dict))
        if is_known and not value:
            return self._orelse(node.orelse, frame)
        guard = f"for {syntax.code(node.iter)}" if is_for else f"while {syntax.code(node.test)}"
        inner = frame._replace(is_guarded=True) if is_known else frame.guarded(guard)
        end, ways = self._run(node.body, inner)
        if is_known and end is not End.ON and all(how is not End.BROKE for _, how in ways):
            return end, ways
        last, left = self._orelse(node.orelse, frame.past(ways))
        rest = [way for way in ways if way[1] is not End.BROKE]
        return End.ON if len(rest) < len(ways) else last, rest + left

    def _try(self, node: Any, frame: Frame) -> Ending:  # noqa: ANN401
        before = len(frame.effects)
        ending = self._handled(node, frame) if node.handlers else self._run(node.body, frame)
        after = len(frame.effects)
        last, left = self._orelse(node.finalbody, frame)
        if last is End.ON:
            return ending
        del frame.effects[before:after]  # what was raised is forgotten
        return last, left

    def _handled(self, node: Any, frame: Frame) -> Ending:  # noqa: ANN401
        """Follow a body whose exceptions are handled, the handlers, and what runs where there are none.

        What stands before a skip in the body may raise, and a handler may catch the skip itself.
        """
        is_caught = any(each.type is None or syntax.mentions(each.type, *_CATCH_ALL) for each in node.handlers)
        errors = ["" if each.type is None else syntax.code(each.type) for each in node.handlers]
        quiet = _UNCAUGHT if is_caught else _QUIET
        end, found = self._run(node.body, frame.guarded(quiet))
        kept = [way for way in found if way[1] is not End.RAISED]
        ways = [(tuple(guard for guard in guards if guard != quiet), how) for guards, how in kept]
        caught = [
            self._run(handler.body, frame.guarded(f"except {error}".rstrip()))
            for handler, error in zip(node.handlers, errors, strict=True)
        ]
        if end is End.ON:
            end, left = self._orelse(node.orelse, frame.past(ways).guarded(_QUIET))
            return _either([(end, ways + left), *caught])
        on = [error for error, (how, _) in zip(errors, caught, strict=True) if how is End.ON]
        if end is End.RETURNED and on:
            guard = negated(f"except {on[0] if len(on) == 1 else ''}".rstrip())
            return End.ON, [((*frame.guards, guard), end), *(way for _, left in caught for way in left)]
        is_on = end is End.RAISED or (end is End.SKIPPED and is_caught)
        return _either([(End.ON if is_on and on else end, ways), *caught])

    def _with(self, node: Any, frame: Frame) -> Ending:  # noqa: ANN401
        return self._run(node.body, frame)

    def _match(self, node: Any, frame: Frame) -> Ending:  # noqa: ANN401
        ways: list[Way] = []
        for case in node.cases:
            guard = f" if {syntax.code(case.guard)}" if case.guard else ""
            left = self._run(case.body, frame.guarded(f"case {syntax.code(case.pattern)}{guard}"))[1]
            ways += left
            frame = frame.past(left)
        return End.ON, ways

    def _def(self, node: Any, frame: Frame) -> Ending:  # noqa: ANN401
        """Follow a nested function: of a decorator at once, as it is what replaces the test; else when it is called."""
        if frame.is_decorator:
            self._run(node.body, frame)
        else:
            frame.nested[node.name.value] = node.body
        return End.ON, []

    def _leave(self, node: Any, frame: Frame) -> Ending:  # noqa: ANN401, ARG002
        return End.BROKE, [(frame.guards, End.BROKE)]

    def _return(self, node: Any, frame: Frame) -> Ending:  # noqa: ANN401
        if node.value is not None and self._do(node, frame)[0] is End.SKIPPED:
            return End.SKIPPED, []
        return End.RETURNED, [(frame.guards, End.RETURNED)]

    def _raise(self, node: Any, frame: Frame) -> Ending:  # noqa: ANN401
        error, args = node.exc, []
        if isinstance(error, cst.Call):
            error, args = error.func, syntax.arguments(error)
        dotted = syntax.dotted(error)
        if dotted and self._is_skip_error(dotted, frame.scope):
            frame.skip(self._reason(args, frame), frame.line(node))
            return End.SKIPPED, []
        return End.RAISED, [(frame.guards, End.RAISED)]

    def _do(self, node: Any, frame: Frame) -> Ending:  # noqa: ANN401
        """Follow the calls of an expression, or of the value of an assignment."""
        value = node.value
        if isinstance(value, cst.Await):  # which skips as what it waits for does
            value = value.expression
        if not isinstance(value, (cst.Call, cst.BooleanOperation, cst.IfExp, cst.Lambda)):
            return End.ON, []
        line = frame.line(node)
        if frame.is_decorator and (isinstance(node, cst.Return) or "kip" in syntax.code(value)):
            for effect in self._decorators.effects(value, frame.scope):
                frame.skip(effect.reason, line, effect.guards, effect.kind)
        return self._evaluate(value, line, frame), []

    def _is_idle(self, function: Function, scope: Scope) -> bool:
        """Tell, without reading a body, that nothing in it could skip in a class."""
        return not any(not dotted or self._may_skip(dotted, scope) for dotted in function.callees)

    def _is_skip_error(self, dotted: str, scope: Scope) -> bool:
        name = self._full_name(dotted, scope)
        return name.rpartition(".")[2] in _SKIP_ERRORS or f".{name}".endswith(".skip.Exception")

    def _may_skip(self, dotted: str, scope: Scope) -> bool:
        """Tell whether what is called, or raised, by a name could skip."""
        first, _, rest = dotted.partition(".")
        if first in {"self", "cls"} and scope.cls is not None:
            return self._asked_for(scope.cls, rest) is not None
        symbol = self._workspace.resolve(scope.file, dotted)
        if isinstance(symbol, Found) and isinstance(symbol.binding, Function):
            return self._function_may(symbol.file, symbol.binding)
        if isinstance(symbol, External) and (symbol.name in SKIP_CALLS or symbol.name in _IMPORT_OR_SKIP):
            return True
        return self._is_skip_error(dotted, scope)

    def _function_may(self, file: File, function: Function) -> bool:
        """Tell whether a function of a module could skip, by what its body calls."""
        key = id(function)
        if key not in self._may:
            self._may[key] = False  # should it call itself
            self._may[key] = not self._is_idle(function, Scope(file))
        return self._may[key]

    def _evaluate(self, node: Any, line: int, frame: Frame) -> End:  # noqa: ANN401
        """Follow the calls of an expression that could skip."""
        if isinstance(node, cst.Call):
            return self._call(node, line, frame)
        if isinstance(node, cst.BooleanOperation):
            first, *_, last = syntax.operands(node)
            is_and = isinstance(node.operator, cst.And)
            decided = self._evaluator.truth(first, frame.scope)
            if decided is None or decided is is_and:
                guarded = frame if decided is not None else frame.guarded(_guard(first, holds=is_and))
                end = self._evaluate(last, line, guarded)
                return End.ON if decided is None else end
        if isinstance(node, cst.IfExp):
            for branch, holds in ((node.body, True), (node.orelse, False)):
                self._evaluate(branch, line, frame.guarded(_guard(node.test, holds=holds)))
        return End.ON

    def _call(self, node: Any, line: int, frame: Frame) -> End:  # noqa: ANN401, PLR0911 - one return for each case
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
            return self._method(self._asked_for(frame.scope.cls, rest), args, frame)
        name = self._full_name(dotted, frame.scope)
        if name in SKIP_CALLS:
            frame.skip(self._reason(args, frame), line, kind="pytest")
            return End.SKIPPED
        if name in _IMPORT_OR_SKIP:
            module = f"no module {syntax.source(args[0].value)}" if args else "no module"
            frame.skip("", line, (module,), "pytest")
            return End.ON
        return self._helper(dotted, args, frame)

    def _asked_for(self, cls: Linked, name: str) -> tuple[Linked, Function] | None:
        """Return the method that ``self.name`` is, if it could skip, and note that the class was asked for it."""
        if "." in name:
            return None
        question = ("helper", name)
        self._evaluator.asked.add(question)
        return cls.helper(name) if self._evaluator.told(cls, (question,))[0] else None

    def helper(self, cls: Linked, name: str) -> tuple[Linked, Function] | None:
        """Return the method that Python picks for a name, if it could skip whatever it is given.

        So that classes answer alike whose methods do nothing; but not where that hangs on other names of the class.
        """
        found = cls.helper(name)
        if found is None or found[1].decorators or (id(found[0]), id(found[1])) in self._running:
            return found
        if (cls, name) in self._asking or len(self._asking) > _ASKING:  # it may call itself, by way of others
            return found
        self._asking.add((cls, name))
        try:
            effects, _, questions = self.test(*found, cls)
        finally:
            self._asking.discard((cls, name))
        return found if effects or any(question[-1] != name for question in questions) else None

    def _helper(self, dotted: str, args: Sequence[Argument], frame: Frame) -> End:
        """Follow a function of the repository, or a method called through its class."""
        symbol = self._workspace.resolve(frame.scope.file, dotted)
        if not isinstance(symbol, Found) or not isinstance(symbol.binding, Function) or frame.is_decorator:
            return End.ON
        if dotted.partition(".")[0] in frame.scope.local or not self._function_may(symbol.file, symbol.binding):
            return End.ON
        return self._entered(symbol.file, symbol.binding, args, frame, is_method=False)

    def _inherited(self, function: Any, args: Sequence[Argument], frame: Frame) -> End:  # noqa: ANN401
        """Follow what ``super().name(...)`` calls."""
        cls, definer = frame.scope.cls, frame.definer
        if not isinstance(function, cst.Attribute) or cls is None or definer is None:
            return End.ON
        if not isinstance(function.value, cst.Call) or syntax.dotted(function.value.func) != "super":
            return End.ON
        name = function.attr.value
        self._evaluator.asked.add(("after", definer, name))
        return self._method(cls.after(definer, name), args, frame)

    def _method(self, found: tuple[Linked, Any] | None, args: Sequence[Argument], frame: Frame) -> End:
        if found is None or not isinstance(found[1], Function):
            return End.ON
        (definer, binding), cls = found, frame.scope.cls
        if not frame.is_decorator:
            for decorator in binding.decorators:
                for effect in self._decorators.of(definer.file, decorator):
                    if effect.kind == "unittest":  # a mark of pytest is read only from the test that is collected
                        frame.skip(effect.reason, effect.line, effect.guards, path=effect.path)
                        if not effect.guards:
                            return End.SKIPPED
        is_alone = not (frame.guards or frame.is_guarded or frame.is_decorator or args)
        is_new = (id(definer), id(binding)) not in self._running
        if cls is not None and is_alone and is_new and binding.takes_nothing:
            effects, end, questions = self.test(definer, binding, cls)
            self._evaluator.asked |= questions
            frame.effects.extend(effects)
            return End.SKIPPED if end is End.SKIPPED else End.ON
        return self._entered(definer.file, binding, args, frame._replace(definer=definer), is_method=True)

    def _entered(
        self, file: File, function: Function, args: Sequence[Argument], frame: Frame, *, is_method: bool
    ) -> End:
        """Follow a call, with the parameters bound."""
        scope = Scope(file, frame.scope.cls, function=function)
        if frame.depth >= _DEPTH or (is_method and self._is_idle(function, scope)) or function.body is None:
            return End.ON
        params = function.params[1:] if is_method and function.params[:1] in (("self",), ("cls",)) else function.params
        local: dict[str, Any] = {name: UNKNOWN for name in params if name not in {"self", "cls"}}
        positional = iter(params)
        for keyword, value in args:
            name = keyword or next(positional, "")
            if name in local:
                is_self = syntax.dotted(value) in {"self", "cls"} and frame.scope.cls is not None
                local[name] = SELF if is_self else self._evaluator.value(value, frame.scope)
        body, scope = function.body, scope._replace(local=local)
        return self._inline(body.suite, frame._replace(scope=scope, lines=body.lines, nested={}))

    def _inline(self, suite: Any, frame: Frame) -> End:  # noqa: ANN401
        if frame.depth >= _DEPTH:
            return End.ON
        end, _ = self._run(suite, frame._replace(depth=frame.depth + 1))
        return End.SKIPPED if end is End.SKIPPED else End.ON

    def _full_name(self, dotted: str, scope: Scope) -> str:
        if dotted.partition(".")[0] in scope.local:
            return dotted
        symbol = self._workspace.resolve(scope.file, dotted)
        if isinstance(symbol, External):
            return symbol.name
        if isinstance(symbol, Found) and isinstance(symbol.binding, Class):
            return syntax.code(symbol.binding.bases[0]) if symbol.binding.bases else dotted
        return dotted if symbol is None else ""

    def _reason(self, args: Sequence[Argument], frame: Frame) -> str:
        for keyword, value in args:
            if keyword in {"", "reason", "msg"}:
                return self._evaluator.words(value, frame.scope)
        return ""


def _statements(suite: Any) -> Iterator[Any]:  # noqa: ANN401
    """Return the statements of a suite that can lead to a skip or past one, those that share a line one by one."""
    lines = (node.body if isinstance(node, cst.SimpleStatementLine) else [node] for node in suite.body)
    return (node for line in lines for node in line if type(node) in _STATEMENTS)


def _guard(node: Any, *, holds: bool) -> str:  # noqa: ANN401
    """Return how an expression reads on which the rest of another hangs."""
    text = syntax.describe(node)
    return text if holds else negated(text)


def _either(endings: list[Ending]) -> Ending:
    """Return how a statement ends of whose parts one runs."""
    ends = {end for end, _ in endings}
    ways = [way for _, left in endings for way in left]
    if End.ON in ends:
        return End.ON, ways
    # what raises in a handled body has no way out of it: there is none where each handler skips
    return ends.pop() if len(ends) == 1 else next((how for _, how in ways), End.RETURNED), ways


_STATEMENTS: dict[type, Any] = {
    cst.AnnAssign: Runner._do,  # noqa: SLF001 - the table of this class
    cst.Assign: Runner._do,  # noqa: SLF001
    cst.AugAssign: Runner._do,  # noqa: SLF001
    cst.Break: Runner._leave,  # noqa: SLF001
    cst.Continue: Runner._leave,  # noqa: SLF001
    cst.Expr: Runner._do,  # noqa: SLF001
    cst.For: Runner._loop,  # noqa: SLF001
    cst.FunctionDef: Runner._def,  # noqa: SLF001
    cst.If: Runner._if,  # noqa: SLF001
    cst.Match: Runner._match,  # noqa: SLF001
    cst.Raise: Runner._raise,  # noqa: SLF001
    cst.Return: Runner._return,  # noqa: SLF001
    cst.Try: Runner._try,  # noqa: SLF001
    cst.TryStar: Runner._try,  # noqa: SLF001
    cst.While: Runner._loop,  # noqa: SLF001
    cst.With: Runner._with,  # noqa: SLF001
}
