"""The fields of a configuration, and a configuration in which some of them are changed."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Path of a field in ``config.to_dict()`` -> its value.
Changes = dict[tuple[str, ...], Any]

#: Names of dicts that hold what rotary embeddings need: transformers 4 and 5.
ROPE = ("rope_scaling", "rope_parameters")
#: Where such a dict names its kind: transformers 4.43 and later, and before.
ROPE_TYPE = ("rope_type", "type")
#: Fields that no forward without labels in eval mode reads, or that change what the inputs mean.
_NOT_SWEPT = re.compile(
    r"_.*|architectures|auto_map|model_type|transformers_version|d?type|torch_dtype|name_or_path|return_dict|output_.*|"
    r"id2label|label2id|num_labels|problem_type|finetuning_task|task_specific_params|classifier_.*|summary_.*|"
    r"use_cache|is_encoder_decoder|is_decoder|add_cross_attention|cross_attention_hidden_size|"
    r".*token_(id|ids|index)|.*vocab_size(_.*)?|initializer.*|.*init(_std|_range|_method|_scale)?|.*(dropout|drop).*|"
    r".*_pdrop|.*loss.*|.*jitter.*|.*noise.*|gradient_checkpointing|chunk_size_feed_forward|pretraining_tp|"
    r".*quantization.*|tokenizer_class|mask_(time|feature)_.*|apply_spec_augment|_?attn_implementation.*"
)


@dataclass(frozen=True, eq=False)
class Field:
    """One field of a configuration."""

    path: tuple[str, ...]  # in ``config.to_dict()``
    value: Any
    beside: Mapping[str, Any]  # the dict that holds it
    source: str = ""  # text of the reference, which says what words a field may be

    @property
    def is_rope(self) -> bool:
        """Whether this is the kind of a rotary embedding, which moves with all that this kind needs."""
        return is_rope_dict(self.value) or (self.value is None and self.path[-1] in ROPE)

    @property
    def name(self) -> str:
        """The name under which a person knows it: without the dict that holds rotary parameters."""
        named = [part for part in self.path if part not in ROPE]
        return ".".join([*named, ROPE_TYPE[0]] if self.is_rope else named)


def is_rope_dict(value: object) -> bool:
    """Tell whether a value is the parameters of one rotary embedding."""
    return isinstance(value, Mapping) and any(isinstance(value.get(name), str) for name in ROPE_TYPE)


def plain(value: Any) -> Any:  # noqa: ANN401 - of a configuration
    """Return a value as a person reads it: a rotary embedding by its kind."""
    return next((value[name] for name in ROPE_TYPE if name in value), value) if isinstance(value, dict) else value


def fields(config: Any, source: str = "") -> Iterator[Field]:  # noqa: ANN401 - a configuration of transformers
    """Yield the fields of a configuration, and of the configurations inside it."""
    yield from _walk(config.to_dict(), (), source)


def _walk(data: Mapping[str, Any], path: tuple[str, ...], source: str) -> Iterator[Field]:
    for name, value in data.items():
        if not isinstance(name, str) or _NOT_SWEPT.fullmatch(name) or (is_rope_dict(data) and name in ROPE_TYPE):
            continue
        has_more = isinstance(value, Mapping) and value
        if not has_more or is_rope_dict(value):
            yield Field((*path, name), value, data, source)
        if has_more:
            yield from _walk(value, (*path, name), source)


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
    chosen = getattr(config, "_attn_implementation", None)
    if chosen is not None:
        made._attn_implementation = chosen  # noqa: SLF001 - to_dict leaves it out
    return made
