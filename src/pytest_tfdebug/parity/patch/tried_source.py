"""A port with an edited source: compiled, put in the place of the code that runs, and taken out again."""

from __future__ import annotations

import ast
import signal
import threading
import time
import types
import warnings
from collections import Counter, defaultdict
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from inspect import CO_OPTIMIZED, getattr_static, unwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch

from pytest_tfdebug.errors import unheard
from pytest_tfdebug.frames import is_installed
from pytest_tfdebug.parity.closeness import AGREE
from pytest_tfdebug.parity.patch.source_edits import Edit, edited, statements_of
from pytest_tfdebug.parity.proof.second_call import other_calls
from pytest_tfdebug.tracing.values.operator_mode import OperatorMode
from pytest_tfdebug.tracing.values.tape import NotTriedError
from pytest_tfdebug.values import Fingerprint, distance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_tfdebug.tracing.values.conversions import Remaker
    from pytest_tfdebug.tracing.values.rerun import Rerun

#: Seconds that a run with an edit may take, and how many times those of the reference more.
_LONGEST, _TIMES = 1.0, 10.0
#: Which outputs of a port are held to which of the reference's, by leaf path, and how many are to agree.
Leaves = tuple[tuple[list[str], list[str], int], ...]
#: Where a function stands in a file: its name and those of what it stands in, each with which of that name it is.
_Place = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class HeldPort:
    """A call of a port, and what its outputs are to be."""

    port: Rerun
    wanted: dict[str, torch.Tensor]  # outputs of the reference, by leaf path
    leaves: Leaves
    longest: float  # seconds after which a run is given up

    @classmethod
    def of(cls, port: Rerun, reference: Rerun, leaves: Leaves) -> list[HeldPort]:
        """Return both forwards on their inputs, and on others, where these can be made."""
        own, theirs = port.in_float32(), reference.in_float32()
        calls = [(own, theirs), *other_calls(own, theirs)]
        found, begun = [], time.monotonic()
        for mine, expected in calls:
            wanted = expected.outputs()
            found.append(cls(mine, wanted, leaves, _LONGEST + _TIMES * (time.monotonic() - begun)))
        return found

    def agrees(
        self, file: TriedFile, edits: Sequence[Edit], remaker: Remaker | None = None, most: int | None = None
    ) -> bool:
        """Tell whether every output agrees after some edits of a file of the port, in a block of :func:`tried`.

        Args:
            file: The file.
            edits: What is written otherwise in it.
            remaker: What makes the port again with that; None where it need not be.
            most: How many elements a tensor may have; None for any.
        """
        with nullcontext() if most is None else _OfAtMost(most):
            outputs = _outputs_with(self, file, edits, remaker)
        return outputs is not None and bool(self.leaves) and all(self._is_given(outputs, each) for each in self.leaves)

    def _is_given(self, outputs: dict[str, torch.Tensor], leaf: tuple[Sequence[str], Sequence[str], int]) -> bool:
        own, other, count = leaf
        if not ({*own} <= outputs.keys() and {*other} <= self.wanted.keys()):
            return False
        apart = sorted(min(_apart(outputs[each], self.wanted[there]) for there in other) for each in own)
        return apart[count - 1] <= AGREE


def _apart(one: torch.Tensor, other: torch.Tensor) -> float:
    if one.shape == other.shape:
        norm = float(other.double().norm()) or 1.0
        return float((one.double() - other.double()).norm()) / norm
    return distance(Fingerprint.of(one), Fingerprint.of(other))


@contextmanager
def tried(calls: Sequence[HeldPort]) -> Iterator[None]:
    """Let edits be tried in a block: the port stays as it is, and what edits print or warn of is not for the user."""
    with unheard(), calls[0].port.kept():
        yield


class _OfAtMost(OperatorMode):
    """Raises where an operator gives more elements than some: an edited size may be any."""

    def __init__(self, elements: int) -> None:
        super().__init__()
        self._elements = elements

    def on(self, func: Any, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
        """Run an operator."""
        result = func(*args, **kwargs)
        if isinstance(result, torch.Tensor) and result.numel() > self._elements:
            raise NotTriedError("the tensor is larger than any of the port")
        return result


def _outputs_with(
    call: HeldPort, file: TriedFile, edits: Sequence[Edit], remaker: Remaker | None
) -> dict[str, torch.Tensor] | None:
    """Return the outputs of a port, by leaf path, after some edits of its code; None where it raises or takes long."""
    try:
        with file.with_edits(edits), _given_up_after(call.longest):
            made = call.port.model if remaker is None else remaker.make()
            return None if made is None else call.port.of(made).outputs_now()
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - an edit that nobody made may raise whatever it likes, and skip a test
        return None


@contextmanager
def _given_up_after(seconds: float) -> Iterator[None]:
    """Raise in a block that takes longer, where a timer is at hand: on the main thread, if nobody else uses it.

    Raises:
        NotTriedError: If it does.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or not hasattr(signal, "setitimer") or signal.getitimer(signal.ITIMER_REAL)[0]:
        yield
        return

    def over(*_: object) -> None:
        raise NotTriedError("it takes too long")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class TriedFile:
    """A file of a port's code, of which parts run with another text.

    Args:
        path: The file.
        models: Models whose code it is: functions of their classes, and of their modules, are loaded from it.
    """

    def __init__(self, path: str, *models: torch.nn.Module) -> None:
        self.path, self.text = path, text_of(path)
        self._functions = {
            (each.__code__.co_name, each.__code__.co_firstlineno): each for each in _functions(models, path)
        }
        self._blocks = [*_blocks(self.text)]
        self._plain = cache(lambda block: dict(_codes(self._code(block, self.text[block.start : block.end]))))

    @contextmanager
    def with_edits(self, edits: Sequence[Edit]) -> Iterator[bool]:
        """Run with edits, as long as this lasts; what is yielded tells whether a loaded function has one.

        Raises:
            SyntaxError: If what comes out is no Python.
        """
        changed = dict(self._changed(edits))
        kept = {function: function.__code__ for function in changed}
        try:
            for function, code in changed.items():
                function.__code__ = code
            yield bool(changed)
        finally:
            for function, code in kept.items():
                function.__code__ = code

    def _changed(self, edits: Sequence[Edit]) -> Iterator[tuple[types.FunctionType, types.CodeType]]:
        """Yield the functions that edits change, each with its code after these: blocks are compiled one by one."""
        inside = defaultdict[_Block, list[Edit]](list)
        for each in edits:
            block = next((block for block in self._blocks if block.start <= each.start < block.end), None)
            if block is not None:
                inside[block].append(Edit(each.start - block.start, each.end - block.start, each.text))
        for block, changes in inside.items():
            new = dict(_codes(self._code(block, edited(self.text[block.start : block.end], changes))))
            for place, old in self._plain(block).items():
                function = self._functions.get((old.co_name, old.co_firstlineno))
                code = new.get(place, old)
                if function is not None and code != old and code.co_freevars == function.__code__.co_freevars:
                    yield function, code

    def _code(self, block: _Block, text: str) -> types.CodeType:
        lines = self.text.count("\n", 0, block.start)
        return code_of("\n" * (lines - bool(block.around)) + block.around + text, self.path)


class _Block(NamedTuple):
    """A part of a file that can be compiled alone."""

    start: int  # where it begins, in characters of the file
    end: int  # where it ends
    around: str = ""  # the line before it, of the class that it stands in


def _blocks(text: str) -> Iterator[_Block]:
    """Yield the methods of a file's classes, then its outermost statements: a class as a whole takes long."""
    statements = statements_of(text)
    classes = [each.node for each in statements if each.is_outermost and isinstance(each.node, ast.ClassDef)]
    methods = {id(each): owner.name for owner in classes for each in owner.body if isinstance(each, ast.FunctionDef)}
    for each in statements:
        if id(each.node) in methods:
            start, end = each.span(each.node)
            yield _Block(text.rfind("\n", 0, start) + 1, end, f"class {methods[id(each.node)]}:\n")
    yield from (_Block(*each.span(each.node)) for each in statements if each.is_outermost)


def code_of(text: str, file: str) -> types.CodeType:
    """Compile the text of a file; what Python would warn of is not the user's, who wrote another text.

    Raises:
        SyntaxError: If it is no Python.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compile(text, file, "exec")


def _codes(code: types.CodeType, around: _Place = ()) -> Iterator[tuple[_Place, types.CodeType]]:
    """Yield the code of every function in some code, with where it stands."""
    count = Counter[str]()
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            place = (*around, (each.co_name, count[each.co_name]))
            count[each.co_name] += 1
            if each.co_flags & CO_OPTIMIZED:
                yield place, each
            yield from _codes(each, place)


def text_of(file: str) -> str:
    """Return the text of a file; empty where it cannot be read."""
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _functions(models: Sequence[torch.nn.Module], file: str) -> set[types.FunctionType]:
    """Return the functions of a file that models may run: of their classes, and whatever these can name."""
    found: set[types.FunctionType] = set()
    seen: set[int] = set()
    todo: list[object] = [kind for model in models for module in model.modules() for kind in type(module).__mro__]
    while todo:
        held = todo.pop()
        if id(held) in seen:
            continue
        seen.add(id(held))
        function = _plain(held)
        if isinstance(held, type):
            todo += [each for each in vars(held).values() if isinstance(each, type) or _plain(each) is not None]
        elif function is not None and (
            function.__code__.co_filename == file or not is_installed(function.__code__.co_filename)
        ):
            if function.__code__.co_filename == file:
                found.add(function)
            named = function.__globals__
            if id(named) not in seen:
                seen.add(id(named))
                todo += [each for each in [*named.values()] if isinstance(each, type) or _plain(each) is not None]
    return found


def _plain(held: object) -> types.FunctionType | None:
    """Return the function of a method, a property or a decorated function; None of anything else."""
    inner = held.fget if isinstance(held, property) else held
    inner = inner.__func__ if isinstance(inner, (staticmethod, classmethod, types.MethodType)) else inner
    # asked as it is: an object that imports something once it is looked at may raise
    is_decorated = callable(inner) and getattr_static(inner, "__wrapped__", None) is not None
    inner = unwrap(cast("Callable[..., object]", inner)) if is_decorated else inner
    return inner if isinstance(inner, types.FunctionType) else None
