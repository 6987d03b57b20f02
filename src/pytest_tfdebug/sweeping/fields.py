"""The fields of a configuration: what each may be moved to, by its name and by the type of its value."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Path of a field in ``config.to_dict()`` -> its value.
Changes = dict[tuple[str, ...], Any]

#: Names of dicts that hold what rotary embeddings need: transformers 4 and 5.
_ROPE = ("rope_scaling", "rope_parameters")
#: Where such a dict names its kind: transformers 4.43 and later, and before.
_ROPE_TYPE = ("rope_type", "type")
#: Fields that no forward without labels in eval mode reads, or that change what the inputs mean.
_NOT_SWEPT = re.compile(
    r"_.*|architectures|auto_map|model_type|transformers_version|d?type|torch_dtype|name_or_path|return_dict|output_.*|"
    r"id2label|label2id|num_labels|problem_type|finetuning_task|task_specific_params|classifier_.*|summary_.*|"
    r"use_cache|is_encoder_decoder|is_decoder|add_cross_attention|cross_attention_hidden_size|"
    r".*token_(id|ids|index)|.*vocab_size(_.*)?|initializer.*|.*init(_std|_range|_method|_scale)?|.*(dropout|drop).*|"
    r".*_pdrop|.*loss.*|.*jitter.*|.*noise.*|gradient_checkpointing|chunk_size_feed_forward|pretraining_tp|"
    r".*quantization.*|tokenizer_class|mask_(time|feature)_.*|apply_spec_augment|_?attn_implementation.*"
)
#: A window in which inputs of a few tokens do not fit, and positions beyond which they go.
_WINDOW, _TRAINED = 3, 4
_FACTOR, _SHORT = 4.0, 8
#: Kinds of layers that differ in their attention mask alone.
_ATTENTION = ("full_attention", "sliding_attention", "chunked_attention")
_HIDDEN, _HEADS = ("hidden_size", "n_embd", "d_model"), ("num_attention_heads", "n_head", "num_heads")


@dataclass(frozen=True, eq=False)
class Field:
    """One field of a configuration."""

    path: tuple[str, ...]  # in ``config.to_dict()``
    value: Any
    beside: Mapping[str, Any]  # the dict that holds it

    @property
    def is_rope(self) -> bool:
        """Whether this is the kind of a rotary embedding, which moves with all that this kind needs."""
        return _is_rope_dict(self.value) or (self.value is None and self.path[-1] in _ROPE)

    @property
    def name(self) -> str:
        """The name under which a person knows it: without the dict that holds rotary parameters."""
        named = [part for part in self.path if part not in _ROPE]
        return ".".join([*named, _ROPE_TYPE[0]] if self.is_rope else named)

    def values(self) -> list[Any]:
        """Return what the field may be moved to, without what it is."""
        found = {repr(value): value for value in self._kind.values(self)}
        found.pop(repr(self.value), None)
        return list(found.values())

    def left_out(self) -> Sequence[Any]:
        """Return what a model computes with that does not read the field; nothing where it asks for nothing."""
        is_asked_for = self.value is not None and self.value is not False and not self.is_rope
        return self._kind.left_out(self) if is_asked_for else ()

    def keeping_shapes(self, value: Any) -> Changes:  # noqa: ANN401
        """Return what has to change with a size where ``heads * head_dim`` must stay the hidden size."""
        *parents, name = self.path
        if type(value) is not int or value < 1:
            return {}
        if name in _HIDDEN:
            return {(*parents, "head_dim"): value // self.size(_HEADS, 4)}
        hidden = self.size(_HIDDEN, 32)
        if name in _HEADS:
            return {(*parents, "head_dim"): hidden // value}
        return {(*parents, each): hidden // value for each in _HEADS if name == "head_dim" and each in self.beside}

    def size(self, names: Sequence[str], default: int) -> int:
        """Return a size that stands beside this field, under the first of its names."""
        return next((self.beside[name] for name in names if isinstance(self.beside.get(name), int)), default)

    @property
    def _kind(self) -> _FieldKind:
        """The row of the registry that is about this field."""
        from transformers.activations import ACT2FN

        kind, value = type(self.value).__name__, self.value
        if self.is_rope:
            kind = "rope"
        elif isinstance(value, (list, tuple)):
            kind = f"list of {' '.join(sorted({type(each).__name__ for each in value}))}"
        elif isinstance(value, str) and value in ACT2FN:
            kind = "activation"
        return next(row for row in _KINDS if re.fullmatch(row.type, kind) and re.search(row.name, self.path[-1]))


def fields(data: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[Field]:
    """Yield the fields of a configuration's dict, and of the configurations inside it."""
    for name, value in data.items():
        if not isinstance(name, str) or _NOT_SWEPT.fullmatch(name) or (_is_rope_dict(data) and name in _ROPE_TYPE):
            continue
        has_more = isinstance(value, Mapping) and value
        if not has_more or _is_rope_dict(value):
            yield Field((*path, name), value, data)
        if has_more:
            yield from fields(value, (*path, name))


def _is_rope_dict(value: object) -> bool:
    """Tell whether a value is the parameters of one rotary embedding."""
    return isinstance(value, Mapping) and any(isinstance(value.get(name), str) for name in _ROPE_TYPE)


def plain(value: Any) -> Any:  # noqa: ANN401 - of a configuration
    """Return a value as a person reads it: a rotary embedding by its kind."""
    return next((value[name] for name in _ROPE_TYPE if name in value), value) if isinstance(value, dict) else value


def changed(config: Any, changes: Changes, without: tuple[str, ...] = ()) -> Any:  # noqa: ANN401
    """Return a configuration with some fields changed, and others left out, so that the class derives them anew."""
    data = config.to_dict()  # a copy
    for name in without:
        data.pop(name, None)
    for (*parents, last), value in changes.items():
        inside = data
        for parent in parents:
            inside = inside[parent]
        inside[last] = copy.deepcopy(value)
    made = type(config).from_dict(data)
    chosen = getattr(config, "_attn_implementation", None)  # to_dict leaves it out
    if chosen is not None:
        made._attn_implementation = chosen  # noqa: SLF001 - transformers has no other name for it
    return made


def _width_of_head(field: Field) -> int:
    return field.size(("head_dim",), field.size(_HIDDEN, 32) // field.size(_HEADS, 4))


def _ropes(field: Field) -> list[Any]:
    """Return all kinds of scaled rotary embeddings, each with what it needs, in the words of the field's version."""
    given: Mapping[str, Any] = field.value or {}
    trained = {"original_max_position_embeddings": _TRAINED}
    half = int(_width_of_head(field) * (given.get("partial_rotary_factor") or 1.0)) // 2
    kinds: dict[str, dict[str, Any]] = {
        "linear": {"factor": _FACTOR},
        "dynamic": {"factor": _FACTOR, **trained},
        "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **trained},
        "yarn": {"factor": _FACTOR, **trained},
        "longrope": {"short_factor": [1.5] * half, "long_factor": [2.0 + at for at in range(half)], **trained},
    }
    kept = {name: given[name] for name in ("rope_theta", "partial_rotary_factor") if name in given}
    word = next((name for name in _ROPE_TYPE if name in given), _ROPE_TYPE[0])
    return [{**kept, word: kind, **needs} for kind, needs in kinds.items() if given.get(word) != kind]


def _layer_types(field: Field) -> list[Any]:
    """Return the kinds of layers in other places; of layers of one kind the last one of each other kind."""
    from transformers import configuration_utils

    value = list(field.value)
    if len(set(value)) > 1:
        return [[*value[start:], *value[:start]] for start in range(1, len(value))]
    return [[*value[:-1], kind] for kind in getattr(configuration_utils, "ALLOWED_LAYER_TYPES", _ATTENTION)]


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


_Values = Callable[[Field], Sequence[Any]]


class _FieldKind(NamedTuple):
    """A row of the registry: what is done with the fields of a name and a type, both regular expressions."""

    name: str
    type: str
    values: _Values  # what it may be moved to, the most telling first
    left_out: _Values = _derived_or_twice  # what a model computes with that does not read the field


def _fixed(*values: Any) -> _Values:  # noqa: ANN401
    return lambda _: values


def _but_its_own(*values: Any) -> _Values:  # noqa: ANN401
    return lambda field: [value for value in values if value != field.value]


#: The first row that fits holds.
_KINDS = (
    _FieldKind("", "rope", _ropes),
    _FieldKind(r"eps(ilon)?(_|$)", "float", _fixed(0.1, 1e-6), _but_its_own(1e-5, 1e-6, 1e-12)),
    _FieldKind("window_layers", "int", _fixed(0, 1)),
    _FieldKind("window(?!_pattern)|attention_chunk_size|local_attention", "int|NoneType", _fixed(_WINDOW, _WINDOW + 1)),
    _FieldKind("", "list of str", _layer_types, lambda field: _but_its_own([_ATTENTION[0]] * len(field.value))(field)),
    _FieldKind("max_position|n_positions", "int", lambda field: (_TRAINED, field.value * 2)),
    _FieldKind("cap(ping)?$|clip", "float|int|NoneType", _fixed(0.5, 1.0), _fixed(1e6)),
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
    _FieldKind("", "NoneType", lambda field: (_WINDOW, 2 * _width_of_head(field), 0.5, True)),
    _FieldKind("", ".*", _fixed()),
)
