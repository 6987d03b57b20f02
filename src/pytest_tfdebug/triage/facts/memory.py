"""What was allocated when memory ran out, and the batch of the call that asked for more."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.frames import is_users
from pytest_tfdebug.triage import text
from pytest_tfdebug.triage.failure import is_a
from pytest_tfdebug.triage.rule import Facts

if TYPE_CHECKING:
    from pytest_tfdebug.triage.failure import Failure, Link

_INPUTS = (
    "input_ids",
    "inputs_embeds",
    "pixel_values",
    "input_features",
    "input_values",
    "hidden_states",
    "input",
    "x",
)
_SIZE = r"([\d.]+ [KMGT]i?B)"
_PARTS = (
    ("asked for", rf"Tried to allocate {_SIZE}"),
    ("total", rf"total capacity of {_SIZE}|{_SIZE} total capacity"),
    ("free", rf"of which {_SIZE} is free|{_SIZE} free"),
    ("allocated by PyTorch", rf"{_SIZE} is allocated by PyTorch|{_SIZE} already allocated"),
    ("reserved but unallocated", rf"{_SIZE} is reserved by PyTorch but unallocated"),
)
_GIB = 2**30


def read_memory(failure: Failure, link: Link, _matched: re.Match[str]) -> Facts:
    """Give the sizes of the message in one line, and the shape of the batch with the line that passed it."""
    sizes = {}
    for label, pattern in _PARTS:
        found = re.search(pattern, link.message)
        if found is not None:
            sizes[label] = next(group for group in found.groups() if group)
    tried = re.search(r"you tried to allocate (\d+) bytes", link.message)
    if tried is not None:
        sizes["asked for"] = f"{int(tried.group(1)) / _GIB:.2f} GiB"
    names = {"asked": sizes.get("asked for", "")}
    lines = [f"memory: {', '.join(f'{label} {size}' for label, size in sizes.items())}"] if sizes else []
    batch = _batch(failure)
    if batch is not None:
        name, shape = batch
        lines.append(f"batch of the failing call: {name} {shape}")
        names |= {"batch": name, "shape": str(shape)}
        if shape[0] > 1:
            names["half"] = f"{name}[:{shape[0] // 2}]"
    return Facts(names, tuple(lines))


def _batch(failure: Failure) -> tuple[str, tuple[int, ...]] | None:
    """Return the name and shape of the input: the user's own variable if there is one, else the model's argument."""
    outermost_first = tuple(reversed(failure.frames))
    for frame in outermost_first:
        if not is_users(frame):
            for name in _INPUTS:
                value: Any = frame.f_locals.get(name)
                if is_a(value, "Tensor") and value.dim():
                    return _users_name(failure, value) or name, tuple(value.shape)
    for frame in outermost_first:
        for name, value in list(frame.f_locals.items()):
            if is_users(frame) and is_a(value, "Tensor") and value.dim():
                return text.value(name), tuple(value.shape)
    return None


def _users_name(failure: Failure, tensor: object) -> str | None:
    users = filter(is_users, failure.frames)
    return next((name for frame in users for name, value in list(frame.f_locals.items()) if value is tensor), None)
