"""Change a function of a loaded module in place: its code object is swapped, nothing is imported again."""

from __future__ import annotations

import inspect
import sys
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.parity.patch.tried_source import code_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType, ModuleType

    from pytest_tfdebug.certify.edits import LineEdit


class LiveFile:
    """A file of code whose functions are loaded, and can be changed.

    Args:
        module: The module that was loaded from it.
    """

    def __init__(self, module: ModuleType) -> None:
        self.path = str(module.__file__)
        self.text = Path(self.path).read_text(encoding="utf-8")
        self._functions = dict(_functions_of(module))
        self._plain = dict(_codes(code_of(self.text, self.path)))

    @contextmanager
    def edited(self, edit: LineEdit) -> Iterator[bool]:
        """Hold a change in a block; what is yielded tells whether a loaded function has it.

        Raises:
            SyntaxError: If the changed text is no Python.
        """
        lines = self.text.splitlines()
        lines[edit.line - 1] = edit.text
        codes = dict(_codes(code_of("\n".join(lines) + "\n", self.path)))
        changed = {
            name: function
            for name, function in self._functions.items()
            if name in codes and codes[name] != self._plain.get(name) and _fits(function, codes[name])
        }
        kept = {name: function.__code__ for name, function in changed.items()}
        try:
            for name, function in changed.items():
                function.__code__ = codes[name]
            yield bool(changed)
        finally:
            for name, function in changed.items():
                function.__code__ = kept[name]


def own_files(models: Iterable[torch.nn.Module]) -> list[LiveFile]:
    """Return the files that the classes of some models are written in: the port's own, not those of libraries.

    Raises:
        TFDebugError: If all of it is of torch.
    """
    names = {type(module).__module__ for model in models for module in model.modules()}
    names = {name for name in names if name.partition(".")[0] != "torch"}
    own = {name for name in names if name.partition(".")[0] != "transformers"} or names
    modules = [sys.modules[name] for name in sorted(own) if getattr(sys.modules.get(name), "__file__", None)]
    if not modules:
        raise TFDebugError("--tf-certify changes the code of a port, and this test's model has no file of its own.")
    return [LiveFile(module) for module in modules]


@contextmanager
def lines_run(paths: Iterable[str]) -> Iterator[dict[str, set[int]]]:
    """Note in a block which lines of some files run while a module's method is under way, by path."""
    seen: dict[str, set[int]] = {path: set() for path in paths}

    def traced(frame: FrameType, event: str, _: object) -> Any:  # noqa: ANN401 - as sys.settrace takes
        lines = seen.get(frame.f_code.co_filename)
        if lines is None:
            return None
        if event == "line" and _is_in_module(frame):
            lines.add(frame.f_lineno)
        return traced

    before = sys.gettrace()
    sys.settrace(traced)
    try:
        yield seen
    finally:
        sys.settrace(before)


def _is_in_module(frame: FrameType | None) -> bool:
    while frame is not None and not isinstance(frame.f_locals.get("self"), torch.nn.Module):
        frame = frame.f_back
    return frame is not None


def _fits(function: FunctionType, code: CodeType) -> bool:
    return function.__code__.co_freevars == code.co_freevars


def _codes(code: CodeType, path: str = "") -> Iterator[tuple[str, CodeType]]:
    """Yield the functions of a module and of its classes, by qualified name."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & inspect.CO_OPTIMIZED:
                yield f"{path}{constant.co_name}", constant
            else:
                yield from _codes(constant, f"{path}{constant.co_name}.")


def _functions_of(module: ModuleType) -> Iterator[tuple[str, FunctionType]]:
    """Yield the loaded functions of a module and of its classes, without their decorators, by qualified name."""
    classes = [each for each in vars(module).values() if inspect.isclass(each) and each.__module__ == module.__name__]
    for found in (*vars(module).values(), *(each for one in classes for each in vars(one).values())):
        bare = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
        function = inspect.unwrap(bare) if callable(bare) else None
        if isinstance(function, FunctionType) and function.__code__.co_filename == module.__file__:
            yield function.__qualname__, function
