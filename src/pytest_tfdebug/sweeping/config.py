"""A configuration: its fields, with some of them changed, and made small enough to run in a second."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.errors import TFDebugError

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

#: Small sizes, and the entries that have them; the vocabulary stays, since special tokens are at its end.
_SIZES = {
    1: "n_group topk_group",
    2: "num_hidden_layers n_layer num_layers encoder_layers decoder_layers depth "
    "num_key_value_heads num_experts_per_tok",
    4: "num_attention_heads n_head num_heads encoder_attention_heads decoder_attention_heads "
    "n_routed_experts num_experts num_local_experts",
    8: "head_dim d_kv qk_rope_head_dim qk_nope_head_dim v_head_dim rotary_dim "
    "kv_lora_rank q_lora_rank moe_intermediate_size state_size",
    32: "hidden_size d_model n_embd embedding_size embed_dim projection_dim",
    64: "intermediate_size d_ff ffn_dim encoder_ffn_dim decoder_ffn_dim n_inner",
}
#: Entries with one item for each layer.
_BY_LAYER = ("layer_types", "mlp_layer_types", "layers_block_type")
#: A model with at most this many parameters is run as it is configured.
_SMALL = 20_000_000


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


def fields(data: Mapping[str, Any], source: str = "", path: tuple[str, ...] = ()) -> Iterator[Field]:
    """Yield the fields of a configuration's dict, and of the configurations inside it."""
    for name, value in data.items():
        if not isinstance(name, str) or _NOT_SWEPT.fullmatch(name) or (is_rope_dict(data) and name in ROPE_TYPE):
            continue
        has_more = isinstance(value, Mapping) and value
        if not has_more or is_rope_dict(value):
            yield Field((*path, name), value, data, source)
        if has_more:
            yield from fields(value, source, (*path, name))


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


def small(model_class: Any, config: Any) -> Any:  # noqa: ANN401 - classes of transformers
    """Return the configuration, or the first of smaller ones that a model can be built from.

    Raises:
        TFDebugError: If none of the smaller ones gives a model.
    """
    if _makes_small(model_class, config):
        return config
    told = f"more than {_SMALL:,} parameters at small sizes"
    for without in ("", "head_dim"):  # which some architectures derive
        try:
            smaller = type(config).from_dict(_shrunk(config.to_dict(), without))
            if _makes_small(model_class, smaller):
                return smaller
        except Exception as error:  # noqa: BLE001, PERF203 - every architecture refuses in its own way
            told = f"{type(error).__name__}: {error}"
    raise TFDebugError(
        f"No small {model_class.__name__} could be built ({told}).\n"
        "Give a small configuration: hidden_size=32, two layers."
    )


def is_small(model: torch.nn.Module) -> bool:
    """Tell whether a model is small enough to be run again and again."""
    return sum(parameter.numel() for parameter in model.parameters()) <= _SMALL


def _makes_small(model_class: Any, config: Any) -> bool:  # noqa: ANN401
    with torch.device("meta"):
        return is_small(model_class(config))


def _shrunk(entries: dict[str, Any], without: str) -> dict[str, Any]:
    made = {name: None if name == without else value for name, value in entries.items()}
    for name, value in made.items():
        if isinstance(value, dict) and name.endswith("_config"):
            made[name] = _shrunk(value, without)
        elif name in _BY_LAYER and isinstance(value, list) and value:
            made[name] = [value[0], value[-1]]
        elif isinstance(value, int):
            made[name] = min([value, *(size for size, names in _SIZES.items() if name in names.split())])
    return made
