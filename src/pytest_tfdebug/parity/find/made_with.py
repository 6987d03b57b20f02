"""Modules that are made with another argument than the reference's, and so hold other modules.

Before: ``Convolution(dims, 4, 8)`` in the constructor of a block adds a norm that the reference's has not. After:
``Convolution(dims, 4, 8, conv_only=True)``, and every output agrees. With which arguments modules are made is noted
while a test with ``tf_golden`` runs.
"""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_tfdebug.constructed import arguments_of, lines_of
from pytest_tfdebug.parity.text.chosen_at import argument_chosen_at, argument_within
from pytest_tfdebug.parity.text.handed_on import parameters_of
from pytest_tfdebug.parity.text.text_differences import source_file
from pytest_tfdebug.records import SourceRange
from pytest_tfdebug.tracing.record.modules import modules_by_path
from pytest_tfdebug.tracing.record.sites import forward_source
from pytest_tfdebug.tracing.values.constructors import MOST_PARAMETERS
from pytest_tfdebug.tracing.values.slicing import statement_lines, text_of
from pytest_tfdebug.tracing.values.tables import made_with

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import torch

#: Arguments by name, each as text: the port's and the reference's.
_Texts = dict[str, tuple[str, str]]
#: Arguments that are told; of others a constructor that hands them on is to blame.
_TOLD = 3


class MadeWith(NamedTuple):
    """Modules of a port that one line makes with another argument than the reference's."""

    partners: dict[str, torch.nn.Module]  # of the reference, by the paths of the port's
    told: str
    other: str  # with what the reference's is made
    lines: SourceRange | None  # where the argument is chosen, or else where the modules are made
    reference: SourceRange | None  # the reference's lines, where the former are known to choose it; None where not
    around: str  # path of the module whose constructor is to blame, or of one of its parts

    @contextmanager
    def within(self, model: torch.nn.Module) -> Iterator[None]:
        """Run a block with modules that are made as the reference's are, with the port's own weights.

        Raises:
            LookupError: Such a module cannot be made, has a weight that the port has not, or is large.
        """
        modules = modules_by_path(model)
        made = [
            (modules[path], made_with(modules[path], other, MOST_PARAMETERS // len(self.partners)))
            for path, other in self.partners.items()
        ]
        before = [(module, dict(vars(module))) for module, _ in made]
        for module, new in made:
            _hold(module, vars(new))
        try:
            yield
        finally:
            for module, held in before:
                _hold(module, held)


def _hold(module: torch.nn.Module, held: Mapping[str, Any]) -> None:
    vars(module).clear()
    vars(module).update(held)


def made_otherwise(
    model: torch.nn.Module, reference: torch.nn.Module, own_paths: Mapping[str, str]
) -> Iterator[MadeWith]:
    """Yield the modules of a port that hold others than their partners, for another argument of their constructors.

    Of modules in one another the outermost counts: what it is given goes through to the others.

    Args:
        model: The port.
        reference: The reference.
        own_paths: The port's paths of the reference's modules, where they differ.
    """
    if _parts(model) == _parts(reference):
        return
    own, there = modules_by_path(model), modules_by_path(reference)
    alike: dict[object, list[str]] = {}  # by the line that makes them, and what they are made with
    found: dict[str, tuple[torch.nn.Module, _Texts]] = {}
    for path, other in there.items():
        mine = own_paths.get(path, path)
        if mine not in own or any(not each or f"{mine}.".startswith(f"{each}.") for each in found):
            continue
        differing = _differing(own[mine], other)
        if differing and _parts(own[mine]) != _parts(other):
            found[mine] = other, differing
            alike.setdefault((lines_of(own[mine])[:1], tuple(differing.items())), []).append(mine)
    for paths in alike.values():
        yield _told({path: found[path][0] for path in paths}, own[paths[0]], found[paths[0]][1])


def _parts(module: torch.nn.Module) -> set[str]:
    return {name for name, _ in module.named_modules()}


def _differing(own: torch.nn.Module, other: torch.nn.Module) -> _Texts:
    """Return the arguments with which two modules of one class were made, where these can be told apart and differ."""
    if type(own).__qualname__ != type(other).__qualname__:
        return {}
    mine, theirs = _named_arguments(own), _named_arguments(other)
    both = {name: (_text(each), _text(theirs[name])) for name, each in mine.items() if name in theirs}
    return {name: texts for name, texts in both.items() if all(texts) and texts[0] != texts[1]}


def _named_arguments(module: torch.nn.Module) -> dict[str, object]:
    given = arguments_of(module) if lines_of(module) else None
    if given is None:
        return {}
    try:
        bound = inspect.signature(type(module)).bind(*given[0], **given[1])
    except (TypeError, ValueError):  # a constructor of another class of it has taken them
        return {}
    bound.apply_defaults()
    return bound.arguments


def _text(value: object) -> str:
    """Return an argument as text; empty for what has none of its own, an object say."""
    if isinstance(value, type) or inspect.isroutine(value):
        return value.__qualname__
    if isinstance(value, (tuple, list)):
        return repr(value) if all(map(_text, value)) else ""
    return repr(value) if value is None or isinstance(value, (bool, int, float, str)) else ""


def _told(partners: dict[str, torch.nn.Module], module: torch.nn.Module, differing: _Texts) -> MadeWith:
    path, like = next(iter(partners.items()))
    some = list(differing.items())[:_TOLD]
    mine = ", ".join(f"{name}={own}" for name, (own, _) in some)
    theirs = ", ".join(f"{name}={other}" for name, (_, other) in some)
    names = [*differing]
    if _are_defaults(module, like, differing):
        told = f"takes {mine} where none is given, and the reference's takes {theirs}"
        own, other = (_default_at(each, names[0]) for each in (module, like))
        return MadeWith(partners, told, theirs, own, other, around=f"{path}." if path else "")
    told = f"makes {repr(path) if path else 'the model'} with {mine}, and the reference's is made with {theirs}"
    own, other = _given_otherwise(module, like, names[0]) or (_handed_on_at(module, names[0]), None)
    return MadeWith(partners, told, theirs, own, other, around=path)


def _are_defaults(own: torch.nn.Module, other: torch.nn.Module, differing: _Texts) -> bool:
    """Tell whether one argument differs, and neither side was given it: the defaults of both do."""
    defaults = [inspect.signature(type(module)).parameters for module in (own, other)]
    texts = {name: tuple(_text(each[name].default) for each in defaults) for name in differing}
    return len(texts) == 1 and texts == differing


def _default_at(module: torch.nn.Module, name: str) -> SourceRange | None:
    """Return the line of a parameter of the constructor of a module."""
    lines = forward_source(module)
    file = None if lines is None else source_file(lines.file)
    if lines is None or file is None:
        return None
    function = file.function(f"{file.around(lines).rpartition('.')[0]}.__init__")
    taken = [] if function is None else [each for each in parameters_of(function) if each.arg == name]
    return SourceRange(file.path, taken[0].lineno, taken[0].end_lineno or taken[0].lineno) if taken else None


def _handed_on_at(module: torch.nn.Module, name: str) -> SourceRange | None:
    """Return the lines that choose what the call that makes a module hands on, or else the call."""
    here = _made_at(module)[:1]
    return (argument_chosen_at(here[0], type(module).__name__, name) or here[0]) if here else None


def where_made_otherwise(
    own: torch.nn.Module, other: torch.nn.Module, name: str
) -> tuple[SourceRange, SourceRange] | None:
    """Return the lines of both sides that give two modules an argument; None where it is the same, or so is the text.

    Args:
        own: A module of the port.
        other: The reference's.
        name: The argument.
    """
    return _given_otherwise(own, other, name) if name in _differing(own, other) else None


def _given_otherwise(own: torch.nn.Module, other: torch.nn.Module, name: str) -> tuple[SourceRange, SourceRange] | None:
    for mine, theirs in zip(_made_at(own), _made_at(other), strict=False):
        if _text_at(mine) != _text_at(theirs):
            return mine, theirs
        here, there = (argument_within(lines, type(own).__name__, name) for lines in (mine, theirs))
        if here is not None and there is not None and _text_at(here) != _text_at(there):  # in a long statement
            return here, there
    return None


def _made_at(module: torch.nn.Module) -> list[SourceRange]:
    """Return the statements in which a module is made, the innermost first."""
    return [SourceRange(file, *statement_lines(file, line)) for file, line in lines_of(module)]


def _text_at(lines: SourceRange) -> str:
    return text_of(lines.file, lines.first, lines.last)
