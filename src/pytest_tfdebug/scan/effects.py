"""What a decorator or a body does to a test: the skips in it, and what each hangs on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_tfdebug.scan.conditions import Guards, negated
from pytest_tfdebug.scan.facts import Class, Decorator, Function, Value
from pytest_tfdebug.scan.values import UNKNOWN, Scope
from pytest_tfdebug.scan.workspace import External, Found

if TYPE_CHECKING:
    from pytest_tfdebug.scan.runner import Runner
    from pytest_tfdebug.scan.syntax import Expr
    from pytest_tfdebug.scan.values import Evaluator
    from pytest_tfdebug.scan.workspace import Source, Symbol, Workspace

_DEPTH = 8  # of decorators that call decorators


class Effect(NamedTuple):
    """A skip: unconditional where there are no ``guards``, also where it stands under one that always holds.

    ``kind`` is ``"unittest"`` or ``"pytest"``: whose skip it is, which decides whether a plain class heeds it.
    """

    reason: str
    guards: Guards
    path: str
    line: int
    kind: str = "unittest"
    is_guarded: bool = False


class Verb(NamedTuple):
    """A skip decorator: where its condition and reason are among its arguments, and whether it skips when true."""

    kind: str
    condition: int | None
    reason: int | None
    skips_when: bool = True


#: Every decorator that skips, by full name; ``unittest.skip`` is found under any alias.
VERBS = {
    "pytest.mark.skip": Verb("pytest", None, 0),
    "pytest.mark.skipif": Verb("pytest", 0, None),
    "unittest.case.skip": Verb("unittest", None, 0),
    "unittest.case.skipIf": Verb("unittest", 0, 1),
    "unittest.case.skipUnless": Verb("unittest", 0, 1, skips_when=False),
    "unittest.skip": Verb("unittest", None, 0),
    "unittest.skipIf": Verb("unittest", 0, 1),
    "unittest.skipUnless": Verb("unittest", 0, 1, skips_when=False),
}
#: Functions that skip the test that calls them.
SKIP_CALLS = frozenset({"pytest.skip", "_pytest.outcomes.skip"})
#: Decorators that are a condition by their name, in the repository or out of it.
CONDITIONS = re.compile(r"slow|nightly|tooslow|require_\w+|requires_\w+|skip_?if\w*|skip_?unless\w*|skip_\w+")
#: Decorators outside the repository that always skip.
_ALWAYS = {"tooslow": "test is too slow"}


class Decorators:
    """Finds the skips of decorators, whatever they are called and wherever they are defined."""

    def __init__(self, workspace: Workspace, evaluator: Evaluator) -> None:
        self.workspace, self._evaluator = workspace, evaluator
        self.runner: Runner
        self._known: dict[tuple[str, Decorator], tuple[Effect, ...]] = {}
        self._plain: dict[tuple[str, str | int], list[Effect]] = {}  # by identity: a module keeps what it binds

    def of(self, source: Source, decorator: Decorator, body: Class | None = None) -> tuple[Effect, ...]:
        """Return the skips of one decorator of a module, or of the body of a class."""
        key = (source.path, decorator)
        if key not in self._known:
            effects = self._of_text(source, decorator.text, body)
            path, line = source.path, decorator.line
            self._known[key] = tuple([Effect(*effect[:2], path, line, *effect[4:]) for effect in effects])
        return self._known[key]

    def _of_text(self, source: Source, text: str, body: Class | None) -> list[Effect]:
        """Return the skips of a decorator's text; what is given constants alone has the same ones everywhere."""
        expression = self.workspace.parser.expression(text)
        function, args = (expression[1], expression[2]) if expression[0] == "call" else (expression, ())
        symbol = self.workspace.resolve(source, function[1]) if function[0] == "ref" else None
        if not isinstance(symbol, (External, Found)) or any(value[0] != "const" for _, value, _ in args):
            return self.effects(expression, Scope(source, body=body))
        key = text, symbol.name if isinstance(symbol, External) else id(symbol.binding)
        if key not in self._plain:
            verb = VERBS.get(symbol.name) if isinstance(symbol, External) else None
            scope = Scope(source)
            self._plain[key] = self.effects(expression, scope) if verb is None else self._verb(verb, args, scope)
        return self._plain[key]

    def is_mark(self, source: Source, decorator: Decorator) -> bool:
        """Tell whether a decorator is a mark of pytest, which is callable whatever it is put on."""
        expression = self.workspace.parser.expression(decorator.text)
        name = expression[1] if expression[0] == "call" else expression
        symbol = self.workspace.resolve(source, name[1]) if name[0] == "ref" else None
        return isinstance(symbol, External) and symbol.name.startswith("pytest.mark.")

    def module_skip(self, source: Source, call: Decorator) -> list[Effect]:
        """Return the skip of a ``pytest.skip(..., allow_module_level=True)`` at the top of a module."""
        expression = self.workspace.parser.expression(call.text)
        if expression[0] != "call" or expression[1][0] != "ref":
            return []
        symbol = self.workspace.resolve(source, expression[1][1])
        if not isinstance(symbol, External) or symbol.name not in SKIP_CALLS:
            return []
        reason = self._evaluator.words(expression[2][0][1], Scope(source)) if expression[2] else ""
        return [Effect(reason, (), source.path, call.line, "pytest")]

    def effects(self, expression: Expr, scope: Scope) -> list[Effect]:  # noqa: PLR0911 - one return for each case
        """Return the skips of a decorator expression."""
        if scope.depth > _DEPTH:
            return []
        scope = scope._replace(depth=scope.depth + 1)
        kind = expression[0]
        if kind == "call":
            return self._called(expression, scope)
        if kind == "ref":
            return self._named(expression, (), scope)
        if kind == "lambda":
            return self.effects(expression[1], scope)
        if kind == "if":
            branches = [effect for branch in expression[2:] for effect in self.effects(branch, scope)]
            return [effect._replace(guards=effect.guards or ("a ternary",)) for effect in branches]
        if kind in {"list", "tuple"}:
            return [effect for item in expression[1] for effect in self.effects(item, scope)]
        return []

    def _called(self, expression: Expr, scope: Scope) -> list[Effect]:
        function, args = expression[1], expression[2]
        if function[0] == "ref":
            if function[1].endswith("parametrize"):
                return [effect for arg in args[1:2] for effect in self._parameters(arg[1], scope)]
            found = self._named(function, args, scope)
            if found or function[1].rpartition(".")[2] in {"expand", "patch"}:
                return found
        else:
            found = self.effects(function, scope)
        for arg in args:  # require_torch(require_accelerate(test_case))
            if arg[1][0] in {"call", "lambda"}:
                found = [*found, *self.effects(arg[1], scope)]
        return found

    def _parameters(self, expression: Expr, scope: Scope) -> list[Effect]:
        """Return the skips that ``pytest.param(..., marks=...)`` puts on some parameters of a test."""
        kind = expression[0]
        if scope.depth > _DEPTH:
            return []
        if kind in {"list", "tuple"}:
            return [effect for item in expression[1] for effect in self._parameters(item, scope)]
        if kind == "star":
            return self._parameters(expression[1], scope)
        if kind == "ref":
            symbol = self.workspace.resolve(scope.source, expression[1])
            if isinstance(symbol, Found) and isinstance(symbol.binding, Value) and symbol.binding.text:
                value = self.workspace.parser.expression(symbol.binding.text)
                return self._parameters(value, Scope(symbol.source, depth=scope.depth + 1))
        if kind != "call" or expression[1][0] != "ref" or not expression[1][1].endswith("param"):
            return []
        marks = [effect for arg in expression[2] if arg[0] == "marks" for effect in self.effects(arg[1], scope)]
        return [
            effect._replace(
                guards=("for some parameters", *effect.guards) if effect.guards else ("only some parameters",)
            )
            for effect in marks
        ]

    def _named(self, function: Expr, args: tuple[Any, ...], scope: Scope) -> list[Effect]:
        dotted = function[1]
        symbol = self.workspace.resolve(scope.source, dotted) if dotted not in scope.local else None
        name = symbol.name if isinstance(symbol, External) else dotted
        if isinstance(symbol, External) and symbol.name in VERBS:
            return self._verb(VERBS[symbol.name], args, scope)
        found = self._defined(symbol, args, scope)
        last = name.rpartition(".")[2]
        if found or name.startswith(("pytest.mark.", "unittest.")) or not CONDITIONS.fullmatch(last):
            return [effect._replace(guards=effect.guards and (last + _given(args),)) for effect in found]
        if isinstance(symbol, External) and last in _ALWAYS:
            return [Effect(_ALWAYS[last], (), "", 0)]
        return [] if dotted in scope.local else [Effect("", (last + _given(args),), "", 0)]

    def _defined(self, symbol: Symbol | None, args: tuple[Any, ...], scope: Scope) -> list[Effect]:
        """Return the skips of a decorator that the repository defines."""
        if not isinstance(symbol, Found):
            return []
        if isinstance(symbol.binding, Function):
            local = self._bound(symbol.binding, args, scope)
            return self.runner.decorator(symbol.source, symbol.binding, local, scope.depth)
        if isinstance(symbol.binding, Value) and symbol.binding.text:
            expression = self.workspace.parser.expression(symbol.binding.text)
            return self.effects(expression, Scope(symbol.source, depth=scope.depth))
        return []

    def _bound(self, function: Function, args: tuple[Any, ...], scope: Scope) -> dict[str, Any]:
        """Return what a decorator's parameters are in a call of it."""
        local: dict[str, Any] = dict.fromkeys(function.params, UNKNOWN)
        positional = iter(function.params)
        for keyword, value, _ in args:
            name = keyword or next(positional, None)
            if name in local:
                local[name] = self._evaluator.value(value, scope)
        return local

    def _verb(self, verb: Verb, args: tuple[Any, ...], scope: Scope) -> list[Effect]:
        positional = [arg for arg in args if not arg[0]]
        keywords = {arg[0]: arg for arg in args if arg[0]}
        given = keywords.get("reason") or (
            positional[verb.reason] if verb.reason is not None and len(positional) > verb.reason else None
        )
        reason = self._evaluator.words(given[1], scope) if given is not None else ""
        if verb.condition is None:
            return [Effect(reason, (), "", 0, verb.kind)]
        tested = keywords.get("condition") or (positional[0] if positional else None)
        if tested is None:
            return [Effect(reason, (), "", 0, verb.kind)]
        truth = self._evaluator.truth(tested[1], scope)
        if truth is None or (verb.kind == "pytest" and tested[1][0] == "const" and isinstance(tested[1][1], str)):
            text = tested[2] if verb.skips_when else negated(tested[2])
            return [Effect(reason, (text,), "", 0, verb.kind)]
        return [Effect(reason, (), "", 0, verb.kind)] if truth is verb.skips_when else []


def _given(args: tuple[Any, ...]) -> str:
    """Return the arguments that tell one use of a decorator from another, such as ``("2.5")``."""
    if not any(value[0] == "const" for _, value, _ in args):
        return ""
    return f"({', '.join(f'{keyword}={text}' if keyword else text for keyword, _, text in args)})"
