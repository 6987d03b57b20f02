"""What a file binds: imports, values, functions and classes; what they hold is read when it is first asked for."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import libcst as cst

from pytest_tfdebug.scan import syntax
from pytest_tfdebug.scan.errors import BadSourceError
from pytest_tfdebug.scan.outline import uncommented
from pytest_tfdebug.scan.shortened import shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_tfdebug.scan.outline import Outline, Statement

#: Characters that are not of a name, blanked, so that what is called stands between blanks and a bracket.
_NO_NAMES = {code: " " for code in range(128) if not (chr(code).isalnum() or chr(code) in "_.(")}


class Decorator(NamedTuple):
    """One decorator: its expression as written and its line."""

    text: str
    line: int


class Value(NamedTuple):
    """A name bound to the value of an expression; ``text`` is empty where the expression is not known.

    ``previous`` is what the name was bound to where the expression uses it; ``is_sure`` is False under an ``if``,
    ``try`` or loop, where another value may win.
    """

    text: str
    line: int
    previous: Function | Value | None = None
    is_sure: bool = True


class Import(NamedTuple):
    """A name bound by an import: ``module`` with its leading dots, ``name`` empty for the module itself."""

    module: str
    name: str
    line: int


class Source(NamedTuple):
    """Where a function or class stands.

    Attributes:
        outline: Its file.
        note_bad: Is told what of it cannot be read, and the line.
        is_ours: Tells whether a dotted name of the file is a function, class or value of the repository.
    """

    outline: Outline
    note_bad: Callable[[BadSourceError, int], None]
    is_ours: Callable[[str], bool]


class Function:
    """A function of a file.

    Args:
        name: Its name.
        decorators: Its decorators, the outermost first.
        statement: Its definition.
        source: Where it stands; None for a function of which nothing but its decorators is left.
    """

    def __init__(
        self, name: str, decorators: tuple[Decorator, ...], statement: Statement, source: Source | None
    ) -> None:
        self.name, self.decorators, self.line = name, decorators, statement.line
        self._statement, self._source = statement, source

    def without_body(self, decorators: tuple[Decorator, ...]) -> Function:
        """Return a function of the same name and place with other decorators and no body."""
        return Function(self.name, decorators, self._statement, None)

    @cached_property
    def text(self) -> str:
        """The source of the definition, without its decorators."""
        if self._source is None:
            return ""
        return self._source.outline.text(self._statement.first, self._statement.last)

    @cached_property
    def calls(self) -> frozenset[str]:
        """The dotted names before an opening bracket, anywhere in the body."""
        words = (piece.rpartition(" ")[2] for piece in self.text.translate(_NO_NAMES).split("(")[1:-1])
        return frozenset(word for word in words if word and not word[0].isdigit())

    @cached_property
    def raised(self) -> frozenset[str]:
        """The dotted names after the word ``raise``, anywhere in the body."""
        words = (
            piece.translate(_NO_NAMES).replace("(", " ").split(" ", 1)[0] for piece in self.text.split("raise ")[1:]
        )
        return frozenset(word for word in words if word)

    @cached_property
    def takes_nothing(self) -> bool:
        """Whether ``self`` is all that it takes."""
        return self.text.partition("(")[2].partition(")")[0].strip() == "self"

    @cached_property
    def is_empty(self) -> bool:
        """Whether the body tests nothing: it holds but strings, ``pass``, ``...`` and a bare ``return``."""
        if self._source is None:
            return False
        outline, statement = self._source.outline, self._statement
        inside = statement.inline or outline.block(statement.first + 1, statement.last)
        texts = {uncommented(each.text).strip() for each in inside}
        if not all(map(_may_be_nothing, texts)):
            return False
        if texts <= {"pass", "...", "return"}:
            return bool(texts)
        node = self._parsed([self.text])
        body = node.body.body if node is not None else ()
        smalls = (
            small for line in body for small in (line.body if isinstance(line, cst.SimpleStatementLine) else [line])
        )
        return bool(body) and all(map(_is_nothing, smalls))

    @cached_property
    def _read(self) -> tuple[Any, list[int]]:
        """The libcst node of what of the definition can matter to a skip, and the lines of its statements."""
        if self._source is None:
            return None, []
        bounds = self._statement.first, self._statement.last
        texts, lines = shorten(self._source.outline, *bounds, self._source.is_ours)
        return self._parsed(texts), lines

    @property
    def node(self) -> Any:  # noqa: ANN401 - libcst is not typed here
        """The libcst node of what of the definition can matter to a skip; None where it cannot be read."""
        return self._read[0]

    def _parsed(self, texts: list[str]) -> Any:  # noqa: ANN401
        try:
            for text in texts:
                syntax.check_size(text)
            text = "\n".join(texts)
            node = syntax.parse(f"if 1:\n{text}\n" if text[:1].isspace() else f"{text}\n").body[0]
            found = node.body.body[0] if isinstance(node, cst.If) else node
        except BadSourceError as error:
            if self._source is not None:
                self._source.note_bad(error, self.line)
            return None
        return found if isinstance(found, cst.FunctionDef) else None

    @cached_property
    def params(self) -> tuple[str, ...]:
        """The names of the parameters."""
        if self.node is None:
            return ()
        params = self.node.params
        star = [params.star_arg] if isinstance(params.star_arg, cst.Param) else []
        kwarg = [params.star_kwarg] if params.star_kwarg else []
        every = (*params.posonly_params, *params.params, *star, *params.kwonly_params, *kwarg)
        return tuple(param.name.value for param in every)

    @cached_property
    def lines(self) -> dict[int, int]:
        """The line of each statement of the body, by ``id`` of its libcst node."""
        node, lines = self._read
        found: dict[int, int] = {}
        if node is not None:
            _number(node.body, iter(lines[1:]), self.line, found)
        return found


def _number(suite: Any, numbers: Iterator[int], line: int, found: dict[int, int]) -> None:  # noqa: ANN401
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


def _may_be_nothing(text: str) -> bool:
    """Tell, by how it begins, whether a statement may be one that does nothing."""
    return text.startswith(('"', "'", "pass", "...", "return")) or text[:1] in "rRuUbBfF"


def _is_nothing(node: Any) -> bool:  # noqa: ANN401
    if isinstance(node, cst.Pass):
        return True
    if not isinstance(node, (cst.Expr, cst.Return)):
        return False
    strings = (cst.SimpleString, cst.FormattedString, cst.ConcatenatedString, cst.Ellipsis)
    is_none = isinstance(node.value, cst.Name) and node.value.value == "None"
    return node.value is None or is_none or isinstance(node.value, strings)


class Class:
    """A class of a file.

    Args:
        name: Its name.
        decorators: Its decorators.
        statement: Its definition.
        source: Where it stands; None for what stands for no class.
        bind_all: Binds what the statements of a block bind.
    """

    def __init__(
        self,
        name: str,
        decorators: tuple[Decorator, ...],
        statement: Statement | None,
        source: Source | None,
        bind_all: Callable[[list[Statement]], dict[str, Binding]],
    ) -> None:
        self.name, self.decorators = name, decorators
        self.line = statement.line if statement is not None else 0
        self._statement, self._source, self._bind_all = statement, source, bind_all

    @classmethod
    def nothing(cls) -> Class:
        """Return what stands for the class of a function outside any, and binds nothing."""
        return cls("", (), None, None, lambda _: {})

    @property
    def has_bases(self) -> bool:
        """Whether its header has brackets, which bases may stand in."""
        return self._statement is not None and "(" in self._statement.text

    @cached_property
    def _arguments(self) -> list[Any]:
        """What stands in the brackets of the header, as libcst reads the arguments of a call."""
        if self._statement is None or self._source is None or not self.has_bases:
            return []
        try:
            bracket = self._statement.text.partition("(")
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
    def _block(self) -> list[Statement]:
        if self._statement is None or self._source is None:
            return []
        inline = list(self._statement.inline)
        return inline or self._source.outline.block(self._statement.first + 1, self._statement.last)

    @cached_property
    def members(self) -> dict[str, Binding]:
        """What its body binds."""
        return self._bind_all(self._block)

    @cached_property
    def writes(self) -> frozenset[str]:
        """The attributes that its methods set on ``self`` or ``cls``, and the class body then does not decide."""
        if self._statement is None or self._source is None:
            return frozenset()
        outline = self._source.outline
        lines, starts = outline.lines, outline.starts[self._statement.first : self._statement.last]
        found: set[str] = set()
        for line in (lines[start] for start in starts):
            if "=" in line and ("self." in line or "cls." in line):
                found.update(_written(line))
        return frozenset(found)


def _written(line: str) -> Iterator[str]:
    """Yield the attributes of ``self`` and ``cls`` that stand before an equals sign."""
    parts = line.split("=")
    for part, following in pairwise(parts):
        for owner in ("self.", "cls."):
            name = part.rpartition(owner)[2].partition(":")[0].strip() if owner in part else ""
            if name.isidentifier() and following:
                yield name


Binding: TypeAlias = "Function | Value | Import | Class"


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
        if isinstance(earlier, Value):
            names[name] = earlier._replace(is_sure=False)
        return
    if isinstance(binding, Value) and isinstance(earlier, (Function, Value)) and name in binding.text:
        try:
            if syntax.mentions(syntax.expression(binding.text), name):
                binding = binding._replace(previous=earlier)
        except BadSourceError:  # what cannot be read uses nothing
            pass
    del names[name]
    names[name] = binding
