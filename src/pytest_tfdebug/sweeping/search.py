"""Which fields matter: for each the value that moves the reference most clearly, and those that hide at their own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_tfdebug.sweeping import kinds
from pytest_tfdebug.sweeping.config import Changes, Field, fields, plain
from pytest_tfdebug.sweeping.reference import apart, is_equal
from pytest_tfdebug.sweeping.result import BlindSpot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pytest_tfdebug.sweeping.reference import Reference, Variant

#: A value whose effect is this many times what is allowed is telling enough; the next ones are not tried.
_CLEARLY = 100.0


class Context(NamedTuple):
    """What is changed on both sides before a field moves: it brings out what is hidden otherwise."""

    changes: Changes
    brings_out: str = ""  # what the path of a field contains that may be hidden
    without: tuple[str, ...] = ()  # fields that are left out, so that the class derives them


_OF_WINDOWS = "window|attention|layer|pattern|chunk|local|global|bidirectional"
_OF_LAYERS = "window|layer|full_attention|sliding_attention|chunked_attention"
_OF_POSITIONS = "rope|rotary|position"
_PLAIN = Context({})


@dataclass(frozen=True)
class Move:
    """A field at another value."""

    field: Field
    value: Any
    base: Variant  # what the reference gives with the field as it is
    variant: Variant  # what it gives with the value
    changes: Changes  # what else is changed on both sides
    distance: float  # how far the two answers are apart

    @property
    def beside(self) -> dict[str, Any]:
        """What else differs from the configuration, on both sides, by name."""
        return {path[-1]: plain(value) for path, value in self.changes.items() if path != self.field.path}


class FieldSearch:
    """Moves the fields of a configuration, one at a time."""

    def __init__(self, reference: Reference) -> None:
        self.reference = reference
        self.fields = list(fields(reference.config.to_dict(), reference.source))
        self._found: dict[Field, list[Move]] = {}
        self._bringing_parts: list[Context] = []

    def move_all(self, shown: Callable[[Sequence[Field]], Iterable[Field]]) -> None:
        """Move every field.

        Those that do not move are moved again beside each change that brought modules in: experts, another attention.
        """
        for field in shown(self.fields):
            self.moves(field)
        for field in shown([field for field in self.fields if not self._found[field]]):
            self._found[field] = self._in(self._bringing_parts, field)

    def moves(self, field: Field) -> list[Move]:
        """Return variants in which a field moves the reference: all kinds of rotary embeddings, else the clearest."""
        if field not in self._found:
            path = ".".join(field.path)
            contexts = [context for context in self._contexts if re.search(context.brings_out, path)]
            self._found[field] = self._in([_PLAIN, *contexts], field)
        return self._found[field]

    def blind_spot(self, field: Field) -> BlindSpot | None:
        """Return why a model passes that does not read a field; None where it does not pass, or nothing moves it."""
        base = self.reference.base
        for other in kinds.left_out(field):
            variant = base if other == field.value else self._variant(field, other, _PLAIN)
            if variant is not None and is_equal(base.answer, variant.answer):
                for move in self.moves(field):
                    beside = [each for each in self.fields if each.path in move.changes and each is not field]
                    if not any(each.value in (None, False) or each.is_rope for each in beside):  # it asks for them
                        return BlindSpot(field.name, plain(field.value), plain(move.value), move.beside, other)
        return None

    def _in(self, contexts: Sequence[Context], field: Field) -> list[Move]:
        """Return the clearest move in the first context that brings a field out; of a rotary embedding every kind."""
        found: list[Move] = []
        for context in contexts:
            if field.is_rope:
                found += self._moves(field, context, [move.value for move in found])
            elif not found:
                found = sorted(self._moves(field, context), key=lambda move: -min(move.distance, 1.0))[:1]
        return found

    def _moves(self, field: Field, context: Context, without: Sequence[Any] = ()) -> list[Move]:
        found: list[Move] = []
        bound = self.reference.bound
        options = [value for value in kinds.values(field) if value not in without]
        if context.brings_out and not field.is_rope:
            options = options[:1]  # the most telling value tells in every context
        base = self._base(field, context) if options else None
        for value in options if base else ():
            variant = self._variant(field, value, context)
            if base is None or variant is None:
                continue
            if variant.parts - self.reference.base.parts and context == _PLAIN:
                self._bringing_parts.append(Context({field.path: value}))
            distance = apart(base.answer, variant.answer)
            if distance > bound:
                found.append(Move(field, value, base, variant, context.changes, distance))
                if distance > _CLEARLY * bound and not field.is_rope:
                    break
        return found

    def _variant(self, field: Field, value: Any, context: Context) -> Variant | None:  # noqa: ANN401
        """Return the reference with a field moved, and with it what the class derives from that field."""
        changes = {**context.changes, field.path: value}
        derived = tuple(name for name in context.without or self._derived if (name,) not in changes)
        found = self.reference.variant(changes, context.without and derived)
        return found or self.reference.variant({**kinds.keeping_shapes(field, value), **changes}, derived)

    def _base(self, field: Field, context: Context) -> Variant | None:
        """Return the reference in a context, with the field as it is."""
        if context == _PLAIN:
            return self.reference.base
        changes = {path: value for path, value in context.changes.items() if path != field.path}
        return self.reference.variant(changes, tuple(name for name in context.without if name != field.path[-1]))

    @cached_property
    def _derived(self) -> tuple[str, ...]:
        """Names of fields that the class derives from others: one for each layer, or the same once it is left out."""
        own = [field for field in self.fields if len(field.path) == 1 and field.value is not None and not field.is_rope]
        return tuple(f.path[0] for f in own if _is_by_layer(f) or self.reference.is_derived(f.path[0], f.value))

    @cached_property
    def _contexts(self) -> list[Context]:
        """Changes that bring out other fields: a window is in use, layers are of several kinds, positions are few."""
        small: Changes = {}
        mixed: Changes = {}
        few: Changes = {}
        for field in self.fields:
            name = field.path[-1]
            if re.search("window(?!_pattern)|chunk_size", name) and type(field.value) in (int, type(None)):
                small[field.path] = 0 if "layers" in name else kinds.SMALL_WINDOW
            elif "window" in name and field.value is False:
                small[field.path] = True
            elif name == "max_position_embeddings":
                few[field.path] = kinds.TRAINED
            elif _is_by_layer(field) and all(isinstance(each, str) for each in field.value):
                mixed[field.path] = (kinds.values(field) or [field.value])[0]
        ropes = [field for field in self.fields if field.is_rope][:1]
        longer = [{**few, rope.path: value} for rope in ropes for value in kinds.values(rope)]
        every = [
            Context({}, without=self._derived),
            Context(small, _OF_WINDOWS, self._derived),
            Context(mixed, _OF_LAYERS),
            *(Context(each, _OF_POSITIONS) for each in (few, *longer)),
        ]
        return [context for context in every if context.changes or context.without]


def _is_by_layer(field: Field) -> bool:
    layers = [value for name, value in field.beside.items() if re.search(r"layers?$", name) and type(value) is int]
    return isinstance(field.value, (list, tuple)) and len(field.value) in layers and len(field.path) == 1
