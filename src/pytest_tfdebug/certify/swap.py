"""Which files of a port are changed, which of their lines run, and a line of one with another text."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.parity.patch.source_edits import Edit
from pytest_tfdebug.parity.patch.tried_source import TriedFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from types import FrameType

    from pytest_tfdebug.certify.edits import LineEdit


@contextmanager
def edited(file: TriedFile, edit: LineEdit) -> Iterator[bool]:
    """Hold a change in a block; what is yielded tells whether a loaded function has it.

    Raises:
        SyntaxError: If the changed text is no Python.
    """
    rows = file.text.splitlines(keepends=True)
    start, row = sum(map(len, rows[: edit.line - 1])), rows[edit.line - 1].rstrip("\r\n")
    with file.with_edits([Edit(start, start + len(row), edit.text)]) as is_live:
        yield is_live


def own_files(models: Sequence[torch.nn.Module]) -> list[TriedFile]:
    """Return the files that the classes of some models are written in: the port's own, not those of libraries.

    Raises:
        TFDebugError: If all of it is of torch.
    """
    names = {type(module).__module__ for model in models for module in model.modules()}
    names = {name for name in names if name.partition(".")[0] != "torch"}
    own = {name for name in names if name.partition(".")[0] != "transformers"} or names
    files = [getattr(sys.modules.get(name), "__file__", None) for name in sorted(own)]
    found = [TriedFile(each, *models) for each in dict.fromkeys(files) if each]
    if not found:
        raise TFDebugError("--tf-certify changes the code of a port, and this test's model has no file of its own.")
    return found


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
