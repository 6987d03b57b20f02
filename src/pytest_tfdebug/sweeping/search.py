"""Which fields matter: for each the value that moves the reference most clearly, and those that hide at their own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_tfdebug.sweeping import kinds
from pytest_tfdebug.sweeping.fields import ROPE_TYPE, Changes, Field, fields
from pytest_tfdebug.sweeping.forwards import apart, is_equal
from pytest_tfdebug.sweeping.result import BlindSpot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pytest_tfdebug.sweeping.reference import Reference, Variant

#: A value whose effect is this many times what is allowed is telling enough; the next ones are not tried.
_CLEARLY = 100.0


class Context(NamedTuple):
    """What is changed on both sides before a field moves: it brings out what is hidden otherwise.

    Args:
        changes: Fields with other values.
        brings_out: What the path of a field contains that may be hidden.
        without: Fields that are left out, so that the class derives them.
    """

    changes: Changes
    brings_out: re.Pattern[str] = re.compile("")
    without: tuple[str, ...] = ()

    def shows(self, field: Field) -> bool:
        """Tell whether a field may be hidden without this."""
        return bool(self.changes or self.without) and self.brings_out.search(".".join(field.path)) is not None


_OF_WINDOWS = re.compile("window|attention|layer|pattern|chunk|local|global|bidirectional")
_OF_LAYERS = re.compile("window|layer|full_attention|sliding_attention|chunked_attention")
_OF_POSITIONS = re.compile("rope|position|factor|beta")
_PLAIN = Context({})


@dataclass(frozen=True)
class Move:
    """A field at another value.

    Args:
        field: The field.
        value: The value.
        base: What the reference gives with the field as it is.
        variant: What it gives with the value.
        changes: The context in which it moves.
        distance: How far the two answers are apart.
    """

    field: Field
    value: Any
    base: Variant
    variant: Variant
    changes: Changes
    distance: float

    @property
    def beside(self) -> dict[str, Any]:
        """What else differs from the configuration, on both sides, by name."""
        return {path[-1]: plain(value) for path, value in self.changes.items() if path != self.field.path}


class FieldSearch:
    """Moves the fields of a configuration, one at a time.

    Args:
        reference: The reference.
    """

    def __init__(self, reference: Reference) -> None:
        self.reference = reference
        self.fields = list(fields(reference.config))
        self._bringing_parts: list[Context] = []

    @cached_property
    def _derived(self) -> tuple[str, ...]:
        """Names of fields that the class derives from others: one for each layer, or the same once it is left out."""
        found = []
        for field in self.fields:
            if len(field.path) == 1 and field.value is not None and not field.is_rope:
                again = self.reference.config_without(field.path[0])
                if _is_by_layer(field) or again == field.value:
                    found.append(field.path[0])
        return tuple(found)

    def all_moves(self, told: Callable[[Sequence[Field]], Iterable[Field]] = iter) -> dict[Field, list[Move]]:
        """Return the moves of every field.

        Fields that do not move are moved again beside each change that brought modules in: experts, another attention.

        Args:
            told: Shows the progress of a walk through fields.
        """
        found = {field: self.moves(field) for field in told(self.fields)}
        for field in told([field for field in self.fields if not found[field]]):
            found[field] = self._first(field, self._bringing_parts)
        return found

    def moves(self, field: Field) -> list[Move]:
        """Return variants in which a field moves the reference: all kinds of rotary embeddings, else the clearest."""
        contexts = [context for context in self._contexts if context.shows(field)]
        if not field.is_rope:
            return self._first(field, [_PLAIN, *contexts])
        found: list[Move] = []
        for context in (_PLAIN, *contexts):
            found += self._moves(field, context, [move.value for move in found])
        return found

    def _first(self, field: Field, contexts: Iterable[Context]) -> list[Move]:
        """Return the clearest move in the first context that brings a field out."""
        found = next(filter(None, (self._moves(field, context) for context in contexts)), [])
        return sorted(found, key=lambda move: -min(move.distance, 1.0))[:1]

    def _moves(self, field: Field, context: Context, without: Sequence[Any] = ()) -> list[Move]:
        found: list[Move] = []
        bound = self.reference.bound
        options = [value for value in kinds.values(field, self.reference.source) if value not in without]
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
        found = self.reference.variant(changes, derived if context.without else ())
        if found is None and not context.without:
            found = self.reference.variant(changes, derived)
        return found or self.reference.variant({**kinds.keeping_shapes(field, value), **changes}, derived)

    def _base(self, field: Field, context: Context) -> Variant | None:
        """Return the reference in a context, with the field as it is."""
        if context == _PLAIN:
            return self.reference.base
        changes = {path: value for path, value in context.changes.items() if path != field.path}
        return self.reference.variant(changes, tuple(name for name in context.without if name != field.path[-1]))

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
                mixed[field.path] = (kinds.values(field, self.reference.source) or [field.value])[0]
        ropes = [field for field in self.fields if field.is_rope][:1]
        longer = [{**few, rope.path: value} for rope in ropes for value in kinds.values(rope, "")]
        return [
            Context({}, without=self._derived),
            Context(small, _OF_WINDOWS),
            Context(small, _OF_WINDOWS, self._derived),
            Context(mixed, _OF_LAYERS),
            Context({**small, **mixed}, _OF_LAYERS),
            *(Context(each, _OF_POSITIONS) for each in (few, *longer)),
        ]

    def blind_spots(self) -> Iterator[BlindSpot]:
        """Yield the fields that matter, and that these inputs cannot see at their own value."""
        for field in self.fields:
            neutral = self._neutral(field)
            spot = self._blind_spot(field, self.moves(field), neutral) if neutral else None
            if spot:
                yield spot

    def blind_spot(self, field: Field, moves: Sequence[Move]) -> BlindSpot | None:
        """Return why a model passes that does not read a field; None where it does not pass, or nothing moves it."""
        return self._blind_spot(field, moves, self._neutral(field) if moves else [])

    def _blind_spot(self, field: Field, moves: Sequence[Move], neutral: Sequence[Any]) -> BlindSpot | None:
        by = next((move for move in moves if self._is_asked_for(move)), None)
        if by is None or not neutral:
            return None
        return BlindSpot(field.name, plain(field.value), plain(by.value), by.beside, neutral[0])

    def _neutral(self, field: Field) -> list[Any]:
        """Return the value with which a model gives the same that does not read a field; empty where there is none."""
        for other in kinds.left_out(field):
            variant = self.reference.base if other == field.value else self._variant(field, other, _PLAIN)
            if variant is not None and is_equal(self.reference.base.answer, variant.answer):
                return [other]
        return []

    def _is_asked_for(self, move: Move) -> bool:
        """Tell whether a move needs nothing that the configuration does not ask for: a window that is None is none."""
        beside = [field for field in self.fields if field.path in move.changes and field.path != move.field.path]
        return not any(field.value in (None, False) or field.is_rope for field in beside)


def plain(value: Any) -> Any:  # noqa: ANN401 - of a configuration
    """Return a value as a person reads it: a rotary embedding by its kind."""
    return next((value[name] for name in ROPE_TYPE if name in value), value) if isinstance(value, dict) else value


def _is_by_layer(field: Field) -> bool:
    layers = [value for name, value in field.beside.items() if re.search(r"layers?$", name) and type(value) is int]
    return isinstance(field.value, (list, tuple)) and len(field.value) in layers and len(field.path) == 1
