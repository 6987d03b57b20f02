"""The registry of variants: what a field may be moved to, by its name and by the type of its value."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_tfdebug.sweeping.config import ROPE_TYPE, Changes, Field

if TYPE_CHECKING:
    from collections.abc import Mapping

Values = Callable[[Field], Sequence[Any]]

#: A window in which inputs of a few tokens do not fit, and positions beyond which they go.
SMALL_WINDOW, TRAINED = 3, 4
_FACTOR, _SHORT = 4.0, 8
#: Kinds of layers that differ in their attention mask alone.
_ATTENTION = ("full_attention", "sliding_attention", "chunked_attention")
_HIDDEN, _HEADS = ("hidden_size", "n_embd", "d_model"), ("num_attention_heads", "n_head", "n_heads", "num_heads")


def values(field: Field) -> list[Any]:
    """Return what a field may be moved to, without what it is."""
    found = {repr(value): value for value in _kind_of(field).values(field)}
    found.pop(repr(field.value), None)
    return list(found.values())


def left_out(field: Field) -> Sequence[Any]:
    """Return what a model computes with that does not read a field; nothing where the field asks for nothing."""
    is_asked_for = field.value is not None and field.value is not False and not field.is_rope
    return _kind_of(field).left_out(field) if is_asked_for else ()


def _kind_of(field: Field) -> _FieldKind:
    """Return the row of the registry that is about a field."""
    from transformers.activations import ACT2FN

    kind, value = type(field.value).__name__, field.value
    if field.is_rope:
        kind = "rope"
    elif isinstance(value, (list, tuple)):
        kind = f"list of {' '.join(sorted({type(each).__name__ for each in value}))}"
    elif isinstance(value, str) and value in ACT2FN:
        kind = "activation"
    return next(row for row in _KINDS if re.fullmatch(row.type, kind) and re.search(row.name, field.path[-1]))


def keeping_shapes(field: Field, value: Any) -> Changes:  # noqa: ANN401
    """Return what has to change with a size where ``heads * head_dim`` must stay the hidden size."""
    *parents, name = field.path
    if not isinstance(value, int) or value < 1:
        return {}
    if name in _HIDDEN:
        return {(*parents, "head_dim"): value // _size(field, _HEADS, 4)}
    hidden = _size(field, _HIDDEN, 32)
    if name in _HEADS:
        return {(*parents, "head_dim"): hidden // value}
    return {(*parents, each): hidden // value for each in _HEADS if name == "head_dim" and each in field.beside}


def _size(field: Field, names: Sequence[str], default: int) -> int:
    return next((field.beside[name] for name in names if isinstance(field.beside.get(name), int)), default)


def _width_of_head(field: Field) -> int:
    return _size(field, ("head_dim",), _size(field, _HIDDEN, 32) // _size(field, _HEADS, 4))


def _ropes(field: Field) -> list[Any]:
    """Return all kinds of scaled rotary embeddings, each with what it needs, in the words of the field's version."""
    given: Mapping[str, Any] = field.value or {}
    trained = {"original_max_position_embeddings": TRAINED}
    half = int(_width_of_head(field) * (given.get("partial_rotary_factor") or 1.0)) // 2
    kinds: dict[str, dict[str, Any]] = {
        "linear": {"factor": _FACTOR},
        "dynamic": {"factor": _FACTOR, **trained},
        "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **trained},
        "yarn": {"factor": _FACTOR, **trained},
        "longrope": {"short_factor": [1.5] * half, "long_factor": [2.0 + at for at in range(half)], **trained},
    }
    kept = {name: given[name] for name in ("rope_theta", "partial_rotary_factor") if name in given}
    word = next((name for name in ROPE_TYPE if name in given), ROPE_TYPE[0])
    return [{**kept, word: kind, **needs} for kind, needs in kinds.items() if given.get(word) != kind]


def _layer_types(field: Field) -> list[Any]:
    from transformers import configuration_utils

    value = list(field.value)
    named = getattr(configuration_utils, "ALLOWED_LAYER_TYPES", _ATTENTION)
    known = list(dict.fromkeys([*value, *(kind for kind in named if f'"{kind}"' in field.source)]))
    return [[known[(place + start) % len(known)] for place in range(len(value))] for start in range(len(known))]


def _derived_or_twice(field: Field) -> Sequence[Any]:
    """Return what most models compute with that do not read a field: what the class derives, or another number."""
    return (None, field.value * 2) if type(field.value) in (int, float) else (None,)


def _whole(field: Field) -> list[Any]:
    value = field.value
    tried = (value * 2, value + 1, value // 2) if value > _SHORT else (value + 1, value - 1, value * 2, value // 2)
    return [each for each in tried if each > 0 or value <= 0]


def _fractions(field: Field) -> list[Any]:
    value = field.value
    return [0.5, 2.0, 0.25] if value in (0.0, 1.0) else [value * 4, value / 4, value * 2, value / 2]


def _turned(value: Any) -> Any:  # noqa: ANN401 - lists in lists
    """Return nested lists with their words in the opposite order."""
    if not isinstance(value, (list, tuple)):
        return value
    return [_turned(each) for each in (value[::-1] if all(isinstance(each, str) for each in value) else value)]


class _FieldKind(NamedTuple):
    """A row of the registry: what is done with the fields of a name and a type, both regular expressions."""

    name: str
    type: str
    values: Values  # what it may be moved to, the most telling first
    left_out: Values = _derived_or_twice  # what a model computes with that does not read the field


def _fixed(*values: Any) -> Values:  # noqa: ANN401
    return lambda _: values


def _but_its_own(*values: Any) -> Values:  # noqa: ANN401
    return lambda field: [value for value in values if value != field.value]


#: The first row that fits holds.
_KINDS = (
    _FieldKind("", "rope", _ropes),
    _FieldKind(r"eps(ilon)?(_|$)", "float", _fixed(0.1, 1e-6), _but_its_own(1e-5, 1e-6, 1e-12)),
    _FieldKind("window_layers", "int", _fixed(0, 1)),
    _FieldKind(
        "window(?!_pattern)|attention_chunk_size|local_attention",
        "int|NoneType",
        _fixed(SMALL_WINDOW, SMALL_WINDOW + 1),
    ),
    _FieldKind("", "list of str", _layer_types, lambda field: _but_its_own([_ATTENTION[0]] * len(field.value))(field)),
    _FieldKind("max_position|n_positions", "int", lambda field: (TRAINED, field.value * 2)),
    _FieldKind("cap(ping)?$|clip", "float|int|NoneType", _fixed(0.5, 1.0), _fixed(1e6)),
    _FieldKind("limit", "float|int|NoneType", _fixed(0.1, 1.0), _fixed(1e6)),
    # factors are neutral at 1, but for those of attention, which is scaled by the size of a head anyway
    _FieldKind(
        r"^(?!.*(attn|attention|temperature)).*(multiplier|scal(e|ing)|(scaling|rotary)_factor)$|^factor$",
        "float",
        _fractions,
        _fixed(1.0),
    ),
    _FieldKind("", "activation", _fixed("relu", "silu", "gelu_pytorch_tanh", "gelu")),
    _FieldKind("", "bool", lambda field: (not field.value,)),
    _FieldKind("", "int", _whole),
    _FieldKind("", "float", _fractions),
    _FieldKind(
        "",
        "list of (float|int|float int)",
        lambda field: (list(field.value)[::-1], [1 - n if n in (0, 1) else n * 2 for n in field.value]),
    ),
    _FieldKind("", "list of .*", lambda field: (_turned(field.value),)),
    _FieldKind("", "NoneType", lambda field: (SMALL_WINDOW, 2 * _width_of_head(field), 0.5, True)),
    _FieldKind("", ".*", _fixed()),
)
