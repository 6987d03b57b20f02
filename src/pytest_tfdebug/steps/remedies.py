"""What a run under watch does otherwise than its code says, to prove which line spoils a gradient."""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

from pytest_tfdebug.values import Line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


#: ``stay``: what leaves the graph stays in it; ``record``: gradients stay on; ``derive``: a Function is derived by
#: autograd; ``unhook``: no hook is put; ``skip``: nothing is written in place; ``factor``: a gradient is multiplied.
RemedyKind = Literal["stay", "record", "derive", "unhook", "skip", "factor"]


#: Where torch keeps hooks on gradients.
_HOOK_TABLES = ("_backward_hooks", "_backward_pre_hooks", "_post_accumulate_grad_hooks")


@dataclass(frozen=True)
class Remedy:
    """One change of a run, wherever it comes by a line."""

    kind: RemedyKind
    line: Line  # where it is made
    name: str = ""  # of the function that is called there; any where it is empty
    factor: float = 1.0  # what the gradient of its result is multiplied with


@dataclass(frozen=True)
class Remedies:
    """The change that a run makes, if any."""

    remedy: Remedy | None = None

    def instead(
        self, name: str, lines: tuple[Line, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[bool, Any]:
        """Return whether a function of torch is not called, and what takes the place of its result."""
        del kwargs
        if (
            not self._is("stay", name, lines)
            and not self._is("unhook", name, lines)
            and not self._is("skip", name, lines)
        ):
            return False, None
        if self._is("unhook", name, lines):
            return True, _NoHook()
        return (True, args[0]) if args and isinstance(args[0], torch.Tensor) else (False, None)

    @contextmanager
    def without_hooks(self, model: torch.nn.Module) -> Iterator[None]:
        """Take the hooks of one line off parameters and modules in a block, where that is the change."""
        line = self.remedy.line if self.remedy is not None and self.remedy.kind == "unhook" else None
        held = [tables for _, tables in _hook_tables(model) if _line_of(tables) == line]
        kept = [(table, dict(table)) for tables in held for table in tables]
        for table, _ in kept:
            table.clear()
        try:
            yield
        finally:
            for table, before in kept:
                table.update(before)

    def keeps_gradients(self, lines: tuple[Line, ...]) -> bool:
        """Tell whether gradients stay on where they would be switched off."""
        return self._is("record", "", lines)

    def plain_function(self, function: Any, lines: tuple[Line, ...]) -> Callable[..., Any] | None:  # noqa: ANN401
        """Return what calls a ``torch.autograd.Function`` so that autograd derives it; None to call it as it is."""
        if not self._is("derive", function.__name__, lines):
            return None
        if function.setup_context is not torch.autograd.Function.setup_context:
            return function.forward  # type: ignore[no-any-return]
        return lambda *args, **kwargs: function.forward(_NoContext(args), *args, **kwargs)

    def pass_through(self, tensor: torch.Tensor, name: str, lines: tuple[Line, ...]) -> None:
        """Let a gradient that passes a new value be multiplied, where that is the change."""
        if self.remedy is not None and tensor.requires_grad and self._is("factor", name, lines):
            factor = self.remedy.factor
            tensor.register_hook(lambda gradient: gradient * factor)  # type: ignore[no-untyped-call]

    def _is(self, kind: RemedyKind, name: str, lines: tuple[Line, ...]) -> bool:
        remedy = self.remedy
        if remedy is None or remedy.kind != kind or (remedy.name and name and remedy.name != name):
            return False
        return any(line.file == remedy.line.file and line.line == remedy.line.line for line in lines[:1])


def hook_lines(model: torch.nn.Module) -> dict[str, Line]:
    """Return the parameters and modules that have a hook on their gradient, with the line of the first."""
    lines = {name: _line_of(tables) for name, tables in _hook_tables(model)}
    return {name: line for name, line in lines.items() if line is not None}


def _line_of(tables: list[dict[int, Any]]) -> Line | None:
    hook = next(iter(tables[0].values()))
    hook = hook[0] if isinstance(hook, tuple) else hook
    code = getattr(inspect.unwrap(getattr(hook, "func", hook)), "__code__", None)
    return None if code is None else Line(code.co_filename, code.co_firstlineno, code.co_name)


def _hook_tables(model: torch.nn.Module) -> Iterator[tuple[str, list[dict[int, Any]]]]:
    """Yield the parameters and modules that have hooks on gradients, each with torch's own tables of them."""
    named: list[tuple[str, Any]] = [*model.named_parameters(), *model.named_modules()]
    for name, owner in named:
        held = [getattr(owner, table, None) for table in _HOOK_TABLES]
        tables = [table for table in held if table]
        if tables:
            yield name or type(model).__name__, tables


class _NoHook:
    """What stands for the handle of a hook that was not put."""

    def remove(self) -> None:
        """Do nothing."""


class _NoContext:
    """What stands for the context of a ``torch.autograd.Function`` that autograd derives."""

    def __init__(self, args: tuple[Any, ...]) -> None:
        self.needs_input_grad = tuple(isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args)

    def save_for_backward(self, *_tensors: torch.Tensor) -> None:
        """Keep nothing: autograd keeps what it needs."""

    mark_dirty = mark_non_differentiable = save_for_forward = save_for_backward

    def set_materialize_grads(self, value: bool) -> None:  # noqa: FBT001 - torch's signature
        """Do nothing."""
