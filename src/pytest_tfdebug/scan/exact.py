"""A file's facts by parsing all of it with libcst: what the lexical cut is held to."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_tfdebug.scan import lexer
from pytest_tfdebug.scan.errors import BadSourceError
from pytest_tfdebug.scan.facts import Binding, Class, Decorator, Function, Import, Mention, Module, Value, bind, written

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import libcst

_NEVER = frozenset({"TYPE_CHECKING", "typing.TYPE_CHECKING", "False", "0"})


class Parsed(NamedTuple):
    """A parsed text with what is needed to slice it by node."""

    text: str
    masked: str
    module: libcst.Module
    lines: Sequence[int]
    positions: Mapping[libcst.CSTNode, Any]

    @classmethod
    def of(cls, text: str) -> Parsed:
        """Parse a text.

        Raises:
            BadSourceError: If libcst cannot parse it.
        """
        import libcst
        from libcst.metadata import MetadataWrapper, PositionProvider

        try:
            wrapper = MetadataWrapper(libcst.parse_module(text), unsafe_skip_copy=True)
        except libcst.ParserSyntaxError as error:
            raise BadSourceError(f"line {error.raw_line}: {error.message}") from error
        offsets = [0, *(found.end() for found in re.finditer("\n", text)), len(text)]
        return cls(text, lexer.mask(text), wrapper.module, offsets, wrapper.resolve(PositionProvider))

    def line(self, node: libcst.CSTNode) -> int:
        """Return the line on which a node begins."""
        return int(self.positions[node].start.line)

    def offset(self, position: Any) -> int:  # noqa: ANN401 - libcst is not typed here
        """Return the offset of a position in the text."""
        return int(self.lines[position.line - 1] + position.column)

    def code(self, node: libcst.CSTNode) -> str:
        """Return a node's source as written, with its brackets: libcst's positions leave them out."""
        span = self.positions[node]
        start, end = self.offset(span.start), self.offset(span.end)
        brackets = getattr(node, "lpar", ())
        for _ in brackets if isinstance(brackets, (list, tuple)) else ():
            start, end = self.masked.rindex("(", 0, start), self.masked.index(")", end) + 1
        return self.text[start:end].strip()


def exact(text: str) -> Module:
    """Return the facts of a file from its syntax tree.

    Raises:
        BadSourceError: If libcst cannot parse the file.
    """
    parsed = Parsed.of(text)
    return _Builder(parsed, Mention.of(_names(parsed, parsed.module.body))).module(parsed.module)


def _names(parsed: Parsed, body: Sequence[libcst.CSTNode]) -> dict[str, Binding]:
    """Return the names that a file binds but for its classes, which is what can be an alias of a skip."""
    import libcst

    builder = _Builder(parsed, Mention.of({}))
    scope = _Scope({}, [], [])
    plain = [node for node in body if not isinstance(node, libcst.ClassDef)]
    builder.block(plain, scope, weak=False, top=True)
    return scope.names


class _Scope(NamedTuple):
    names: dict[str, Binding]
    stars: list[str]
    calls: list[Value]
    is_sure: bool = True


class _Builder:
    """Turns the statements of a file into facts."""

    def __init__(self, parsed: Parsed, mentions: Mention) -> None:
        self._parsed, self._mentions = parsed, mentions

    def module(self, module: libcst.Module) -> Module:
        """Return the facts of a whole file."""
        scope = _Scope({}, [], [])
        self.block(module.body, scope, weak=False, top=True)
        calls = tuple(call for call in scope.calls if self._mentions.skips_in(call.text))
        return Module(scope.names, tuple(scope.stars), calls)

    def block(self, body: Sequence[libcst.CSTNode], scope: _Scope, *, weak: bool, top: bool = False) -> None:
        """Bind what the statements of a block bind."""
        import libcst

        for node in body:
            if isinstance(node, libcst.FunctionDef):
                bind(scope.names, node.name.value, self._function(node, top=top), weak=weak)
            elif isinstance(node, libcst.ClassDef):
                bind(scope.names, node.name.value, self._class(node), weak=weak)
            elif isinstance(node, libcst.SimpleStatementLine):
                for small in node.body:
                    self._small(small, scope, weak=weak)
            else:
                for branch, is_weak in _branches(node, self._parsed, weak=weak):
                    self._suite(
                        branch,
                        scope._replace(calls=[], is_sure=False),
                        weak=is_weak,
                        top=top,
                    )

    def _suite(self, suite: Any, scope: _Scope, *, weak: bool, top: bool) -> None:  # noqa: ANN401
        import libcst

        if isinstance(suite, libcst.IndentedBlock):
            self.block(suite.body, scope, weak=weak, top=top)
        else:
            for small in suite.body:
                self._small(small, scope, weak=weak)

    def _small(self, node: Any, scope: _Scope, *, weak: bool) -> None:  # noqa: ANN401
        import libcst

        line = self._parsed.line(node)
        if isinstance(node, (libcst.Import, libcst.ImportFrom)):
            self._import(node, scope, line, weak=weak)
        elif isinstance(node, libcst.Del) and not weak:
            for name in self._parsed.code(node.target).strip("() ").split(","):
                scope.names.pop(name.strip(), None)
        elif isinstance(node, libcst.Expr) and isinstance(node.value, libcst.Call):
            scope.calls.append(Value(self._parsed.code(node.value), line))
        else:
            for name, text in _assigned(node, self._parsed):
                bind(scope.names, name, Value(text, line, is_sure=scope.is_sure), weak=weak)

    def _import(self, node: Any, scope: _Scope, line: int, *, weak: bool) -> None:  # noqa: ANN401
        import libcst

        if isinstance(node, libcst.Import):
            for alias in node.names:
                module = alias.evaluated_name
                name = alias.evaluated_alias or module.partition(".")[0]
                bind(scope.names, name, Import(module if alias.asname else name, "", line), weak=weak)
            return
        base = "." * len(node.relative) + (self._parsed.code(node.module) if node.module else "")
        if isinstance(node.names, libcst.ImportStar):
            scope.stars.append(base)
            return
        for alias in node.names:
            name = alias.evaluated_name
            bind(scope.names, alias.evaluated_alias or name, Import(base, name, line), weak=weak)

    def _decorators(self, node: Any) -> tuple[Decorator, ...]:  # noqa: ANN401
        return tuple(Decorator(self._parsed.code(d.decorator), self._parsed.line(d)) for d in node.decorators)

    def _class(self, node: libcst.ClassDef) -> Class:
        scope = _Scope({}, [], [])
        self._suite(node.body, scope, weak=False, top=False)
        masked = lexer.mask(self._parsed.code(node.body))
        writes = written(masked, 0, len(masked))
        keywords = tuple((k.keyword.value, self._parsed.code(k.value)) for k in node.keywords if k.keyword)
        bases = tuple(base.star + self._parsed.code(base.value) for base in node.bases)
        line = self._head(node)
        return Class(node.name.value, line, self._decorators(node), bases, keywords, scope.names, writes)

    def _function(self, node: libcst.FunctionDef, *, top: bool) -> Function:
        name, line, decorators = node.name.value, self._head(node), self._decorators(node)
        bare = Function(name, line, decorators, (), "", 0, empty=_is_empty(node.body))
        text, body_line = self._body(node)
        if bare.empty or not (top or self._mentions.keeps(name, lexer.mask(text))):
            return bare
        return bare._replace(params=tuple(_parameters(node.params)), body=text, body_line=body_line)

    def _head(self, node: Any) -> int:  # noqa: ANN401
        """Return the line of ``def`` or ``class``: libcst's position of the node is that of its first decorator."""
        return self._parsed.line(node.name)

    def _body(self, node: libcst.FunctionDef) -> tuple[str, int]:
        import libcst

        first, last = node.body.body[0], node.body.body[-1]
        start, end = self._parsed.positions[first].start, self._parsed.positions[last].end
        begin = self._parsed.offset(start)
        if isinstance(node.body, libcst.IndentedBlock):
            begin = self._parsed.lines[start.line - 1]
        return self._parsed.text[begin : self._parsed.offset(end)], int(start.line)


def _branches(node: Any, parsed: Parsed, *, weak: bool) -> Iterator[tuple[Any, bool]]:  # noqa: ANN401
    """Yield the suites of a compound statement, each with whether what it binds yields to earlier bindings."""
    import libcst

    never = False
    if isinstance(node, libcst.If):
        never = parsed.code(node.test).strip("()") in _NEVER
    if isinstance(node, libcst.Match):
        yield from ((case.body, True) for case in node.cases)
        return
    if not hasattr(node, "body"):
        return
    if not never:
        yield node.body, weak
    for handler in getattr(node, "handlers", ()):
        yield handler.body, True
    orelse = getattr(node, "orelse", None)
    if isinstance(orelse, libcst.If):  # elif
        for suite, _ in _branches(orelse, parsed, weak=True):
            yield suite, weak or not never
    elif orelse is not None:
        yield orelse.body, weak or not never
    final = getattr(node, "finalbody", None)
    if final is not None:
        yield final.body, weak


def _assigned(node: Any, parsed: Parsed) -> Iterator[tuple[str, str]]:  # noqa: ANN401
    """Yield the names that an assignment binds and the text of each value; other targets bind no name."""
    import libcst

    if isinstance(node, libcst.AugAssign) and isinstance(node.target, libcst.Name):
        yield node.target.value, ""
    if isinstance(node, libcst.AnnAssign) and isinstance(node.target, libcst.Name) and node.value is not None:
        yield node.target.value, parsed.code(node.value)
    if not isinstance(node, libcst.Assign):
        return
    for target in (target.target for target in node.targets):
        if isinstance(target, libcst.Name):
            yield target.value, parsed.code(node.value)
        elif isinstance(target, (libcst.Tuple, libcst.List)):
            names = [element.value for element in target.elements]
            has_star = any(isinstance(element, libcst.StarredElement) for element in target.elements)
            same = isinstance(node.value, libcst.Tuple) and len(node.value.elements) == len(names) and not has_star
            for index, name in enumerate(names):
                if isinstance(name, libcst.Name):
                    yield name.value, parsed.code(node.value.elements[index].value) if same else ""


def _is_empty(body: Any) -> bool:  # noqa: ANN401
    from libcst import matchers as m

    nothing = m.SimpleString() | m.FormattedString() | m.ConcatenatedString() | m.Ellipsis() | m.Name("None")
    small = m.Pass() | m.Expr(nothing) | m.Return(None) | m.Return(nothing)
    return all(
        m.matches(statement, small) or m.matches(statement, m.SimpleStatementLine([m.AtLeastN(small, n=1)]))
        for statement in body.body
    )


def _parameters(params: libcst.Parameters) -> Iterator[str]:
    import libcst

    star = [params.star_arg] if isinstance(params.star_arg, libcst.Param) else []
    kwarg = [params.star_kwarg] if params.star_kwarg else []
    for param in (*params.posonly_params, *params.params, *star, *params.kwonly_params, *kwarg):
        yield param.name.value
