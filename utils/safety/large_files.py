"""Files of 100 MB that are made to be slow: each is refused or read in little time, and less than 1 GB of memory."""

from __future__ import annotations

import json
import os
import resource
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import chain
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from pytest_tfdebug import GoldenError, TFDebugError, Trace, trace
from pytest_tfdebug.scan import baseline
from pytest_tfdebug.scan.answer import Cache
from pytest_tfdebug.scan.errors import ScanError
from pytest_tfdebug.tracing.file.codec import with_checksums

#: How many times as long as a plain read of 100 MB, with their checksum, reading a file may take; and kilobytes.
SLOWER, KILOBYTES = 100, 1_000_000
_BYTES = 100_000_000
#: JSON that makes much of few bytes, and skips as a report has them, by what is repeated.
_JSON = {"lists": "[]", "objects": '{"a":1}', "texts": '"Ā"', "numbers": "0.1"}
_SKIP = '{"model":"m","class":"C%d","state":"skipped","reason":"r%d","form":"","condition":"","file":"f","line":1}'
_REPORT = (
    '{"test_a":{"models_ran":[],"models_skipped":["m"],"models_partially_skipped":[],"classes_ran":{},'
    '"models_not_run":[],"models_incomplete":[],"tests":[%s]}}'
)


def play_large(folder: Path, count: int) -> list[str]:
    """Read so many files, and return what took too long or too much."""
    plain = folder / "plain"
    plain.write_bytes(bytes(_BYTES))
    found = [[f"{name}: {problem}" for problem in _measured(read, plain)] for name, read in _files(folder, _BYTES)]
    assert len(found) == count
    return [*chain.from_iterable(found)]


def _measured(read: Callable[[], object], plain: Path) -> list[str]:
    """Read a file in a process of its own, and a plain one after it."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        problem = ""
        try:
            read()
        except (GoldenError, TFDebugError, ScanError):
            pass
        except BaseException as error:  # noqa: BLE001 - any other error is what this looks for
            problem = f"{type(error).__name__}: {error}"[:200]
        seconds = time.process_time() - started
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        started = time.process_time()
        sha256(plain.read_bytes())
        slower = seconds / (time.process_time() - started)
        os.write(theirs, json.dumps([slower, grown, problem]).encode())
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    if not text:
        return ["the process died"]
    slower, grown, problem = json.loads(text)
    problems = [problem] if problem else []
    problems += [f"it took {slower:.0f} times as long as a plain read"] if slower > SLOWER else []
    return problems + ([f"it took {grown // 1000:,} MB"] if grown > KILOBYTES else [])


def _files(folder: Path, size: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """Write the files one after the other, and yield of each what it is and a function that reads it."""
    yield from _reports(folder / "report.json", size)
    yield from _caches(folder, size)
    yield from _goldens(folder / "golden.safetensors", size)


def _reports(path: Path, size: int) -> Iterator[tuple[str, Callable[[], object]]]:
    for name, unit in _JSON.items():
        path.write_text(_list_of(unit, size), encoding="utf-8")
        yield f"baseline, {name}", lambda: baseline.load(path)
    # as long as is read, and then as many skips as that holds
    for name, unit in {"of many classes": _SKIP, "of one class": _SKIP.replace("%d", "")}.items():
        count = min(size // (len(unit) + 9), 210_000)
        path.write_text(_REPORT % ",".join(unit.replace("%d", str(number)) for number in range(count)))
        yield f"baseline, skips {name}", lambda: baseline.changes(baseline.load(path), {})
    path.unlink()


def _caches(folder: Path, size: int) -> Iterator[tuple[str, Callable[[], object]]]:
    home = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    path = Cache(folder, "")._path  # noqa: SLF001 - where it is
    os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120 - as the cache names it
    for name, unit in _JSON.items():
        for length in (size, 16_900_000):  # the second is as long as is read
            text = _list_of(unit, length).encode()
            with open(path, "wb") as file:  # noqa: PTH123 - as the cache names it
                file.write(b"%08x %b" % (zlib.crc32(text), text))
            yield f"cache, {name}", lambda: Cache(folder, "").head("it")
    os.environ.pop("XDG_CACHE_HOME") if home is None else os.environ.update(XDG_CACHE_HOME=home)


def _goldens(path: Path, size: int) -> Iterator[tuple[str, Callable[[], object]]]:
    tensor = '"%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'
    for name, length in {"tensors": size, "tensors that are read": 7_900_000}.items():
        header = "{" + ",".join(tensor % number for number in range(min(length, size) // (len(tensor) + 7))) + "}"
        path.write_bytes(struct.pack("<Q", len(header)) + header.encode())
        yield f"golden, {name}", lambda: Trace.load(path)
    for name, unit in _JSON.items():
        _save_document(path, _list_of(unit, size).encode())
        yield f"golden, document of {name}", lambda: Trace.load(path)
    _save_document(path, b" " * size)
    yield "golden, document of blanks", lambda: Trace.load(path)


def _save_document(path: Path, text: bytes) -> None:
    """Write a golden with another document."""
    trace(torch.nn.Linear(2, 2), torch.ones(1, 2)).save(path)
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
    tensors["#document"] = torch.frombuffer(bytearray(zlib.compress(text, 1)), dtype=torch.uint8)
    save_file(tensors, path, metadata={"tfdebug": with_checksums({"format": 2, "extra": {}}, tensors)})


def _list_of(unit: str, size: int) -> str:
    return f"[{','.join([unit] * (size // (len(unit.encode()) + 1)))}]"
