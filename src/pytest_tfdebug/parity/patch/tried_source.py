"""A model with an edited source: compiled, put in the place of the code that runs, and taken out again."""

from __future__ import annotations

import sys
import types
import warnings
from contextlib import contextmanager
from inspect import CO_OPTIMIZED, unwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from pytest_tfdebug.tracing.values.rerun import Rerun


def outputs_with(forward: Rerun, file: str, text: str) -> dict[str, torch.Tensor] | None:
    """Return the outputs of a model, by leaf path, with another text of a file of its code; None where it raises."""
    try:
        code = code_of(text, file)
    except SyntaxError:
        return None
    with _in_place(forward.model, file, code), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nor is what it warns of when it runs
        try:
            return forward.outputs()
        except Exception:  # noqa: BLE001 - an edit that nobody made may raise whatever it likes
            return None


def code_of(text: str, file: str) -> types.CodeType:
    """Compile the text of a file; what Python would warn of is not the user's, who wrote another text.

    Raises:
        SyntaxError: If it is no Python.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compile(text, file, "exec")


@contextmanager
def _in_place(model: torch.nn.Module, file: str, code: types.CodeType) -> Iterator[None]:
    """Run a model's functions of a file with other code, as long as this lasts."""
    new = {(each.co_name, each.co_firstlineno): each for each in _codes(code)}
    before = {function: function.__code__ for function in _functions(model, file)}
    try:
        for function, old in before.items():
            other = new.get((old.co_name, old.co_firstlineno))
            if other is not None and other != old and other.co_freevars == old.co_freevars:
                function.__code__ = other
        yield
    finally:
        for function, old in before.items():
            function.__code__ = old


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield the code of every function in some code."""
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            if each.co_flags & CO_OPTIMIZED:
                yield each
            yield from _codes(each)


def _functions(model: torch.nn.Module, file: str) -> set[types.FunctionType]:
    """Return the functions of a file that a model may run: of its classes, and of their modules."""
    classes = {kind for module in model.modules() for kind in type(module).__mro__}
    homes = {each.__module__ for each in classes} | {
        name for name, home in list(sys.modules.items()) if getattr(home, "__file__", None) == file
    }
    held = [each for kind in classes for each in vars(kind).values()]
    for home in homes & sys.modules.keys():
        for each in list(vars(sys.modules[home]).values()):
            held.append(each)
            if isinstance(each, type) and each.__module__ == home:
                held += vars(each).values()
    return {
        function for function in map(_plain, held) if function is not None and function.__code__.co_filename == file
    }


def _plain(held: object) -> types.FunctionType | None:
    """Return the function of a method, a property or a decorated function; None of anything else."""
    inner = getattr(held, "__func__", getattr(held, "fget", held))
    inner = unwrap(inner) if callable(inner) else None
    return inner if isinstance(inner, types.FunctionType) else None
