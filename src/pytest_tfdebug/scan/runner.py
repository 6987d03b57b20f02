"""Follows a body as Python would, as far as its skips go."""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pytest_tfdebug.scan.conditions import Condition, Guards, negated
from pytest_tfdebug.scan.effects import SKIP_CALLS, Effect
from pytest_tfdebug.scan.facts import ALL_CALLS, Class, Function, squeeze
from pytest_tfdebug.scan.values import SELF, UNKNOWN, Scope, describe
from pytest_tfdebug.scan.workspace import External, Found

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_tfdebug.scan.bodies import Body
    from pytest_tfdebug.scan.classes import Linked, Question
    from pytest_tfdebug.scan.effects import Decorators
    from pytest_tfdebug.scan.syntax import Expr
    from pytest_tfdebug.scan.values import Evaluator
    from pytest_tfdebug.scan.workspace import Source

_DEPTH = 5  # of helpers that call helpers
_ASKING = 20  # helpers of helpers that are asked whether they do anything
_IMPORT_OR_SKIP = frozenset({"pytest.importorskip", "_pytest.outcomes.importorskip"})
_SKIP_ERRORS = re.compile(r"(?:.*\.)?(?:SkipTest|Skipped|skip\.Exception)")
_CATCH_ALL = re.compile(r"|.*\b(?:BaseException|Exception|SkipTest|Skipped)\b.*", re.DOTALL)


#: Guards of what stands in a ``try`` statement: that no handler catches the skip, and that nothing raises before it.
_UNCAUGHT, _QUIET = "no handler catches it", "no exception"
#: A call, up to its bracket.
_HEAD = re.compile(r"([A-Za-z_][\w.]*)\(")
#: What is called, anywhere in a text that is read backwards: from the brackets, a tenth of the time.
_CALLED = re.compile(r"\(\s*([\w.]+)")


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
    """Where a body runs: its names, the class that defines it, and what must hold for it to be reached."""

    scope: Scope
    definer: Linked | None
    guards: Guards
    effects: list[Effect]
    is_decorator: bool
    depth: int
    nested: dict[str, Body]
    is_guarded: bool = False

    def guarded(self, guard: str) -> Frame:
        """Return the frame of a branch."""
        guards = (*self.guards, squeeze(guard))
        return Frame(self.scope, self.definer, guards, *self[3:])  # a third of what ``_replace`` takes

    def past(self, ways: Iterable[Way]) -> Frame:
        """Return the frame of what runs where none of some ways to leave was taken."""
        held = self.guards
        for guards, _ in ways:
            rest = tuple(guard for guard in guards if guard not in held) or guards[-1:]
            held = (*held, negated(rest[0]) if len(rest) == 1 else f"not ({Condition.of([rest])})")
        return self if held is self.guards else self._replace(guards=held)

    def skip(self, reason: str, line: int, guards: Guards = (), kind: str = "unittest", path: str = "") -> None:
        """Note a skip, which may have guards of its own and stand in another file than what is run."""
        where = path or self.scope.source.path
        self.effects.append(Effect(reason, (*self.guards, *guards), where, line, kind, self.is_guarded))


class Runner:
    """Runs bodies for their skips."""

    def __init__(self, decorators: Decorators, evaluator: Evaluator) -> None:
        self._decorators, self._evaluator = decorators, evaluator
        self._workspace = decorators.workspace
        self._known: dict[tuple[int, int], dict[frozenset[Question], dict[int, Outcome]]] = {}
        self._asked: dict[frozenset[Question], frozenset[Question]] = {}
        self._running: set[tuple[int, int]] = set()
        self._asking: set[tuple[Linked, str]] = set()
        decorators.runner = evaluator.runner = self

    def test(self, definer: Linked, function: Function, cls: Linked) -> Outcome:
        """Return the outcome of the body of a method of a class that is called with nothing.

        A mixin's body runs once for all classes that answer alike what it asks of them.
        """
        key = id(definer), id(function)
        known = self._known.setdefault(key, {})
        for questions, outcomes in known.items():
            outcome = outcomes.get(self._evaluator.answer(cls, questions))
            if outcome is not None:
                return outcome
        before, self._evaluator.asked = self._evaluator.asked, set()
        self._running.add(key)
        scope = Scope(definer.source, cls, dict.fromkeys(function.params[1:], UNKNOWN), text=function.body)
        frame = Frame(scope, definer, (), [], is_decorator=False, depth=0, nested={})
        end = End.ON
        if not self._is_idle(function.body, frame):
            end, _ = self._run(self._body(definer.source, function), frame)
        self._running.discard(key)
        asked = frozenset(self._evaluator.asked)
        self._evaluator.asked = before
        questions = self._asked.setdefault(asked, asked)
        outcome = frame.effects, end, questions
        known.setdefault(questions, {})[self._evaluator.answer(cls, questions)] = outcome
        return outcome

    def decorator(self, source: Source, function: Function, local: dict[str, Any], depth: int) -> list[Effect]:
        """Return the skips that a decorator function applies."""
        scope = Scope(source, None, local, depth, text=function.body)
        frame = Frame(scope, None, (), [], is_decorator=True, depth=0, nested={})
        self._run(self._body(source, function), frame)
        return frame.effects

    def function(self, source: Source, function: Function) -> tuple[list[Effect], End]:
        """Return the skips of a function of a module that is called with what nobody knows, and how it ends."""
        scope = Scope(source, None, dict.fromkeys(function.params, UNKNOWN), text=function.body)
        frame = Frame(scope, None, (), [], is_decorator=False, depth=0, nested={})
        body = self._workspace.parser.body(source.path, function, ALL_CALLS) if function.body else ()
        end, _ = self._run(body, frame)
        return frame.effects, end

    def _body(self, source: Source, function: Function) -> Body:
        if not function.body:
            return ()
        return self._workspace.parser.body(source.path, function, self._workspace.mentions(source))

    def _run(self, body: Body, frame: Frame) -> Ending:
        ways: list[Way] = []
        entered = frame.guards
        for statement in body:
            end: End
            left: list[Way]
            end, left = _STATEMENTS[statement[0]](self, statement, frame)
            ways += left
            if end is End.ON:
                frame = frame.past(left)
                continue
            if end is End.SKIPPED and ways:  # an earlier statement may have left: then it is not sure to skip
                end = ways[0][1]
            is_whole = end is not End.SKIPPED and all(how is not End.BROKE for _, how in ways)
            return end, [(entered, end)] if is_whole else ways
        return End.ON, ways

    def _if(self, statement: Any, frame: Frame) -> Ending:  # noqa: ANN401 - statements are tuples
        _, test, body, orelse = statement
        truth = self._evaluator.truth(self._workspace.parser.expression(test), frame.scope)
        if truth is not None:
            return self._run(body if truth else orelse, frame._replace(is_guarded=True))
        return _either([self._run(body, frame.guarded(test)), self._run(orelse, frame.guarded(negated(test)))])

    def _loop(self, statement: Any, frame: Frame) -> Ending:  # noqa: ANN401
        kind, iterable, body, orelse = statement
        value = self._evaluator.text(iterable, frame.scope) if kind == "for" else UNKNOWN
        is_known = isinstance(value, (tuple, list, dict))
        if is_known and not value:
            return self._run(orelse, frame)
        inner = frame._replace(is_guarded=True) if is_known else frame.guarded(f"{kind} {iterable}")
        end, ways = self._run(body, inner)
        if is_known and end is not End.ON and all(how is not End.BROKE for _, how in ways):
            return end, ways
        last, left = self._run(orelse, frame.past(ways))
        rest = [way for way in ways if way[1] is not End.BROKE]
        return End.ON if len(rest) < len(ways) else last, rest + left

    def _try(self, statement: Any, frame: Frame) -> Ending:  # noqa: ANN401
        _, body, handlers, orelse, final = statement
        before = len(frame.effects)
        ending = self._run(body, frame) if not handlers else self._handled(body, handlers, orelse, frame)
        after = len(frame.effects)
        last, left = self._run(final, frame)
        if last is End.ON:
            return ending
        del frame.effects[before:after]  # what was raised is forgotten
        return last, left

    def _handled(self, body: Body, handlers: Any, orelse: Body, frame: Frame) -> Ending:  # noqa: ANN401
        """Run a body whose exceptions are handled, the handlers, and what runs where there are none.

        What stands before a skip in the body may raise, and a handler may catch the skip itself.
        """
        is_caught = any(_CATCH_ALL.fullmatch(error) for error, _ in handlers)
        quiet = _UNCAUGHT if is_caught else _QUIET
        end, found = self._run(body, frame.guarded(quiet))
        kept = [way for way in found if way[1] is not End.RAISED]
        ways = [(tuple(guard for guard in guards if guard != quiet), how) for guards, how in kept]
        caught = [self._run(handler, frame.guarded(f"except {error}".rstrip())) for error, handler in handlers]
        if end is End.ON:
            end, left = self._run(orelse, frame.past(ways).guarded(_QUIET))
            return _either([(end, ways + left), *caught])
        on = [error for (error, _), (how, _) in zip(handlers, caught, strict=True) if how is End.ON]
        if end is End.RETURNED and on:
            guard = negated(f"except {on[0] if len(on) == 1 else ''}".rstrip())
            return End.ON, [((*frame.guards, guard), end), *(way for _, left in caught for way in left)]
        is_on = end is End.RAISED or (end is End.SKIPPED and is_caught)
        return _either([(End.ON if is_on and on else end, ways), *caught])

    def _with(self, statement: Any, frame: Frame) -> Ending:  # noqa: ANN401
        return self._run(statement[2], frame)

    def _maybe(self, statement: Any, frame: Frame) -> Ending:  # noqa: ANN401
        return End.ON, self._run(statement[2], frame.guarded(f"case {statement[1]}"))[1]

    def _def(self, statement: Any, frame: Frame) -> Ending:  # noqa: ANN401
        """Run a nested function: of a decorator at once, as it is what replaces the test; else when it is called."""
        if frame.is_decorator:
            self._run(statement[2], frame)
        else:
            frame.nested[statement[1]] = statement[2]
        return End.ON, []

    def _leave(self, statement: Any, frame: Frame) -> Ending:  # noqa: ANN401, ARG002
        return End.BROKE, [(frame.guards, End.BROKE)]

    def _return(self, statement: Any, frame: Frame) -> Ending:  # noqa: ANN401
        if statement[1] and self._do(statement, frame)[0] is End.SKIPPED:
            return End.SKIPPED, []
        return End.RETURNED, [(frame.guards, End.RETURNED)]

    def _raise(self, statement: Any, frame: Frame) -> Ending:  # noqa: ANN401
        raised = End.RAISED, [(frame.guards, End.RAISED)]
        head = _HEAD.match(statement[1])
        if head is not None and not _SKIP_ERRORS.fullmatch(self._full_name(head.group(1), frame)):
            return raised
        error = self._workspace.parser.expression(statement[1].partition(" from ")[0]) if statement[1] else ("code", "")
        function, args = (error[1], error[2]) if error[0] == "call" else (error, ())
        if function[0] == "ref" and _SKIP_ERRORS.fullmatch(self._full_name(function[1], frame)):
            frame.skip(self._reason(args, frame), statement[2])
            return End.SKIPPED, []
        return raised

    def _do(self, statement: Any, frame: Frame) -> Ending:  # noqa: ANN401
        text = statement[1].removeprefix("await ")  # which skips as what it waits for does
        if not frame.is_decorator:
            head = _HEAD.match(text)
            if head is not None and not _names_skip(text) and not self._may_skip(head.group(1), frame):
                return End.ON, []
        expression = self._workspace.parser.expression(text)
        if frame.is_decorator:
            for effect in self._decorators.effects(expression, frame.scope):
                frame.skip(effect.reason, statement[2], effect.guards, effect.kind)
        return self._evaluate(expression, statement[2], frame), []

    def _is_idle(self, body: str, frame: Frame) -> bool:
        """Tell, without reading a body, that nothing in it could skip."""
        if _names_skip(body) or "raise" in body or self._workspace.mentions(frame.scope.source).skips_in(body):
            return False
        return not any(self._may_skip(dotted[::-1], frame) for dotted in set(_CALLED.findall(body[::-1])))

    def _may_skip(self, dotted: str, frame: Frame) -> bool:
        """Tell whether what is called by a name could skip."""
        first, _, rest = dotted.partition(".")
        if first in frame.nested:
            return True
        if first in {"self", "cls"} and frame.scope.cls is not None:
            return self._asked_for(frame.scope.cls, rest) is not None
        symbol = self._workspace.resolve(frame.scope.source, dotted) if first not in frame.scope.local else None
        return isinstance(symbol, Found) and isinstance(symbol.binding, Function)

    def _evaluate(self, expression: Expr, line: int, frame: Frame) -> End:
        """Run the calls of an expression that could skip."""
        kind = expression[0]
        if kind == "call":
            return self._call(expression, line, frame)
        if kind in {"and", "or"}:
            decided = self._evaluator.truth(expression[1][0], frame.scope)
            if decided is None or decided is (kind == "and"):
                guarded = frame if decided is not None else frame.guarded(_guard(expression[1][0], holds=kind == "and"))
                end = self._evaluate(expression[1][-1], line, guarded)
                return End.ON if decided is None else end
        if kind == "if":
            for branch, holds in zip(expression[2:], (True, False), strict=True):
                self._evaluate(branch, line, frame.guarded(_guard(expression[1], holds=holds)))
        return End.ON

    def _call(self, expression: Expr, line: int, frame: Frame) -> End:  # noqa: PLR0911 - one return for each case
        function, args = expression[1], expression[2]
        if function[0] == "attr" and function[1][:2] == ("call", ("ref", "super")):
            return self._inherited(function[2], args, frame)
        if function[0] != "ref":
            return End.ON
        dotted = function[1]
        if dotted in frame.nested:
            return self._inline(frame.nested.pop(dotted), frame)
        if dotted.endswith(".skipTest"):
            frame.skip(self._reason(args, frame), line)
            return End.SKIPPED
        first, _, rest = dotted.partition(".")
        if first in {"self", "cls"} and frame.scope.cls is not None:
            return self._method(self._asked_for(frame.scope.cls, rest), args, frame)
        name = self._full_name(dotted, frame)
        if name in SKIP_CALLS:
            frame.skip(self._reason(args, frame), line, kind="pytest")
            return End.SKIPPED
        if name in _IMPORT_OR_SKIP:
            frame.skip("", line, (f"no module {squeeze(args[0][2])}" if args else "no module",), "pytest")
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
        effects, _, questions = self.test(*found, cls)
        self._asking.discard((cls, name))
        return found if effects or any(question[-1] != name for question in questions) else None

    def _helper(self, dotted: str, args: tuple[Any, ...], frame: Frame) -> End:
        """Run a function of the repository, or a method called through its class."""
        symbol = self._workspace.resolve(frame.scope.source, dotted)
        if not isinstance(symbol, Found) or not isinstance(symbol.binding, Function) or frame.is_decorator:
            return End.ON
        body = self._body(symbol.source, symbol.binding)
        return self._inline(body, self._entered(symbol.source, symbol.binding, args, frame, is_method=False))

    def _inherited(self, name: str, args: tuple[Any, ...], frame: Frame) -> End:
        """Run what ``super().name(...)`` calls."""
        cls, definer = frame.scope.cls, frame.definer
        if cls is None or definer is None:
            return End.ON
        self._evaluator.asked.add(("after", definer, name))
        return self._method(cls.after(definer, name), args, frame)

    def _method(self, found: tuple[Linked, Any] | None, args: tuple[Any, ...], frame: Frame) -> End:
        if found is None or not isinstance(found[1], Function):
            return End.ON
        (definer, binding), cls = found, frame.scope.cls
        if not frame.is_decorator:
            for decorator in binding.decorators:
                for effect in self._decorators.of(definer.source, decorator):
                    if effect.kind == "unittest":  # a mark of pytest is read only from the test that is collected
                        frame.skip(effect.reason, effect.line, effect.guards, path=effect.path)
                        if not effect.guards:
                            return End.SKIPPED
        is_alone = not (frame.guards or frame.is_guarded or frame.is_decorator or args)
        is_new = binding.params == ("self",) and (id(definer), id(binding)) not in self._running
        if cls is not None and is_alone and is_new:
            effects, end, questions = self.test(definer, binding, cls)
            self._evaluator.asked |= questions
            frame.effects.extend(effects)
            return End.SKIPPED if end is End.SKIPPED else End.ON
        entered = self._entered(definer.source, binding, args, frame, is_method=True)
        return self._inline(self._body(definer.source, binding), entered._replace(definer=definer))

    def _entered(
        self, source: Source, function: Function, args: tuple[Any, ...], frame: Frame, *, is_method: bool
    ) -> Frame:
        """Return the frame of a call, with the parameters bound."""
        params = function.params[1:] if is_method and function.params[:1] in (("self",), ("cls",)) else function.params
        local: dict[str, Any] = {name: UNKNOWN for name in params if name not in {"self", "cls"}}
        positional = iter(params)
        for keyword, value, _ in args:
            name = keyword or next(positional, "")
            if name in local:
                is_self = value in (("ref", "self"), ("ref", "cls")) and frame.scope.cls is not None
                local[name] = SELF if is_self else self._evaluator.value(value, frame.scope)
        return frame._replace(scope=Scope(source, frame.scope.cls, local, text=function.body), nested={})

    def _inline(self, body: Body, frame: Frame) -> End:
        if frame.depth >= _DEPTH:
            return End.ON
        end, _ = self._run(body, frame._replace(depth=frame.depth + 1))
        return End.SKIPPED if end is End.SKIPPED else End.ON

    def _full_name(self, dotted: str, frame: Frame) -> str:
        if dotted.partition(".")[0] in frame.scope.local:
            return dotted
        symbol = self._workspace.resolve(frame.scope.source, dotted)
        if isinstance(symbol, External):
            return symbol.name
        if isinstance(symbol, Found) and isinstance(symbol.binding, Class):
            return symbol.binding.bases[0] if symbol.binding.bases else dotted
        return dotted if symbol is None else ""

    def _reason(self, args: tuple[Any, ...], frame: Frame) -> str:
        for keyword, value, _ in args:
            if keyword in {"", "reason", "msg"}:
                return self._evaluator.words(value, frame.scope)
        return ""


def _guard(expression: Expr, *, holds: bool) -> str:
    """Return how an expression reads on which the rest of another hangs."""
    text = describe(expression)
    return text if holds else negated(text)


def _either(endings: list[Ending]) -> Ending:
    """Return how a statement ends of whose parts one runs."""
    ends = {end for end, _ in endings}
    ways = [way for _, left in endings for way in left]
    if End.ON in ends:
        return End.ON, ways
    # what raises in a handled body has no way out of it: there is none where each handler skips
    return ends.pop() if len(ends) == 1 else next((how for _, how in ways), End.RETURNED), ways


def _names_skip(text: str) -> bool:
    return "kip" in text or "super(" in text


_STATEMENTS: dict[str, Any] = {
    "def": Runner._def,  # noqa: SLF001 - the table of this class
    "do": Runner._do,  # noqa: SLF001
    "for": Runner._loop,  # noqa: SLF001
    "if": Runner._if,  # noqa: SLF001
    "leave": Runner._leave,  # noqa: SLF001
    "maybe": Runner._maybe,  # noqa: SLF001
    "raise": Runner._raise,  # noqa: SLF001
    "return": Runner._return,  # noqa: SLF001
    "try": Runner._try,  # noqa: SLF001
    "while": Runner._loop,  # noqa: SLF001
    "with": Runner._with,  # noqa: SLF001
}
