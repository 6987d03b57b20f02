"""The values of a forward <-> two tensors of a trace file: a compressed JSON table, and its fingerprints' numbers.

The table holds the text of each source line that asked for a value, so that nothing is read again from what is
installed. It is read from files that anyone may have written: every entry is checked before it is used.
"""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, get_args

import msgspec
import torch

from pytest_tfdebug.records import Call, Site, SourceRange
from pytest_tfdebug.tracing.file.document import TooLargeError, packed, portable, unpacked
from pytest_tfdebug.tracing.record.leaves import safe
from pytest_tfdebug.tracing.values.slicing import statement_lines, text_of
from pytest_tfdebug.values import MOMENTS, Fingerprint, Line, Origin, Value, Values

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Names of the two tensors; no call's path begins like this.
TABLE, NUMBERS = "#values.table", "#values.numbers"
#: Beginning of the name of a tensor that holds the floors in a dtype.
_FLOORS = "#values.floors."
#: Characters that are kept of a statement.
_LONGEST_TEXT = 400
#: Steps of a floor for each power of two: an eighth tells enough of a rounding.
_STEPS = 8
_ORIGINS = get_args(Origin)

#: Where something stands in a list.
_Place = Annotated[int, msgspec.Meta(ge=0)]
#: Values of a call, each with its leaf path, by the ``index`` of the call.
_Leaves = list[tuple[int, list[tuple[str, _Place]]]]


#: A call: index, path, class, call index, parent, lines of its forward, and where it was called.
CallRow = tuple[int, str, str, int, "int | None", "tuple[str, int, int] | None", "Site | None"]
#: The end of what has a fingerprint: elements, finite ones, and the length of each axis; its moments and a number for
#: each axis are in the other tensor.
_Print = tuple[int, int, list[int]]
#: A parameter: name and shape, and its fingerprint.
ParameterRow = tuple[str, tuple[int, ...], int, int, list[int]]


class ValueRow(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A value: a list, its entries in the order of the fields; its origin, chain and producers by their places."""

    operator: str
    origin: _Place
    name: str
    call: int | None
    chain: _Place
    producers: tuple[_Place, ...]
    shape: tuple[int, ...]
    dtype: str
    is_random: int
    elements: int
    finite: int
    lengths: list[int]


class Table(msgspec.Struct):
    """The table of a forward's values; chains are the lines of a value, innermost first, by their places."""

    lines: list[Line]
    chains: list[list[_Place]]
    is_widened: bool
    calls: list[CallRow]
    inputs: _Leaves
    outputs: _Leaves
    values: list[ValueRow]
    parameters: list[ParameterRow]
    attributes: dict[str, dict[str, str]] = {}


def encode_values(values: Values) -> dict[str, torch.Tensor]:
    """Return the tensors that hold a table; none where it would be larger than is read."""
    chains = {chain: place for place, chain in enumerate(dict.fromkeys(value.lines for value in values.values))}
    lines = {line: place for place, line in enumerate(dict.fromkeys(line for chain in chains for line in chain))}
    numbers: list[float] = []

    def printed(of: Fingerprint) -> _Print:
        numbers.extend((*of.moments, *(number for _, number in of.axes)))
        return of.elements, of.finite, [length for length, _ in of.axes]

    def row(value: Value) -> ValueRow:
        made = value.operator, _ORIGINS.index(value.origin), value.name, value.call, chains[value.lines]
        of_it = value.producers, value.shape, value.dtype, int(value.is_random)
        return ValueRow(*made, *of_it, *printed(value.print))

    table = Table(
        [_encode_line(line) for line in lines],
        [[lines[line] for line in chain] for chain in chains],
        values.is_widened,
        [_encode_call(call) for call in values.calls],
        list(values.inputs.items()),
        list(values.outputs.items()),
        [row(value) for value in values.values],
        [(name, shape, *printed(held)) for name, (held, shape) in values.parameters.items()],
        values.attributes,
    )
    floors = {
        f"{_FLOORS}{dtype}": torch.tensor(
            [min(max(round(-_STEPS * math.log2(floor)), 1), 255) if floor > 0 else 0 for floor in held],
            dtype=torch.uint8,
        )
        for dtype, held in values.floors.items()
    }
    try:
        packed_table = packed(table)
    except TooLargeError:
        return {}
    return {TABLE: packed_table, NUMBERS: torch.tensor(numbers, dtype=torch.float32), **floors}


def _encode_line(line: Line) -> Line:
    first, last = (line.first, line.last) if line.text else statement_lines(line.file, line.line)
    text = line.text or text_of(line.file, first, last)[:_LONGEST_TEXT]
    return Line(portable(line.file), line.line, line.function, first, last, text)


def _encode_call(call: Call) -> CallRow:
    site, lines = call.inner_site or call.site, call.source
    if site is not None:
        code = safe(site.code or text_of(site.file, site.line, site.end_line)[:_LONGEST_TEXT])
        site = site._replace(file=portable(site.file), code=code)
    source = None if lines is None else (portable(lines.file), lines.first, lines.last)
    return call.index, call.path, call.class_name, call.call, call.parent, source, site


def decode_values(tensors: dict[str, torch.Tensor]) -> Values | None:
    """Take the two tensors out of a file's and return the table; None where the file has none."""
    document, numbers = tensors.pop(TABLE, None), tensors.pop(NUMBERS, None)
    floors = {name: tensors.pop(name) for name in [*tensors] if name.startswith(_FLOORS)}
    if document is None or numbers is None:
        return None
    if numbers.dtype != torch.float32:
        raise TypeError("the table of values has another dtype")
    found = _decode(unpacked(document, Table), iter(numbers.tolist()))
    count = MOMENTS * len(found.values) + len(found.results)
    for name, held in floors.items():
        if held.dtype != torch.uint8:
            raise TypeError("the floors of values have another dtype")
        if held.shape != (count,):
            raise ValueError("there are not as many floors as values")
        found.floors[name.removeprefix(_FLOORS)] = [2 ** (-step / _STEPS) if step else 0.0 for step in held.tolist()]
    return found


def _decode(table: Table, numbers: Iterator[float]) -> Values:
    calls = _decode_calls(table)
    chains = [tuple(table.lines[place] for place in chain) for chain in table.chains]
    values = []
    for place, row in enumerate(table.values):
        if max(row.producers, default=-1) >= place:
            raise ValueError(f"value {place} comes from one that is not before it")
        if row.call is not None and row.call not in calls:
            raise ValueError(f"value {place} has no call")
        made = row.operator, _ORIGINS[row.origin], row.name, row.call, chains[row.chain], row.producers
        found = _decode_print((row.elements, row.finite, row.lengths), numbers)
        values.append(Value(place, *made, row.shape, row.dtype, found, bool(row.is_random)))
    parameters = {name: (_decode_print(told, numbers), shape) for name, shape, *told in table.parameters}
    if next(numbers, None) is not None:
        raise ValueError("the table of values has more numbers than its fingerprints need")
    for index, held in (*table.inputs, *table.outputs):
        if index not in calls or any(value >= len(values) for _, value in held):
            raise ValueError("the inputs or outputs of a call that is not there, or values that are not")
    return Values(
        values=values,
        calls=[*calls.values()],
        inputs=dict(table.inputs),
        outputs=dict(table.outputs),
        parameters=parameters,
        is_widened=table.is_widened,
        attributes=table.attributes,
    )


def _decode_calls(table: Table) -> dict[int, Call]:
    calls: dict[int, Call] = {}
    for index, path, class_name, call, parent, source, site in table.calls:
        if parent is not None and parent not in calls:
            raise ValueError(f"call {index} of the table of values has no caller before it")
        lines = source and SourceRange(*source)
        calls[index] = Call(index, path, class_name, call, parent, 0, site, source=lines)
    if not calls or len(calls) < len(table.calls):
        raise ValueError("the calls of the table of values are not one each")
    return calls


def _decode_print(told: Any, numbers: Iterator[float]) -> Fingerprint:  # noqa: ANN401 - a ``_Print``
    elements, finite, lengths = told
    held = list(islice(numbers, MOMENTS + len(lengths)))
    if len(held) < MOMENTS + len(lengths):
        raise ValueError("the table of values has fewer numbers than its fingerprints need")
    if lengths and math.prod(lengths) > elements:
        raise ValueError("a fingerprint has more axes than elements")
    return Fingerprint._make((elements, finite, *held[:MOMENTS], (*zip(lengths, held[MOMENTS:], strict=True),)))
