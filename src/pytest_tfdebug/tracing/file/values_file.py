"""The values of a forward <-> two tensors of a trace file: a compressed JSON table, and its fingerprints' numbers.

The table holds the text of each source line that asked for a value, so that nothing is read again from what is
installed. It is read from files that anyone may have written: every entry is checked before it is used.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any, get_args

import torch

from pytest_tfdebug.records import Call, Site, SourceRange
from pytest_tfdebug.redaction import redact
from pytest_tfdebug.tracing.file.bounds import TooLargeError
from pytest_tfdebug.tracing.file.document import portable
from pytest_tfdebug.tracing.file.floor_bytes import decode_floors, encode_floors
from pytest_tfdebug.tracing.file.packing import packed, unpacked
from pytest_tfdebug.tracing.file.typed import each, optional, typed
from pytest_tfdebug.tracing.values.fingerprints import MOMENTS, Fingerprint
from pytest_tfdebug.tracing.values.operators import Line, Origin, Value, Values
from pytest_tfdebug.tracing.values.slicing import statement_lines, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Names of the two tensors; no call's path begins like this.
TABLE, NUMBERS = "#values.table", "#values.numbers"
#: Beginning of the name of a tensor that holds the floors in a dtype.
_FLOORS = "#values.floors."
#: Characters that are kept of a statement.
_LONGEST_TEXT = 400


def encode_values(values: Values) -> dict[str, torch.Tensor]:
    """Return the tensors that hold a table; none where it would be larger than is read."""
    lines: dict[Line, int] = {}
    chains: dict[tuple[Line, ...], int] = {}
    for value in values.values:
        if value.lines not in chains:
            chains[value.lines] = len(chains)
            for line in value.lines:
                lines.setdefault(line, len(lines))
    numbers: list[float] = []
    told = cache(redact)  # the same line calls in every layer
    table = {
        "lines": [_encode_line(line) for line in lines],
        "chains": [[lines[line] for line in chain] for chain in chains],
        "is_widened": values.is_widened,
        "calls": [_encode_call(call, told) for call in values.calls],
        "inputs": list(values.inputs.items()),
        "outputs": list(values.outputs.items()),
        "values": [_encode_value(value, chains, numbers) for value in values.values],
        "parameters": [
            [name, list(shape), *_encode_print(fingerprint, numbers)]
            for name, (fingerprint, shape) in values.parameters.items()
        ],
        "attributes": values.attributes,
    }
    floors = {f"{_FLOORS}{dtype}": encode_floors(held) for dtype, held in values.floors.items()}
    try:
        return {TABLE: packed(table), NUMBERS: torch.tensor(numbers, dtype=torch.float32), **floors}
    except TooLargeError:
        return {}


def decode_values(tensors: dict[str, torch.Tensor]) -> Values | None:
    """Take the two tensors out of a file's and return the table; None where the file has none.

    Raises:
        KeyError, TypeError, ValueError, IndexError, zlib.error: If they are not of their form.
    """
    table, numbers = tensors.pop(TABLE, None), tensors.pop(NUMBERS, None)
    floors = {name: tensors.pop(name) for name in [*tensors] if name.startswith(_FLOORS)}
    if table is None or numbers is None:
        return None
    if numbers.dtype != torch.float32:
        raise TypeError("the table of values has another dtype")
    values = _Reader(unpacked(table), numbers.tolist()).values()
    for name, held in floors.items():
        values.floors[name.removeprefix(_FLOORS)] = decode_floors(
            held, MOMENTS * len(values.values) + len(values.results)
        )
    return values


def _encode_line(line: Line) -> list[Any]:
    first, last = (line.first, line.last) if line.text else statement_lines(line.file, line.line)
    text = line.text or text_of(line.file, first, last)[:_LONGEST_TEXT]
    return [portable(line.file), line.line, line.function, first, last, text]


def _encode_call(call: Call, told: Callable[[str], str]) -> list[Any]:
    site = call.inner_site or call.site
    return [
        call.index,
        call.path,
        call.class_name,
        call.call,
        call.parent,
        call.source and [portable(call.source.file), call.source.first, call.source.last],
        site
        and [
            portable(site.file),
            *site[1:6],
            told(site.code or text_of(site.file, site.line, site.end_line)[:_LONGEST_TEXT]),
        ],
    ]


def _encode_value(value: Value, chains: dict[tuple[Line, ...], int], numbers: list[float]) -> list[Any]:
    return [
        value.operator,
        get_args(Origin).index(value.origin),
        value.name,
        value.call,
        chains[value.lines],
        list(value.producers),
        list(value.shape),
        value.dtype,
        int(value.is_random),
        *_encode_print(value.print, numbers),
    ]


def _encode_print(fingerprint: Fingerprint, numbers: list[float]) -> list[Any]:
    numbers += fingerprint.moments
    numbers += [number for _, number in fingerprint.axes]
    return [fingerprint.elements, fingerprint.finite, [length for length, _ in fingerprint.axes]]


class _Reader:
    """Reads a table, checking each entry.

    Args:
        table: The JSON document.
        numbers: The numbers of all fingerprints, in the order of the table.
    """

    def __init__(self, table: dict[str, Any], numbers: list[float]) -> None:
        self._table = typed(dict, table)
        self._numbers = iter(numbers)

    def values(self) -> Values:
        """Return the table."""
        calls = [self._call(typed(list, entry)) for entry in self._rows("calls")]
        lines = [self._line(entry) for entry in self._rows("lines")]
        chains = [tuple(lines[_within(place, lines)] for place in typed(list, chain)) for chain in self._rows("chains")]
        indices = {call.index for call in calls}
        if not calls or len(indices) < len(calls):
            raise ValueError("the calls of the table of values are not one each")
        before: set[int] = set()
        for call in calls:
            if call.parent is not None and call.parent not in before:
                raise ValueError(f"call {call.index} of the table of values has no caller before it")
            before.add(call.index)
        found = Values(calls=calls, is_widened=typed(bool, self._table["is_widened"]))
        for place, entry in enumerate(self._rows("values")):
            found.values.append(self._value(place, typed(list, entry), chains, indices))
        found.inputs = dict(self._leaves("inputs", found, indices))
        found.outputs = dict(self._leaves("outputs", found, indices))
        for entry in self._rows("parameters"):
            name, shape, *held = typed(list, entry)
            found.parameters[typed(str, name)] = (
                self._print(held),
                tuple(typed(int, size) for size in typed(list, shape)),
            )
        for path, held in typed(dict, self._table.get("attributes", {})).items():  # goldens had none at first
            found.attributes[path] = {name: typed(str, text) for name, text in typed(dict, held).items()}
        if next(self._numbers, None) is not None:
            raise ValueError("the table of values has more numbers than its fingerprints need")
        return found

    def _rows(self, name: str) -> list[Any]:
        return typed(list, self._table[name])

    def _call(self, entry: list[Any]) -> Call:
        index, path, class_name, number, parent, source, site = entry
        return Call(
            typed(int, index),
            typed(str, path),
            typed(str, class_name),
            typed(int, number),
            optional(int, parent),
            0,
            site=None if site is None else Site(*each((str, int, int, str, int, int, str), site)),
            source=None if source is None else SourceRange(*each((str, int, int), source)),
        )

    def _line(self, entry: object) -> Line:
        file, line, function, first, last, text = each((str, int, str, int, int, str), entry)
        return Line(file, line, function, first, last, text)

    def _value(self, place: int, entry: list[Any], chains: list[tuple[Line, ...]], calls: set[int]) -> Value:
        operator, origin, name, call, chain, producers, shape, dtype, is_random, *held = entry
        made = tuple(typed(int, each_one) for each_one in typed(list, producers))
        if not all(0 <= each_one < place for each_one in made):
            raise ValueError(f"value {place} comes from one that is not before it")
        if call is not None and typed(int, call) not in calls:
            raise ValueError(f"value {place} has no call")
        origins = get_args(Origin)
        return Value(
            place,
            typed(str, operator),
            origins[_within(origin, origins)],
            typed(str, name),
            call,
            chains[_within(chain, chains)],
            made,
            tuple(typed(int, size) for size in typed(list, shape)),
            typed(str, dtype),
            self._print(held),
            bool(typed(int, is_random)),
        )

    def _print(self, held: list[Any]) -> Fingerprint:
        count, finite, lengths = held
        mean, size, rms, third, fourth, low, high = [self._number() for _ in range(MOMENTS)]
        axes = tuple((typed(int, length), self._number()) for length in typed(list, lengths))
        if axes and prod(length for length, _ in axes) > typed(int, count):
            raise ValueError("a fingerprint has more axes than elements")
        return Fingerprint(count, typed(int, finite), mean, size, rms, third, fourth, low, high, axes)

    def _number(self) -> float:
        number = next(self._numbers, None)
        if number is None:
            raise ValueError("the table of values has fewer numbers than its fingerprints need")
        return number

    def _leaves(self, name: str, found: Values, calls: set[int]) -> Iterator[tuple[int, list[tuple[str, int]]]]:
        for entry in self._rows(name):
            index, leaves = typed(list, entry)
            if typed(int, index) not in calls:
                raise ValueError(f"the {name} of a call that is not there")
            yield index, [(typed(str, leaf), _within(value, found.values)) for leaf, value in typed(list, leaves)]


def _within(place: object, among: Any) -> int:  # noqa: ANN401 - any sequence
    index = typed(int, place)
    if not 0 <= index < len(among):
        raise IndexError(f"{index} is not among {len(among)}")
    return index
