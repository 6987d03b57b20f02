"""What a model returns beside tensors: numbers and texts to compare, and objects that nobody can look into.

Both are read from the skeleton of its call, which every golden has.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from pytest_tfdebug.parity.pair.pairing import leaf_key
from pytest_tfdebug.records import TensorRecord
from pytest_tfdebug.redaction import MASK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.records import Call

TO_OPEN = (
    "Return tensors, or a tuple, dict or dataclass of them, or tell how to open it with "
    "torch.utils._pytree.register_pytree_node."
)
_QUOTES = ("'", '"', "b'", 'b"')
_BOOLS = {"True": True, "False": False}
#: Texts that say nothing of a value, or are left out.
_UNSAID = frozenset({"None", "...", repr(MASK)})
#: What holds no tensor, or is a cache, which is opened where it holds one: by its text.
_WITHOUT_TENSORS = re.compile(
    r"torch\.\w+$|device\(|<(class|function|built-in|bound|module|enum) |<?[\w.]*(Config|Cache)\b"
)


def plain_outputs(call: Call, dtype: str) -> tuple[TensorRecord, ...]:
    """Return the numbers, truth values, texts and lists of them that a call returned, as tensors.

    Args:
        call: The call, with its skeleton.
        dtype: By whose tolerance numbers that are no integers are judged. Their tensor is of float64.
    """
    found = []
    for path, held in _ends("", call.skeleton.get("outputs", "None")):
        if isinstance(held, np.ndarray):
            name = dtype if held.dtype.kind == "f" else str(held.dtype)
            found.append(TensorRecord(path, held.shape, name, torch.from_numpy(held)))
        elif held.startswith(_QUOTES) and held not in _UNSAID:
            codes = torch.tensor(list(held.encode()), dtype=torch.uint8)
            found.append(TensorRecord(path, tuple(codes.shape), "str", codes))
    return tuple(found)


def unopened(call: Call) -> dict[str, str]:
    """Return the texts of the objects that a call returned and that were not looked into, by their paths."""
    opened = [leaf_key(record.leaf) for record in call.outputs or ()]
    return {
        path: held
        for path, held in _ends("", call.skeleton.get("outputs", "None"))
        if isinstance(held, str)
        and not held.startswith(_QUOTES)
        and held not in _UNSAID
        and not _WITHOUT_TENSORS.match(held)
        and not any(key.startswith(path) for key in opened)
    }


def number_dtype(call: Call) -> str:
    """Return the dtype that a model computes in: that of what it returns, else of what it is given."""
    records = (*(call.outputs or ()), *call.inputs)
    return next((record.dtype for record in records if "float" in record.dtype), "float32")


def _ends(path: str, bare: Any) -> Iterator[tuple[str, np.ndarray | str]]:  # noqa: ANN401 - nested JSON
    """Yield what stands in a skeleton and is no tensor: an array of numbers, as large as there is one, or a text."""
    numbers = _numbers(bare)
    if numbers is not None:
        yield path, numbers
    elif isinstance(bare, str):
        yield path, bare
    elif isinstance(bare, list):
        for place, child in enumerate(bare):
            yield from _ends(f"{path}[{place}]", child)
    else:
        for name, child in bare.get("items", {}).items():
            yield from _ends(f"{path}[{name!r}]", child)


def _numbers(bare: Any) -> np.ndarray | None:  # noqa: ANN401
    try:
        numbers = np.array(_nested(bare))
    except ValueError:  # lists of several lengths
        return None
    return numbers if numbers.size and numbers.dtype.kind in "bif" else None


def _nested(bare: Any) -> Any:  # noqa: ANN401
    """Return nested lists with the numbers that their texts stand for, and None for other texts."""
    return list(map(_nested, bare)) if isinstance(bare, list) else _number(bare) if isinstance(bare, str) else bare


def _number(text: str) -> bool | int | float | None:
    if text in _BOOLS:
        return _BOOLS[text]
    for read in (int, float):
        with suppress(ValueError):
            return read(text)
    return None
