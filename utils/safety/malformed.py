"""Goldens that are no goldens: each is one clear line, in little time, and stays as it is."""

from __future__ import annotations

import json
import os
import random
import struct
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug import GoldenError, trace
from pytest_tfdebug.goldens.store.golden_file import load, save
from pytest_tfdebug.goldens.store.place import is_readable_golden

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: How many times as long as the whole golden a malformed one may take.
_SLOWER = 100


def play_malformed(folder: Path, count: int, seed: int = 0) -> list[str]:
    """Read so many malformed goldens, with seeded damage, and return what went wrong, a line each."""
    whole = folder / "whole.safetensors"
    save(whole, trace(_model(), torch.ones(2, 4)), _model(), "test_it.py::test_it")
    content, problems, plain = whole.read_bytes(), [], min(_seconds(whole) for _ in range(5))
    for number, make in zip(range(count), _damages(content, random.Random(seed)), strict=False):
        path = folder / f"{number}.safetensors"
        make(path)
        before = _bytes(path)
        problems += [f"{number}: {problem}" for problem in _read(path, _SLOWER * plain)]
        if _bytes(path) != before:
            problems.append(f"{number}: it was changed")
    return problems


def _model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))


def _seconds(path: Path) -> float:
    started = time.process_time()
    load(path)
    return time.process_time() - started


def _read(path: Path, seconds: float) -> Iterator[str]:
    """Yield what is wrong with how a golden is refused; one that is read all the same has to be in order."""
    started = time.process_time()
    try:
        if is_readable_golden(path):
            load(path)
    except GoldenError as error:
        lines = str(error).splitlines()
        if str(path) not in lines[0] or not all(line.isprintable() for line in lines):
            yield f"the message names no file, or steers the terminal: {error!r}"
    except Exception as error:  # noqa: BLE001 - any other error is what this looks for
        yield f"{type(error).__name__}: {error}"
    taken = time.process_time() - started
    if taken > seconds:
        yield f"it took {taken:.2f} s of {seconds:.2f}"


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _damages(content: bytes, numbers: random.Random) -> Iterator[Callable[[Path], object]]:
    """Yield functions that write a malformed golden: each of the strange ones, then damaged bytes for ever."""
    yield from (
        os.mkfifo,
        lambda path: path.mkdir(),
        lambda path: path.symlink_to("nowhere"),
        lambda path: path.symlink_to(path.name),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"\0" * 8),
        lambda path: path.write_bytes(b"\xff" * 64),
        lambda path: path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"),
        lambda path: path.write_bytes(_file({"tfdebug": "[" * 100_000})),
        lambda path: path.write_bytes(_file({"tfdebug": '{"format": 99}'})),
        lambda path: path.write_bytes(_file({"tfdebug": json.dumps({"format": 1, "calls": [{}] * 50_000})})),
        lambda path: path.write_bytes(_file({"tfdebug": json.dumps({"format": 1, "\x1b[2J": 1, "extra": []})})),
        lambda path: path.write_bytes(_file({})),
    )
    while True:
        damaged = bytearray(content)
        for _ in range(numbers.randrange(1, 4)):
            damaged[numbers.randrange(len(damaged))] = numbers.randrange(256)
        if numbers.randrange(3) == 0:
            del damaged[numbers.randrange(len(damaged)) :]
        yield partial(Path.write_bytes, data=bytes(damaged))


def _file(metadata: dict[str, str]) -> bytes:
    """Return a safetensors file that holds a tensor of no elements and such metadata."""
    tensor = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    header = json.dumps({"__metadata__": metadata, "it": tensor}).encode()
    return struct.pack("<Q", len(header)) + header
