"""The outputs of two models side by side: each of the reference's is held to one of the port's, or is not compared.

Outputs belong together by ``outputs=``, by name, or by value: a port may return under any name what its reference
returns, with axes of length one more or less, or with its axes in another order. Nothing else is taken for equal.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from itertools import accumulate, permutations
from operator import mul
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from pytest_tfdebug.errors import TFDebugError, listed
from pytest_tfdebug.parity.pair.pairing import leaf_key
from pytest_tfdebug.parity.tensors.positions import check_positions, counting, mask_of
from pytest_tfdebug.records import LeafComparison, TensorRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Compare: TypeAlias = Callable[[TensorRecord, TensorRecord], LeafComparison]

#: A leaf path, and what of its tensor is meant: ``last_hidden_state[:, 0]``.
_INDEXED = re.compile(r"(?P<path>.*?)(?P<index>\[(?:[^\[\]'\"]*[:,.][^\[\]'\"]*)\])?")
#: The names under which a model returns its caches, whole: ``uncached_scores`` is none.
_CACHE = re.compile(r"(\.|\[')?\w*(past_key_values?|caches?(_params)?)(?!\w)", re.IGNORECASE)
#: Axes of which every order is tried.
_MOST_AXES = 6
#: Said of an order that no layer makes of another one.
UNUSUAL = ", which exchanges axes"


@dataclass(frozen=True, eq=False)
class OutputRules:
    """What a user says of the outputs."""

    # path of an output of the port -> path of the reference's output that it is, or is a part of; outputs of the
    # reference that are neither listed nor found are then left out. None to find all of them.
    paths: Mapping[str, str] | None = None
    # which positions of an output count: a mask of its leading axes (1 at real tokens), or an index. None for all.
    positions: Any = None
    are_recorded: bool = False  # whether the expected outputs hold zeros where positions do not count

    def __post_init__(self) -> None:
        given = self.paths
        if given is not None and not (
            hasattr(given, "items") and all(isinstance(text, str) for pair in given.items() for text in pair)
        ):
            raise TFDebugError(
                f"outputs={given!r} is not a dict of the port's outputs and the reference's: outputs={{\"audio\": "
                '"audio_values"}, or {"": "logits"} for a port that returns a tensor.'
            )
        check_positions(self.positions)

    def masked(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return an output with zeros where its positions do not count."""
        counts = self._counts(tuple(tensor.shape))
        return tensor if counts is None else tensor.masked_fill(~counts.to(tensor.device), 0)

    def _counts(self, shape: tuple[int, ...]) -> torch.Tensor | None:
        """Tell of each element of an output whether it counts; None where all do."""
        return None if self.positions is None else counting(self.positions, shape)

    def told(self, shape: tuple[int, ...]) -> str:
        """Say how many elements of an output count; empty where all do."""
        counts = self._counts(shape)
        if counts is None or counts.all():
            return ""
        return f"{int(counts.sum())} of its {counts.numel()} elements count"

    def refuse_misfit(self, outputs: Sequence[TensorRecord]) -> None:
        """Refuse positions that no output of the reference has, and names that none of them has."""
        for theirs in (self.paths or {}).values():
            _picked(theirs, outputs, "reference")
        if self.positions is None or not outputs or any(self._counts(one.shape) is not None for one in outputs):
            return
        given = self.positions
        told = f"a mask of shape {tuple(given.shape)}" if isinstance(given, torch.Tensor) else repr(given)
        there = listed([f"{shown(one.leaf)!r} {one.shape}" for one in _without_caches(outputs)], 3)
        raise TFDebugError(f"positions= is {told}, and no output has these positions: {there}.")

    def of_both(self, actual: TensorRecord, expected: TensorRecord) -> tuple[TensorRecord, TensorRecord]:
        """Return two outputs of one shape with zeros where positions do not count."""
        if self._counts(expected.shape) is None or actual.tensor is None or actual.shape != expected.shape:
            return actual, expected
        actual = _with(actual, self.masked(actual.tensor))
        if expected.tensor is None and self.are_recorded:
            return actual, expected
        if expected.tensor is None:
            raise TFDebugError(
                f"positions= picks from {expected.leaf or 'the output'!r}, which the golden does not keep whole: "
                "record it with positions= (--tf-golden=update)."
            )
        return actual, _with(expected, self.masked(expected.tensor))

    def unpacked(self, actual: TensorRecord, expected: TensorRecord) -> TensorRecord | None:
        """Return what a port gives at the positions that count alone, in the places where they stand."""
        counts, tensor, mask = self._counts(expected.shape), actual.tensor, mask_of(self.positions)
        index = self.positions if mask is None else mask.bool().cpu()
        if counts is None or tensor is None or counts[index].shape != tensor.shape:
            return None
        whole = tensor.new_zeros(expected.shape)
        whole[index] = tensor
        return _with(actual, whole)


def hold_outputs(
    actual: Sequence[TensorRecord],
    expected: Sequence[TensorRecord],
    compare: Compare,
    rules: OutputRules,
    *,
    is_strict: bool,
) -> tuple[LeafComparison, ...]:
    """Return every output of the reference beside the port's: ``missing`` where none was compared."""
    rules.refuse_misfit(expected)
    is_strict &= not {leaf_key(one.leaf) for one in actual}.isdisjoint(leaf_key(one.leaf) for one in expected)
    held = _SideBySide(list(actual), list(expected), compare, rules)
    if rules.paths is not None:
        held.take_named(rules.paths)
    held.take_same_names(is_strict=is_strict)
    held.take_equal(is_strict=is_strict)
    if not is_strict:
        held.take_alike()
        held.take_misshapen()
    return held.finish(is_strict=is_strict)


def is_uncompared(leaf: LeafComparison) -> bool:
    """Tell whether an output of the reference was held to nothing, and nobody said that it need not be."""
    return leaf.problem == "missing" and leaf.how == ""


class _SideBySide:
    """Outputs that are being laid side by side."""

    def __init__(
        self, actual: list[TensorRecord], expected: list[TensorRecord], compare: Compare, rules: OutputRules
    ) -> None:
        self._actual, self._expected, self._compare, self._rules = actual, expected, compare, rules
        self._found: dict[int, LeafComparison] = {}
        self._used: set[int] = set()

    @property
    def _left(self) -> list[TensorRecord]:
        return [record for record in self._expected if id(record) not in self._found]

    @property
    def _free(self) -> list[TensorRecord]:
        return [record for record in self._actual if id(record) not in self._used]

    def take_named(self, paths: Mapping[str, str]) -> None:
        parts: dict[int, list[tuple[str, TensorRecord]]] = {}
        by_id = {id(record): record for record in self._expected}
        for own, theirs in paths.items():
            mine, index = _picked(own, self._actual, "port")
            other, part = _picked(theirs, self._expected, "reference")
            self._used.add(id(mine))
            picked = mine if not index or mine.tensor is None else _with(mine, mine.tensor[_index(index)])
            parts.setdefault(id(other), []).append((part, picked))
        for key, given in parts.items():
            whole = _assembled(given, by_id[key]) if given[0][0] or len(given) > 1 else given[0][1]
            found = self._best(whole, by_id[key], "by outputs=")
            self._found[key] = found or self._compare(whole, by_id[key])

    def take_same_names(self, *, is_strict: bool) -> None:
        named = {leaf_key(record.leaf): record for record in self._free}
        for expected in self._left:
            mine = named.get(leaf_key(expected.leaf))
            if mine is None:
                continue
            found = self._compare_here(mine, expected) if is_strict else self._best(mine, expected, "by name")
            if found is not None:
                self._take(expected, mine, replace(found, how=found.how or "by name"))

    def take_equal(self, *, is_strict: bool) -> None:
        """Take the outputs of other names that agree; one of a port's may be several of the reference's."""
        for expected in self._left:
            for mine in (*self._free, *(() if is_strict else self._actual)):
                found = self._best(mine, expected, "by value")
                if found is not None and not found.problem:
                    self._take(expected, mine, found)
                    break

    def take_alike(self) -> None:
        """Take those that may be one output and differ: the nearest of the right shape, where none is left over.

        A cache is no such one.
        """
        left = [record for record in self._left if not is_cache(record)]
        if len(left) < sum(map(is_of_numbers, self._free)):
            return
        for expected in left:
            free = ((mine, self._best(mine, expected, "by value")) for mine in self._free)
            held = [(mine, found) for mine, found in free if found is not None]
            if held:
                self._take(expected, *min(held, key=lambda each: _apart(each[1])))

    def take_misshapen(self) -> None:
        """Take those of another shape that have the name of the reference's, or are the only one left on each side."""
        named = {leaf_key(record.leaf): record for record in self._free}
        free = list(filter(is_of_numbers, self._free))
        is_lone = sum(map(is_of_numbers, self._expected)) == sum(map(is_of_numbers, self._actual)) == len(free) == 1
        for expected in self._left:
            mine = named.get(leaf_key(expected.leaf), free[0] if is_lone and is_of_numbers(expected) else None)
            if mine is not None and not is_cache(expected):
                self._take(expected, mine, replace(self._compare_here(mine, expected), how="by name"))

    def finish(self, *, is_strict: bool) -> tuple[LeafComparison, ...]:
        # what is returned and was found to be no output of the reference may be its cache
        has_cache = is_strict or any(map(is_of_numbers, self._free))
        for expected in self._left:
            told = "" if has_cache or not is_cache(expected) else "a cache that is not returned here"
            told = "left out by outputs=" if self._rules.paths is not None else told
            bare = LeafComparison(
                "output", expected.leaf, "missing", expected.shape, expected.dtype, expected, how=told
            )
            self._found[id(expected)] = bare
        extra = (LeafComparison("output", one.leaf, "extra", one.shape, one.dtype, None) for one in self._free)
        return (*(self._told(self._found[id(record)], record.shape) for record in self._expected), *extra)

    def _told(self, found: LeafComparison, shape: tuple[int, ...]) -> LeafComparison:
        """Return a comparison that says how much of the output counted."""
        told = self._rules.told(shape) if found.is_measured else ""
        return replace(found, how=f"{told}, {found.how}") if told else found

    def _take(self, expected: TensorRecord, mine: TensorRecord, found: LeafComparison) -> None:
        self._found[id(expected)] = found
        self._used.add(id(mine))

    def _best(self, mine: TensorRecord, expected: TensorRecord, how: str) -> LeafComparison | None:
        """Return the comparison of an output in the layout that is nearest; None where it has none of the shape."""
        best: LeafComparison | None = None
        for laid_out, told in self._layouts(mine, expected):
            found = replace(self._compare_here(laid_out, expected), how=f"{how}, {told}" if told else how)
            if not found.problem:
                return found
            best = found if best is None or _apart(found) < _apart(best) else best
        return best

    def _compare_here(self, mine: TensorRecord, expected: TensorRecord) -> LeafComparison:
        both = self._rules.of_both(mine, expected)
        return replace(self._compare(*both), expected=expected)

    def _layouts(self, mine: TensorRecord, expected: TensorRecord) -> Iterator[tuple[TensorRecord, str]]:
        """Yield an output in the shape of the reference's, in every way in which it may be that, and say how."""
        tensor = mine.tensor
        if is_of_numbers(mine) != is_of_numbers(expected):
            return
        if mine.shape == expected.shape:
            yield mine, ""
            return
        unpacked = self._rules.unpacked(mine, expected)
        if unpacked is not None:
            yield unpacked, "at the positions that count"
        if tensor is None or math.prod(mine.shape) != math.prod(expected.shape):
            return
        here, there = ([size for size in record.shape if size > 1] for record in (mine, expected))
        was = f"{mine.shape} here"
        plain, bare = tuple(range(len(here))), tensor.squeeze()
        tried = permutations(plain) if len(here) <= _MOST_AXES else ()
        orders = [order for order in tried if _is_joined([here[axis] for axis in order], there)]
        if plain in orders or not orders:
            yield _with(mine, tensor.reshape(expected.shape)), was
            return
        for order in orders:
            moved = bare.permute(order).reshape(expected.shape)
            unusual = "" if _is_one_moved(order) else UNUSUAL
            yield _with(mine, moved), f"{was}, its axes in the order {order}{unusual}"


def _is_one_moved(order: Sequence[int]) -> bool:
    """Tell whether an order is that of axes of which one was moved, as frameworks and layers do: channels last."""
    plain = list(range(len(order)))
    return any(
        [*(rest := [axis for axis in plain if axis != one])[:at], one, *rest[at:]] == [*order]
        for one in plain
        for at in plain
    )


def _is_joined(one: Sequence[int], other: Sequence[int]) -> bool:
    """Tell whether two shapes are the same, but for axes of one that are joined to one axis in the other."""
    fewer, more = sorted((one, other), key=len)
    return {*accumulate(fewer, mul)} <= {*accumulate(more, mul)}


def _picked(text: str, among: Sequence[TensorRecord], side: str) -> tuple[TensorRecord, str]:
    """Return the output that a user names, and what of it is meant."""
    match = _INDEXED.fullmatch(text)
    path, index = (match["path"], match["index"] or "") if match else (text, "")
    key = leaf_key(path if not path or path[0] in ".[" else f".{path}")
    record = next((record for record in among if leaf_key(record.leaf) == key), None)
    if record is None:
        there = listed([repr(shown(each.leaf)) for each in _without_caches(among)], 12)
        raise TFDebugError(f"outputs=: the {side} returns no {text!r}; it returns {there or 'no tensor'}.")
    return record, index


def _with(record: TensorRecord, tensor: torch.Tensor) -> TensorRecord:
    return replace(record, shape=tuple(tensor.shape), tensor=tensor, digest=None, statistics=None)


def _assembled(parts: list[tuple[str, TensorRecord]], expected: TensorRecord) -> TensorRecord:
    """Return the output that some parts are pieces of: each of its elements is in one of them."""
    name, first = shown(expected.leaf), parts[0][1]
    assert first.tensor is not None  # noqa: S101 - what a forward has just returned
    whole = first.tensor.new_zeros(expected.shape)
    filled = torch.zeros(expected.shape, dtype=torch.bool)
    for text, part in parts:
        index = _index(text) if text else ...
        if part.tensor is None or filled[index].shape != part.shape:
            raise TFDebugError(
                f"outputs=: the parts of {name!r}: {shown(part.leaf)!r} {part.shape} is not its "
                f"{text or expected.shape}."
            )
        if filled[index].any():
            raise TFDebugError(
                f"outputs=: {shown(part.leaf)!r} is {name + text!r}, and another entry is so already.\n"
                "Leave one of them out, or check each in a test of its own."
            )
        whole[index], filled[index] = part.tensor, True
    if not bool(filled.all()):
        raise TFDebugError(
            f"outputs=: the parts of {name!r} are {int(filled.sum())} of its {filled.numel()} elements.\n"
            f"{_only_these(parts, name)}"
        )
    return _with(first, whole)


def _only_these(parts: list[tuple[str, TensorRecord]], name: str) -> str:
    """Say what to write where outputs are a part of the reference's, and the rest is not returned."""
    more = "List the outputs of the port that are its other elements as well."
    if len(parts) > 1:
        return more
    index = repr(_index(parts[0][0])).replace("slice(None, None, None)", "slice(None)").replace("Ellipsis", "...")
    return f'{more}\nIf only these count: outputs={{"{shown(parts[0][1].leaf)}": "{name}"}}, positions={index}.'


def _index(text: str) -> Any:  # noqa: ANN401 - anything that a tensor is indexed with
    """Return the index that a text such as ``[:, 0]`` or ``[..., 1:]`` is."""
    found: list[Any] = []
    for part in text[1:-1].split(","):
        numbers = [int(each) if each.strip() else None for each in part.split(":")] if "..." not in part else []
        found.append(... if not numbers else slice(*numbers) if ":" in part else numbers[0])
    return tuple(found)


def _apart(found: LeafComparison) -> float:
    if not found.problem:
        return 0.0
    return found.metrics.relative_l2 if found.metrics is not None else math.inf


def is_of_numbers(held: TensorRecord | LeafComparison) -> bool:
    """Tell whether a tensor is of floating point: a mask or ids are no hidden states."""
    return "float" in held.dtype or "complex" in held.dtype


def is_cache(record: TensorRecord) -> bool:
    """Tell whether an output is a cache, by its name."""
    return _CACHE.match(record.leaf) is not None


def _without_caches(records: Sequence[TensorRecord]) -> Sequence[TensorRecord]:
    """Return the outputs that are no caches; all of them where there is nothing else."""
    return [record for record in records if not is_cache(record)] or records


def shown(leaf: str) -> str:
    """Return a leaf path as a user writes it in ``outputs=``: ``.logits`` is ``logits``."""
    return leaf.removeprefix(".") if leaf.startswith(".") else re.sub(r"^\['(\w+)'\]", r"\1", leaf)
