"""What is known of one file: the names it binds, its classes, and the functions that could skip.

Facts hold source text, not syntax trees: :mod:`~pytest_tfdebug.scan.cut` and :mod:`~pytest_tfdebug.scan.exact` both
make them, from a lexical pass and from libcst, and must make the same ones. Expressions are parsed when an answer
needs them.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple, TypeAlias

from pytest_tfdebug.scan import lexer

#: What in a body could skip by itself: a call named after skipping, or a skip that is raised. Each pattern of the
#: two tables begins with literal text, which ``re`` finds ten times as fast as a class of characters.
SKIPS = (r"kip(?:[\w.]*\s*\(|Test\b|ped\b)",)
#: What skips where it is called, and does not make a decorator that would.
_RAISES = re.compile(r"kip(?:Test\b|\()")
#: Methods called on every other line, which skip nothing.
_HELPERS = r"self\.(?!assert|fail|subTest|_prepare_for_class)\w+\("
#: What a test may delegate its skip to: another test, or a helper that skips in its place.
DELEGATES = (r"super\(", r"\.test_\w+\(", r"self\s*[,)]", _HELPERS)
#: Methods that run before every test of a class and can skip in its place.
SETUPS = ("setUpClass", "setup_class", "setUp", "asyncSetUp", "setup_method")
#: Functions of which pytest calls the first that a module has, before its tests.
MODULE_SETUPS = ("setUpModule", "setup_module")
#: What a statement may be for a body to count as empty, on text whose strings are ``\x01``.
EMPTY = re.compile(r"(?:\s|;|(?:\b[rRuUbBfF]{1,2})?\x01|\bpass\b|\.\.\.|\breturn(?:[ \t]+None)?\b)*")
#: An attribute that a method sets on its instance or class, which the class body then does not decide.
_WRITE, _WRITE_ON_CLASS = (re.compile(rf"{owner}\.(\w+)(?:[ \t]*:[^=\n]*)?[ \t]*=(?!=)") for owner in ("self", "cls"))


def written(masked: str, start: int, end: int) -> frozenset[str]:
    """Return the attributes of the instance, or of the class, that a class's body sets."""
    names = _WRITE.findall(masked, start, end)
    if masked.find("cls.", start, end) >= 0:
        names += _WRITE_ON_CLASS.findall(masked, start, end)
    return frozenset(names)


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


class Function(NamedTuple):
    """A function; ``body`` is kept only where it could skip (see :class:`Mention`)."""

    name: str
    line: int
    decorators: tuple[Decorator, ...]
    params: tuple[str, ...]
    body: str
    body_line: int
    empty: bool


class Class(NamedTuple):
    """A class: its bases as written, what its body binds, and the attributes its methods set on ``self``.

    Most classes of a test file are never asked for a member; ``span`` is then where the statement stands in the text,
    and ``members`` and ``writes`` are empty. It is None once the body has been read.
    """

    name: str
    line: int
    decorators: tuple[Decorator, ...]
    bases: tuple[str, ...]
    keywords: tuple[tuple[str, str], ...]
    members: dict[str, Binding]
    writes: frozenset[str]
    span: tuple[int, int] | None = None


Binding: TypeAlias = "Function | Value | Import | Class"


class Module(NamedTuple):
    """A file: the names it binds at its top level, its star imports, and its top-level calls that could skip."""

    names: dict[str, Binding]
    stars: tuple[str, ...]
    calls: tuple[Value, ...]


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
    is_again = isinstance(binding, Value) and not isinstance(earlier, (Class, Import))
    if is_again and re.search(rf"\b{name}\b", binding.text):  # type: ignore[union-attr]
        binding = binding._replace(previous=earlier)  # type: ignore[call-arg, arg-type]
    del names[name]
    names[name] = binding


class Mention(NamedTuple):
    """Patterns that tell, on text with strings and comments blanked, whether a body could skip."""

    skips: tuple[re.Pattern[str], ...]
    delegates: tuple[re.Pattern[str], ...]

    @classmethod
    def of(cls, names: dict[str, Binding]) -> Mention:
        """Add the names under which a file knows a skip: ``from unittest import SkipTest as Later``, and functions."""
        found = {name for name, binding in names.items() if _is_alias(binding)}
        more = {name for name in found if isinstance(names[name], Function)}
        while more:  # the functions that call these
            calls = [f"{name}(" for name in more]
            bodies = [(name, each.body) for name, each in names.items() if isinstance(each, Function)]
            more = {name for name, body in bodies if name not in found and any(call in body for call in calls)}
            found |= more
        return _mention(tuple(sorted(name for name in found if "kip" not in name)))

    def skips_in(self, masked: str) -> bool:
        """Tell whether the text could skip by itself."""
        return _is_in(self.skips, masked)

    def keeps(self, name: str, masked: str) -> bool:
        """Tell whether the body of a method of this name is kept."""
        if self.skips_in(masked):
            return True
        return not name.startswith("__") and _is_in(self.delegates, masked)


#: What keeps all calls of a body.
ALL_CALLS = Mention((re.compile(r"\w\("),), ())


def _is_in(patterns: tuple[re.Pattern[str], ...], masked: str) -> bool:
    for pattern in patterns:  # noqa: SIM110 - twice as fast as any()
        if pattern.search(masked):
            return True
    return False


@cache
def _mention(aliases: tuple[str, ...]) -> Mention:
    skips = (*SKIPS, *(rf"{re.escape(alias)}\b" for alias in aliases))
    return Mention(tuple(map(re.compile, skips)), tuple(map(re.compile, DELEGATES)))


def _is_alias(binding: Binding) -> bool:
    if isinstance(binding, Function):
        return "kip" in binding.body and _RAISES.search(binding.body) is not None
    text = binding.name if isinstance(binding, Import) else binding.text if isinstance(binding, Value) else ""
    return "kip" in text


def squeeze(text: str) -> str:
    """Return the text of an expression on one line, without comments."""
    return " ".join((lexer.uncommented(text) if "#" in text else text).split())
