"""The registry of variants: what a field may be moved to, by its name and by the type of its value."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.sweeping.fields import ROPE_TYPE, Changes, Field

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

#: A window in which inputs of a few tokens do not fit.
SMALL_WINDOW = 3
_ACTIVATIONS = ("relu", "silu", "gelu_pytorch_tanh", "gelu")
#: Kinds of layers that differ in their attention mask alone.
_ATTENTION = ("full_attention", "sliding_attention", "chunked_attention")
#: Position up to which a scaled rotary embedding takes its model to be trained: inputs of a few tokens go beyond.
TRAINED = 4
_FACTOR = 4.0
_HIDDEN, _HEADS = ("hidden_size", "n_embd", "d_model"), ("num_attention_heads", "n_head", "n_heads", "num_heads")
_SHORT = 8
#: Names of factors that are neutral at 1. Attention is not among them: it is scaled by the size of a head anyway.
_FACTOR_NAMES = r"^(?!.*(attn|attention|temperature)).*(multiplier|scal(e|ing)|(scaling|rotary)_factor)$|^factor$"


def _default_left_out(field: Field) -> Sequence[Any]:
    """Return what most models compute with that do not read a field: what the class derives, or another number."""
    return (None, field.value * 2) if type(field.value) in (int, float) else (None,)


@dataclass(frozen=True)
class FieldKind:
    """What is done with the fields of one kind.

    Args:
        fits: Whether a field is of this kind.
        values: What it may be moved to, the most telling first; takes the field and the text of the reference.
        left_out: What a model computes with that does not read the field.
    """

    fits: Callable[[Field], bool]
    values: Callable[[Field, str], Sequence[Any]]
    left_out: Callable[[Field], Sequence[Any]] = _default_left_out


def kind_of(field: Field) -> FieldKind:
    """Return the first kind that a field is of."""
    return next(kind for kind in KINDS if kind.fits(field))


def values(field: Field, source: str) -> list[Any]:
    """Return what a field may be moved to, without what it is.

    Args:
        field: The field.
        source: Text of the reference, which names the words that a field may be.
    """
    found = {repr(value): value for value in kind_of(field).values(field, source)}
    found.pop(repr(field.value), None)
    return list(found.values())


def left_out(field: Field) -> Sequence[Any]:
    """Return what a model computes with that does not read a field; nothing where the field asks for nothing."""
    return () if field.value is None or field.value is False or field.is_rope else kind_of(field).left_out(field)


def _named(pattern: str, *types: type) -> Callable[[Field], bool]:
    """Return a test for fields by the last part of their name, and by the type of their value."""
    compiled = re.compile(pattern)

    def fits(field: Field) -> bool:
        return compiled.search(field.path[-1]) is not None and (not types or type(field.value) in types)

    return fits


def _of(*types: type) -> Callable[[Field], bool]:
    return _named("", *types)


def _list_of(*types: type) -> Callable[[Field], bool]:
    return lambda field: (
        isinstance(field.value, (list, tuple))
        and bool(field.value)
        and all(type(each) in types for each in field.value)
    )


def keeping_shapes(field: Field, value: Any) -> Changes:  # noqa: ANN401
    """Return what has to change with a size where ``heads * head_dim`` must stay the hidden size."""
    *parents, name = field.path
    hidden, heads = _size(field, _HIDDEN, 32), _size(field, _HEADS, 4)
    if not isinstance(value, int) or value < 1:
        return {}
    if name in _HIDDEN:
        return {(*parents, "head_dim"): value // heads}
    if name in _HEADS:
        return {(*parents, "head_dim"): hidden // value}
    return {(*parents, each): hidden // value for each in _HEADS if name == "head_dim" and each in field.beside}


def _size(field: Field, names: Sequence[str], default: int) -> int:
    return next((field.beside[name] for name in names if isinstance(field.beside.get(name), int)), default)


def _heads(field: Field) -> int:
    return _size(field, _HEADS, 4)


def _width_of_head(field: Field) -> int:
    return _size(field, ("head_dim",), _size(field, _HIDDEN, 32) // _heads(field))


def _ropes(field: Field, _: str) -> list[Any]:
    """Return all kinds of scaled rotary embeddings, each with what it needs, in the words of the field's version."""
    given: Mapping[str, Any] = field.value or {}
    trained = {"original_max_position_embeddings": TRAINED}
    half = int(_width_of_head(field) * (given.get("partial_rotary_factor") or 1.0)) // 2
    longer = {"short_factor": [1.5] * half, "long_factor": [2.0 + place for place in range(half)]}
    kinds: dict[str, dict[str, Any]] = {
        "linear": {"factor": _FACTOR},
        "dynamic": {"factor": _FACTOR, **trained},
        "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **trained},
        "yarn": {"factor": _FACTOR, **trained},
        "longrope": {**longer, **trained},
    }
    kept = {name: given[name] for name in ("rope_theta", "partial_rotary_factor") if name in given}
    word = next((name for name in ROPE_TYPE if name in given), ROPE_TYPE[0])
    return [{**kept, word: kind, **needs} for kind, needs in kinds.items() if given.get(word) != kind]


def _layer_types(field: Field, source: str) -> list[Any]:
    from transformers import configuration_utils

    value = list(field.value)
    named = getattr(configuration_utils, "ALLOWED_LAYER_TYPES", _ATTENTION)
    known = list(dict.fromkeys([*value, *(kind for kind in named if f'"{kind}"' in source)]))
    turns = [[known[(place + start) % len(known)] for place in range(len(value))] for start in range(len(known))]
    return [*turns, value[::-1], *([kind] * len(value) for kind in known)]


def _one_attention(field: Field) -> list[Any]:
    whole = [_ATTENTION[0]] * len(field.value)
    return [whole] if whole != list(field.value) else []


def _other_epsilons(field: Field) -> list[float]:
    return [value for value in (1e-5, 1e-6, 1e-12) if value != field.value]


def _words(field: Field, source: str) -> list[Any]:
    """Return the words that the source holds the field to."""
    name = re.escape(field.path[-1])
    near = re.findall(rf"\b{name}\b[^\n]{{0,40}}?(?:==|!=|\bin\b)\s*([\[(\"'{{][^\n:]*)", source)
    return [word for text in near for word in re.findall(r"[\"']([\w-]+)[\"']", text)][:3]


def _whole(field: Field, _: str) -> list[Any]:
    value = field.value
    tried = (value * 2, value + 1, value // 2) if value > _SHORT else (value + 1, value - 1, value * 2, value // 2)
    return [each for each in tried if each > 0 or value <= 0]


def _numbers(field: Field, _: str) -> list[Any]:
    value = field.value
    return [0.5, 2.0, 0.25] if value in (0.0, 1.0) else [value * 4, value / 4, value * 2, value / 2]


def _turned(value: Any) -> Any:  # noqa: ANN401 - lists in lists
    """Return nested lists with their words in the opposite order."""
    if not isinstance(value, (list, tuple)):
        return value
    return [_turned(each) for each in (value[::-1] if all(isinstance(each, str) for each in value) else value)]


def _anything(field: Field, _: str) -> list[Any]:
    return [SMALL_WINDOW, 2 * _width_of_head(field), 0.5, True]


def _activation(field: Field) -> bool:
    from transformers.activations import ACT2FN

    return isinstance(field.value, str) and field.value in ACT2FN


KINDS: tuple[FieldKind, ...] = (
    FieldKind(lambda field: field.is_rope, _ropes),
    FieldKind(_named(r"eps(ilon)?(_|$)", float), lambda *_: (0.1, 1e-6), _other_epsilons),
    FieldKind(_named(r"window_layers", int), lambda *_: (0, 1)),
    FieldKind(
        _named(r"window(?!_pattern)|attention_chunk_size|local_attention", int, type(None)),
        lambda *_: (SMALL_WINDOW, SMALL_WINDOW + 1),
    ),
    FieldKind(_named("window", list), lambda field, _: ([SMALL_WINDOW + 1] * len(field.value),)),
    FieldKind(_list_of(str), _layer_types, _one_attention),
    FieldKind(_named(r"max_position|n_positions", int), lambda field, _: (TRAINED, field.value * 2)),
    FieldKind(
        _named(r"(kv|key_value)_heads?|num_kv", int),
        lambda field, _: [n for n in (_heads(field) // 2, 1, _heads(field)) if n > 0],
    ),
    FieldKind(_named(r"cap(ping)?$|clip", float, int, type(None)), lambda *_: (0.5, 1.0), lambda _: (1e6,)),
    FieldKind(_named(r"limit", float, int, type(None)), lambda *_: (0.1, 1.0), lambda _: (1e6,)),
    FieldKind(_named(r"head_dim$", type(None)), lambda field, _: (2 * _width_of_head(field),)),
    FieldKind(_named(_FACTOR_NAMES, float), _numbers, lambda _: (1.0,)),
    FieldKind(_activation, lambda *_: _ACTIVATIONS),
    FieldKind(_of(bool), lambda field, _: (not field.value,)),
    FieldKind(_of(int), _whole),
    FieldKind(_of(float), _numbers),
    FieldKind(_of(str), _words),
    FieldKind(_list_of(bool), lambda field, _: ([not each for each in field.value],)),
    FieldKind(
        _list_of(int, float),
        lambda field, _: (list(field.value)[::-1], [1 - n if n in (0, 1) else n * 2 for n in field.value]),
    ),
    FieldKind(_of(list), lambda field, _: (_turned(field.value),)),
    FieldKind(_of(type(None)), _anything),
    FieldKind(lambda _: True, lambda *_: ()),
)
