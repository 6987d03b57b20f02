"""Which layers of a model are of which kind: local and global ones in another pattern than the reference's.

Example: every third layer of a Gemma 3 sees all tokens, ``(i + 1) % 3 == 0``, and in the port ``i % 3 == 0``.

| side | what its layers hold | pattern |
|---|---|---|
| reference | ``self_attn.is_sliding`` True, True, False, True, True, False | 0 0 1 0 0 1 |
| port | ``local`` False, True, True, False, True, True | 0 1 1 0 1 1 |

Neither name nor number is the same, and both have layers of two kinds. So the port's layers are given the reference's
pattern, with its kinds the one way round and the other.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager
from itertools import permutations
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from pytest_tfdebug.parity.text.chosen_at import chosen_at
from pytest_tfdebug.parity.text.text_differences import source_file
from pytest_tfdebug.tracing.record.modules import modules_by_path
from pytest_tfdebug.tracing.record.sites import forward_source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_tfdebug.records import SourceRange

#: Kinds of layers in one model: more of them are no pattern.
_MOST = 3


class _OfLayers(NamedTuple):
    """An attribute of each layer."""

    module: str  # path within the layer
    name: str
    texts: tuple[str, ...]  # what each layer holds


class Layers(NamedTuple):
    """Layers of a port, some of which are made as others are."""

    stem: str  # path of what holds them
    held: tuple[_OfLayers, ...]  # what differs between kinds
    instead: dict[int, int]  # layer -> a layer of the kind that it is to be

    @property
    def first(self) -> str:
        """The path of the first layer that is of another kind."""
        return f"{self.stem}.{min(self.instead)}"

    @property
    def told(self) -> str:
        """What the first such layer holds, and should: ``local=False instead of True``."""
        texts, first = self.held[0].texts, min(self.instead)
        return f"{self.held[0].name}={texts[first]} instead of {texts[self.instead[first]]}"

    @contextmanager
    def within(self, model: torch.nn.Module) -> Iterator[None]:
        """Run a block with layers that hold what those of their kind hold, their tables too."""
        modules, before = modules_by_path(model), []
        new = [each for layer, other in self.instead.items() for each in self._of_layer(modules, layer, other)]
        try:
            for module, name, value in new:
                before.append((module, name, getattr(module, name)))
                setattr(module, name, value)
            yield
        finally:
            for module, name, value in reversed(before):
                setattr(module, name, value)

    def _of_layer(
        self, modules: Mapping[str, torch.nn.Module], layer: int, other: int
    ) -> Iterator[tuple[torch.nn.Module, str, Any]]:
        own, there = f"{self.stem}.{layer}", f"{self.stem}.{other}"
        for path in (path for path in modules if f"{path}.".startswith(f"{own}.")):
            twin = modules.get(f"{there}{path[len(own) :]}")
            for name, buffer in modules[path].named_buffers(recurse=False):
                held = getattr(twin, name, None)
                if isinstance(held, torch.Tensor) and held.shape == buffer.shape:
                    yield modules[path], name, held
        for each in self.held:
            yield modules[f"{own}{each.module}"], each.name, getattr(modules[f"{there}{each.module}"], each.name)


def in_another_pattern(
    own: Mapping[str, Mapping[str, str]], expected: Mapping[str, Mapping[str, str]]
) -> Iterator[Layers]:
    """Yield the layers of a port as they are with the reference's pattern of kinds.

    Args:
        own: What the modules of the port hold, by path and name.
        expected: What those of the reference hold.
    """
    there = _patterns(expected)
    for stem, count, held in _patterns(own):
        due = dict.fromkeys(pattern for _, size, some in there if size == count for pattern in some)
        for here, kept in held.items():
            for pattern in due:
                yield from _assigned(stem, kept, here, pattern)


def _assigned(stem: str, held: Sequence[_OfLayers], here: Sequence[int], pattern: Sequence[int]) -> Iterator[Layers]:
    if {*here} != {*pattern}:
        return
    for kinds in permutations(sorted({*here})):
        instead = {
            layer: here.index(kinds[kind])
            for layer, (mine, kind) in enumerate(zip(here, pattern, strict=True))
            if kinds[kind] != mine
        }
        if instead:
            yield Layers(stem, tuple(held), instead)


def _patterns(
    attributes: Mapping[str, Mapping[str, str]],
) -> list[tuple[str, int, dict[tuple[int, ...], list[_OfLayers]]]]:
    """Return each list of layers, how many it has, and what they hold that is of two or three kinds, by its pattern."""
    stacks: dict[str, dict[tuple[str, str], dict[int, str]]] = defaultdict(lambda: defaultdict(dict))
    for path, held in attributes.items():
        parts = path.split(".")
        place = next((each for each, part in enumerate(parts) if part.isdecimal()), None)
        if place:
            end = "".join(f".{part}" for part in parts[place + 1 :])
            for name, text in held.items():
                stacks[".".join(parts[:place])][end, name][int(parts[place])] = text
    found = []
    for stem, every in stacks.items():
        count = max(map(len, every.values()))
        by_pattern: dict[tuple[int, ...], list[_OfLayers]] = {}
        for (end, name), texts in every.items():
            row = tuple(texts.get(layer, "") for layer in range(count))
            kinds = list(dict.fromkeys(row))
            is_number_of_layer = row == tuple(map(str, range(count)))
            if all(row) and 1 < len(kinds) <= _MOST and not is_number_of_layer:
                by_pattern.setdefault(tuple(map(kinds.index, row)), []).append(_OfLayers(end, name, row))
        found.append((stem, count, by_pattern))
    return found


def made_at(layers: Layers, model: torch.nn.Module) -> SourceRange | None:
    """Return the statement that says of which kind a layer is; None where none is found."""
    path = f"{layers.first}{layers.held[0].module}"
    lines = forward_source(modules_by_path(model)[path])
    file = None if lines is None else source_file(lines.file)
    if lines is None or file is None:
        return None
    made = file.made_at(file.around(lines).rpartition(".")[0], layers.held[0].name)
    return made and (chosen_at(made, name=layers.held[0].name) or made)
