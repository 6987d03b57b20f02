"""Files of 100 MB that are made to be slow: each is refused or read in little time, and less than 1 GB of memory."""

from __future__ import annotations

import os
import struct
import traceback
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from pytest_tfdebug import GoldenError, TFDebugError, Trace, trace
from pytest_tfdebug.scan import baseline
from pytest_tfdebug.scan.answer import Cache
from pytest_tfdebug.scan.errors import ScanError
from pytest_tfdebug.tracing.file.codec import with_checksums

#: How many times as long as a plain read of 100 MB, with their checksum, a file may take; kilobytes beside it.
SLOWER, KILOBYTES = 100, 900_000
_BYTES = 100_000_000
#: JSON that makes much of few bytes, and skips as a report has them, by what is repeated.
_JSON = {"lists": "[]", "objects": '{"a":1}', "texts": '"Ā"', "numbers": "0.1"}
_TENSOR = '"%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'
_SKIP = '{"model":"m","class":"C%d","state":"skipped","reason":"r%d","form":"","condition":"","file":"f","line":1}'
_REPORT = (
    '{"test_a":{"models_ran":[],"models_skipped":["m"],"models_partially_skipped":[],"classes_ran":{},'
    '"models_not_run":[],"models_incomplete":[],"tests":[%s]}}'
)


def play_large(folder: Path, count: int) -> list[str]:
    """Read so many files, and return what took too long or too much."""
    plain, problems, tried = folder / "plain", list[str](), 0
    plain.write_bytes(bytes(_BYTES))
    for tried, (name, read) in enumerate(_files(folder), 1):  # noqa: B007 - asserted below
        status, seconds, kilobytes = _taken(read)
        _, plainly, least = _taken(lambda: sha256(plain.read_bytes()))
        slower, more = seconds / plainly, kilobytes - least
        found = ["it raised what is printed above, or the process died"] if status else []
        found += [f"it took {slower:.0f} times as long as a plain read"] if slower > SLOWER else []
        found += [f"it took {more:,} kB more"] if more > KILOBYTES else []
        problems += [f"{name}: {problem}" for problem in found]
    assert tried == count
    return problems


def _taken(read: Callable[[], object]) -> tuple[int, float, int]:
    """Read a file in a process of its own; return its status, seconds of the processor, and peak in kilobytes."""
    child = os.fork()
    if child == 0:
        try:
            with suppress(GoldenError, TFDebugError, ScanError):
                read()
        except BaseException:  # noqa: BLE001 - any other error is what this looks for
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status, usage = os.wait4(child, 0)
    return status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss


def _files(folder: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """Write the files one after the other, and yield of each what it is and a function that reads it."""
    path = folder / "report.json"
    for name, unit in _JSON.items():
        path.write_text(_list_of(unit), encoding="utf-8")
        yield f"baseline, {name}", lambda: baseline.load(path)
    # as long as is read, and then as many skips as that holds
    for name, unit in {"of many classes": _SKIP, "of one class": _SKIP.replace("%d", "")}.items():
        path.write_text(_REPORT % ",".join(unit.replace("%d", str(number)) for number in range(210_000)))
        yield f"baseline, skips {name}", lambda: baseline.changes(baseline.load(path), {})
    os.environ["XDG_CACHE_HOME"] = str(folder)
    cache = Path(Cache(folder, "")._path)  # noqa: SLF001 - where it is
    cache.parent.mkdir(parents=True)
    for name, unit in _JSON.items():
        for length in (_BYTES, 16_900_000):  # the second is as long as is read
            text = _list_of(unit, length).encode()
            cache.write_bytes(b"%08x %b" % (zlib.crc32(text), text))
            yield f"cache, {name}", lambda: Cache(folder, "").head("it")
    golden = folder / "golden.safetensors"
    for name, length in {"tensors": _BYTES, "tensors that are read": 7_900_000}.items():
        header = "{" + ",".join(_TENSOR % number for number in range(length // (len(_TENSOR) + 7))) + "}"
        golden.write_bytes(struct.pack("<Q", len(header)) + header.encode())
        yield f"golden, {name}", lambda: Trace.load(golden)
    for name, unit in _JSON.items():
        _save_document(golden, _list_of(unit).encode())
        yield f"golden, document of {name}", lambda: Trace.load(golden)
    _save_document(golden, b" " * _BYTES)
    yield "golden, document of blanks", lambda: Trace.load(golden)


def _save_document(path: Path, text: bytes) -> None:
    """Write a golden with another document."""
    trace(torch.nn.Linear(2, 2), torch.ones(1, 2)).save(path)
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
    tensors["#document"] = torch.frombuffer(bytearray(zlib.compress(text, 1)), dtype=torch.uint8)
    save_file(tensors, path, metadata={"tfdebug": with_checksums({"format": 2, "extra": {}}, tensors)})


def _list_of(unit: str, size: int = _BYTES) -> str:
    return f"[{','.join([unit] * (size // (len(unit.encode()) + 1)))}]"
