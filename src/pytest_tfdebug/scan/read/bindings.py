"""The imports, values, functions and classes that a file binds; each is read when it is first asked for."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import libcst as cst

from pytest_tfdebug.scan.errors import BadSourceError
from pytest_tfdebug.scan.read import syntax
from pytest_tfdebug.scan.read.outline import Outline, Statement, calls_that, uncommented

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Decorator(NamedTuple):
    """One decorator: its expression as written and its line."""

    text: str
    line: int


class BoundValue(NamedTuple):
    """A name bound to the value of an expression; ``text`` is empty where the expression is not known.

    ``previous`` is what the name was bound to before, if the expression uses that. ``is_sure`` is False under an
    ``if``, ``try`` or loop, where another value may win.
    """

    text: str
    line: int
    previous: BoundFunction | BoundValue | None = None
    is_sure: bool = True


class Import(NamedTuple):
    """A name bound by an import: ``module`` with its leading dots, ``name`` empty for the module itself."""

    module: str
    name: str
    line: int


class Source(NamedTuple):
    """What a function or class needs of its file.

    Attributes:
        note_bad: Notes an error in the file, and its line.
        may_skip: Tells whether calling a dotted name of the file may skip.
        members: Returns what the statements of a class's body bind.
    """

    note_bad: Callable[[BadSourceError, int], None]
    may_skip: Callable[[str], bool]
    members: Callable[[list[Statement]], dict[str, Binding]]


class _Defined:
    """A function or class of a file; the outermost of its decorators comes first."""

    def __init__(self, name: str, decorators: tuple[Decorator, ...], statement: Statement, source: Source) -> None:
        self.name, self.decorators, self.line = name, decorators, statement.line
        self._statement, self._source = statement, source


class BoundFunction(_Defined):
    """A function of a file."""

    @cached_property
    def is_empty(self) -> bool:
        """Whether the body tests nothing: no statement of it that runs does anything."""
        return bool(self._statement.block) and _is_idle(self._statement.block)

    @cached_property
    def what_hides(self) -> str:
        """Why the body cannot fail: it only calls its super method, and what that raises is no failure; else empty."""
        left = [each for each in self._statement.block if each.word or not _does_nothing(_code_of(each))]
        if not left or not _only_calls_super(left[0].block):
            return ""
        first, more = left[0], left[1:]
        if first.word == "with" and not more and _expects_failure(_code_of(first)):
            return "its super method is expected to fail"
        is_caught = any(_catches_failure(_code_of(each)) for each in more)
        if first.word == "try" and is_caught and all(each.word == "except" and _is_idle(each.block) for each in more):
            return "what its super method raises is caught"
        return ""

    def mentions(self, name: str) -> bool:
        """Tell whether a name stands in its source."""
        return name in self._statement.source

    @property
    def does_nothing_but_skip(self) -> bool:
        """Whether the body tests nothing, or all that it does is to skip."""
        texts = (uncommented(each.text).strip() for each in self._statement.block)
        left = [text for text in texts if not _does_nothing(text)]
        return not left or (len(left) == 1 and left[0].startswith(("self.skipTest(", "pytest.skip(", "raise ")))

    @property
    def docstring(self) -> str:
        """The text of its docstring, on one line."""
        text = next((uncommented(each.text).strip() for each in self._statement.block), "")
        node = _read(text) if text[:1] in {'"', "'"} else None
        value = syntax.constant(node) if node is not None else ""
        return " ".join(value.split()) if isinstance(value, str) else ""

    @cached_property
    def callees(self) -> frozenset[str]:
        """The names of the callables in the body that may skip; an empty name if the body skips by itself."""
        return calls_that(self._source.may_skip, self._statement.source)

    @cached_property
    def body(self) -> Body | None:
        """What libcst reads of the definition; None where it cannot."""
        outline = self._statement.outline
        numbers = range(self._statement.first, self._statement.last)
        try:
            suite = syntax.definition([outline.text(at, at + 1) for at in numbers]).body
        except BadSourceError as error:
            self._source.note_bad(error, self.line)
            return None
        found: dict[int, int] = {}
        _number(suite, map(outline.line, numbers[1:]), self.line, found)
        return Body(suite, found)

    @cached_property
    def params(self) -> tuple[str, ...]:
        """The names of the parameters."""
        if self.takes_nothing:
            return ("self",)
        try:
            params = syntax.definition([self._statement.text, " pass"]).params
        except BadSourceError:  # it is noted when the body is read
            return ()
        every = (
            *params.posonly_params, *params.params, params.star_arg, *params.kwonly_params, params.star_kwarg
        )  # fmt: skip
        return tuple(param.name.value for param in every if isinstance(param, cst.Param))

    @cached_property
    def takes_nothing(self) -> bool:
        """Whether ``self`` is all that it takes."""
        return self._statement.text.partition("(")[2].partition(")")[0].strip() == "self"

    def is_local(self, name: str) -> bool:
        """Tell whether the body binds a name; it may where not all of it can be read."""
        return self._statement.source.count(name) > 1 and (self._bound is None or name in self._bound)

    @cached_property
    def _bound(self) -> frozenset[str] | None:
        if self.body is None:
            return None
        nodes = syntax.walk(self.body.suite)
        return frozenset(name for node in nodes if isinstance(node, _BINDERS) for name in _names(node))


class Body(NamedTuple):
    """What libcst reads of a function: its suite, and the line of each statement by ``id`` of its node."""

    suite: Any
    lines: dict[int, int]


#: Nodes with names in them that are bound.
_BINDERS = (
    cst.AssignTarget, cst.AnnAssign, cst.AugAssign, cst.For, cst.CompFor, cst.AsName, cst.NamedExpr, cst.ImportAlias,
)  # fmt: skip


def _names(node: Any) -> Iterator[str]:
    if isinstance(node, cst.ImportAlias):
        if node.asname is None:
            yield node.evaluated_name.partition(".")[0]
    elif isinstance(node, cst.AsName):
        yield from _of_target(node.name)
    elif not isinstance(node, cst.AnnAssign) or node.value is not None:
        yield from _of_target(node.target)


def _of_target(target: Any) -> Iterator[str]:
    if isinstance(target, cst.Name):
        yield target.value
    elif isinstance(target, (cst.Tuple, cst.List)):
        for element in target.elements:
            yield from _of_target(element.value)


def _number(suite: Any, numbers: Iterator[int], line: int, found: dict[int, int]) -> None:
    """Give each statement of a suite its line: the logical lines of the outline, in the order of the tree."""
    is_block = isinstance(suite, cst.IndentedBlock)
    for node in suite.body:
        if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
            for _ in node.decorators:
                next(numbers, line)
        line = next(numbers, line) if is_block else line
        for small in node.body if isinstance(node, cst.SimpleStatementLine) else (node,):
            found[id(small)] = line
        for at, inner in enumerate(syntax.suites(node) if isinstance(node, cst.BaseCompoundStatement) else ()):
            own = at == 0 and not isinstance(node, cst.Match)  # the one below the header that was just counted
            _number(inner, numbers, line if own else next(numbers, line), found)


#: Headers whose block is as idle as its statements, and what a loop may go over without a single round.
_ENTERED = frozenset({"for", "while", "if", "elif", "else", "try", "except", "finally"})
_MADE_EMPTY = frozenset({"dict", "frozenset", "list", "range", "set", "tuple"})
#: Characters of an empty literal, or of a call that makes an empty value, at most.
_SHORT = 40


#: What expects that a block fails, and what a handler names that catches a failed assertion.
_EXPECTING = frozenset({"assertRaises", "assertRaisesRegex", "raises"})
_CATCHING = ("AssertionError", "BaseException", "Exception")


def _code_of(statement: Statement) -> str:
    return uncommented(statement.text).strip()


def _expects_failure(header: str) -> bool:
    """Tell whether a ``with`` expects an exception."""
    node = _read(header.removeprefix("with").strip().removesuffix(":").partition(" as ")[0])
    return isinstance(node, cst.Call) and syntax.dotted(node.func).rpartition(".")[2] in _EXPECTING


def _catches_failure(header: str) -> bool:
    """Tell whether an ``except`` catches a failed assertion."""
    named = header.removeprefix("except").strip().removesuffix(":").partition(" as ")[0]
    node = _read(named) if named else None
    return not named or (node is not None and syntax.mentions(node, *_CATCHING))


def _only_calls_super(block: list[Statement]) -> bool:
    left = [_code_of(each) for each in block if each.word or not _does_nothing(_code_of(each))]
    return len(left) == 1 and left[0].removeprefix("return ").startswith("super()")


def _is_idle(block: list[Statement]) -> bool:
    """Tell whether nothing that runs in a block does anything; what stands below a ``return`` does not run."""
    for statement in block:
        text = uncommented(statement.text).strip()
        if text in {"return", "return None"}:
            return True
        if statement.word in _ENTERED:
            if not (_is_never_entered(statement.word, text) or _is_idle(statement.block)):
                return False
        elif statement.word or not _does_nothing(text):
            return False
    return True


def _is_never_entered(word: str, header: str) -> bool:
    """Tell whether a loop goes over nothing, or a condition is a false constant."""
    tested = header.rstrip(":").partition(" in " if word == "for" else " ")[2]
    node = _read(tested) if word in {"for", "while", "if"} and len(tested) <= _SHORT else None
    if isinstance(node, (cst.Tuple, cst.List, cst.Dict)):
        return not node.elements
    if isinstance(node, cst.Call):
        return syntax.dotted(node.func) in _MADE_EMPTY and all(_is_false(arg.value) for arg in node.args)
    return node is not None and _is_false(node)


def _is_false(node: Any) -> bool:
    value = syntax.constant(node)
    return value is not syntax.UNKNOWN and not value


def _does_nothing(text: str) -> bool:
    """Tell whether a simple statement does nothing: it is a string, ``pass``, ``...`` or a bare ``return``."""
    if text in {"pass", "...", "return", "return None"}:
        return True
    is_text = text.lstrip("rRuUbBfF(")[:1] in {'"', "'"}
    return is_text and isinstance(_read(text), (cst.SimpleString, cst.FormattedString, cst.ConcatenatedString))


def _read(text: str) -> Any:
    with suppress(BadSourceError):
        return syntax.expression(text)
    return None


class Class(_Defined):
    """A class of a file."""

    @classmethod
    def nothing(cls) -> Class:
        """Return what stands for the class of a function outside any, and binds nothing."""
        [statement] = Outline("class _: pass").block(0, 1)
        return cls("", (), statement, Source(lambda *_: None, lambda _: False, lambda _: {}))

    @property
    def has_bases(self) -> bool:
        """Whether its header has brackets, which bases may stand in."""
        return "(" in self._statement.text

    @cached_property
    def _arguments(self) -> list[Any]:
        """What stands in the brackets of the header, as libcst reads the arguments of a call."""
        bracket = self._statement.text.partition("(")
        try:
            if not bracket[1]:
                return []
            if "[" in bracket[0]:  # type parameters, which may have brackets of their own
                header = syntax.statement(f"{self._statement.text}\n pass\n")
                return [*header.bases, *header.keywords]
            return list(syntax.expression(f"_({uncommented(bracket[2]).rstrip().removesuffix(':')}").args)
        except (BadSourceError, AttributeError) as error:
            self._source.note_bad(BadSourceError(f"line {self.line}: invalid syntax ({error})"), self.line)
            return []

    @cached_property
    def bases(self) -> list[Any]:
        """The libcst nodes of the bases, without unpacked ones."""
        return [arg.value for arg in self._arguments if not arg.star and not arg.keyword]

    @cached_property
    def metaclasses(self) -> list[str]:
        """The source of its metaclass, if it names one."""
        return [syntax.code(arg.value) for arg in self._arguments if arg.keyword and arg.keyword.value == "metaclass"]

    @cached_property
    def members(self) -> dict[str, Binding]:
        """What its body binds."""
        return self._source.members(self._statement.block)

    @cached_property
    def writes(self) -> frozenset[str]:
        """The attributes that its methods set on ``self`` or ``cls``, and the class body then does not decide."""
        outline = self._statement.outline
        lines = (outline.lines[start] for start in outline.starts[self._statement.first : self._statement.last])
        return frozenset(
            name
            for line in lines
            if "=" in line and ("self." in line or "cls." in line)
            for part, following in pairwise(line.split("="))
            for owner in ("self.", "cls.")
            if owner in part
            and following
            and (name := part.rpartition(owner)[2].partition(":")[0].strip()).isidentifier()
        )


Binding: TypeAlias = "BoundFunction | BoundValue | Import | Class"


class Module(NamedTuple):
    """A file: the names it binds at its top level, its star imports, and its calls that may skip all of it."""

    names: dict[str, Binding]
    stars: tuple[str, ...] = ()
    calls: tuple[Decorator, ...] = ()


def bind(names: dict[str, Binding], name: str, binding: Binding, *, weak: bool) -> None:
    """Bind a name as executing the statement would; a weak binding (``else``, ``except``) yields to an earlier one."""
    earlier = names.get(name)
    if earlier is None:
        names[name] = binding
        return
    if weak:
        if isinstance(earlier, BoundValue):
            names[name] = earlier._replace(is_sure=False)
        return
    if isinstance(binding, BoundValue) and isinstance(earlier, (BoundFunction, BoundValue)) and name in binding.text:
        node = _read(binding.text)
        if node is not None and syntax.mentions(node, name):
            binding = binding._replace(previous=earlier)
    del names[name]
    names[name] = binding
