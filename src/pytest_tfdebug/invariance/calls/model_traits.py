"""What a model says of itself: its pad token, its positions, whether it decodes, which inputs it takes.

By that and the names of its forward's parameters, inputs are made for a model that comes without (default inputs).
"""

from __future__ import annotations

import re
import sys
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import torch

from pytest_tfdebug.module_path import last_part
from pytest_tfdebug.tracing.record import signatures
from pytest_tfdebug.tracing.record.modules import bare
from pytest_tfdebug.tracing.values.index_range import indices_checked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


#: Names of position tables (``position_embeddings``, ``embed_positions``, ``wpe``); T5's relative bias is not one.
_POSITION_TABLE = re.compile(r"^(?!.*relative).*(?:position|pos_emb|^wpe$)")
#: Configuration entries that bound the length of a sequence, by its kind.
_LIMITS = {
    "encoder": ("max_position_embeddings", "n_positions", "max_source_positions"),
    "decoder": ("max_target_positions", "max_position_embeddings", "n_positions"),
}
_AUTO = "transformers.models.auto.modeling_auto"


def kind_of(model: torch.nn.Module) -> type:
    """Return the class of a model, that in its wrappers."""
    return cast("type", type(bare(model)))


def accepted(model: torch.nn.Module) -> tuple[str, ...]:
    """Return the names that a forward takes, and those that it hands on to a base class's with ``**kwargs``."""
    names: dict[str, None] = {}
    for kind in kind_of(model).__mro__:
        if "forward" in vars(kind) and kind is not torch.nn.Module:
            names |= dict.fromkeys(signatures.named_parameters(kind))
            if not signatures.collects_keywords(kind):
                break
    return tuple(names)


def setting(model: torch.nn.Module, name: str) -> Any:  # noqa: ANN401 - a configuration entry is of any kind
    """Return an entry of a model's configuration, its text part included; None where there is none."""
    config = getattr(bare(model), "config", None)
    value = getattr(config, name, None)
    if value is None and config is not None and hasattr(config, "get_text_config"):
        value = getattr(config.get_text_config(), name, None)
    return value


def pad_token(model: torch.nn.Module) -> int:
    """Return the id of the pad token, 0 where the configuration names none."""
    token = setting(model, "pad_token_id")
    return int(token) if isinstance(token, int) and token >= 0 else 0


def distinct_pad_token(model: torch.nn.Module) -> int | None:
    """Return the pad token when it can stand for nothing else: configured, and not also the end or start token."""
    token = setting(model, "pad_token_id")
    ends = setting(model, "eos_token_id")
    ends = ends if isinstance(ends, (list, tuple)) else [ends]
    taken = isinstance(token, int) and token >= 0 and token not in (*ends, setting(model, "bos_token_id"))
    return int(token) if taken else None


def vocabulary(model: torch.nn.Module) -> int:
    """Return the number of token ids, 2 where it cannot be known."""
    size = setting(model, "vocab_size")
    if isinstance(size, int):
        return size
    tables = [module for module in model.modules() if isinstance(module, torch.nn.Embedding)]
    return max((table.num_embeddings for table in tables), default=2)


def decodes(model: torch.nn.Module) -> bool | None:
    """Tell whether a model, or the family of its architecture, decodes: such models are padded on the left in use.

    It generates, or it has causal attention, or its architecture has a causal or sequence-to-sequence head and no
    masked-language one (``LlamaModel``, ``MambaModel``, ``T5EncoderModel``). None where that is not known: only
    transformers' own classes say of themselves that they do not decode.
    """
    model = bare(model)
    can_generate = getattr(type(model), "can_generate", None)
    if (callable(can_generate) and can_generate()) or is_causal(model):
        return True
    auto, kind = sys.modules.get(_AUTO), setting(model, "model_type")
    if auto is not None and kind is not None and kind not in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES:
        heads = (auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES)
        if any(kind in names for names in heads):
            return True
    return False if type(model).__module__.startswith("transformers.") else None


def is_causal(model: torch.nn.Module) -> bool:
    """Tell whether a module of a model says that it attends to earlier tokens alone."""
    return any(getattr(module, "is_causal", False) is True for module in model.modules())


def is_position_table(path: str) -> bool:
    """Tell whether a module path names a table of absolute positions."""
    return bool(_POSITION_TABLE.search(last_part(path)))


def position_tables(model: torch.nn.Module) -> list[tuple[str, torch.nn.Embedding]]:
    """Return the learned tables of absolute positions, by module path."""
    return [
        (path, module)
        for path, module in bare(model).named_modules()
        if isinstance(module, torch.nn.Embedding) and is_position_table(path)
    ]


def has_absolute_positions(model: torch.nn.Module) -> bool:
    """Tell whether a model counts positions from the left: by a table, or by sinusoids that know of no pad token."""
    return bool(position_tables(model)) or any(
        is_position_table(path) and "Sinusoidal" in type(module).__name__ and not hasattr(module, "padding_idx")
        for path, module in bare(model).named_modules()
    )


def position_limit(model: torch.nn.Module, sequence: str) -> int | None:
    """Return the greatest length of a sequence, in tokens; None where nothing bounds it."""
    for name in _LIMITS.get(sequence, ()):
        value = setting(model, name)
        if isinstance(value, int) and value > 0:
            return value - reserved_positions(model)
    return None


def reserved_positions(model: torch.nn.Module) -> int:
    """Return how many entries a position table keeps for pads: ``padding_idx + 1`` in RoBERTa, 0 in most."""
    reserved = [table.padding_idx + 1 for _, table in position_tables(model) if table.padding_idx is not None]
    return max(reserved, default=0)


def is_pretrained(model: torch.nn.Module) -> bool:
    """Tell whether a model is one of transformers', without importing transformers."""
    return any(base.__name__ == "PreTrainedModel" for base in kind_of(model).__mro__)


def shifts_labels(model: torch.nn.Module) -> bool:
    """Tell whether the loss compares each token's label with the prediction of the token before it."""
    kind = getattr(bare(model), "loss_type", None) or kind_of(model).__name__
    return bool(re.search(r"CausalLM|LMHeadModel|ForConditionalGeneration", str(kind)))


_BATCH, _LENGTH, _SAMPLES, _FRAMES = 2, 9, 1200, 40
#: Ids below this are left out if the vocabulary is large enough: they are often special tokens.
_FIRST_ID = 5
#: Endings of configuration entries that hold the ids of special tokens.
_SPECIAL = ("_token_id", "_token_index", "_token_ids")


def default_inputs(
    model: torch.nn.Module,
    length: int = _LENGTH,
    *,
    names: Mapping[str, str] = MappingProxyType({}),
    given: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return inputs of a seeded batch of two: as many of those that the model takes as it runs with.

    Args:
        model: The model.
        length: Tokens in a row of text.
        names: What transformers calls the inputs of a forward that has names of its own.
        given: Inputs that are not made, by the forward's names.

    Raises:
        ValueError: If the model names none of the inputs that are known here, or runs with none of these.
    """
    problem = "its forward takes none of " + ", ".join(_MAKERS)
    own = {known: name for name, known in names.items()}
    for chosen in _choices(model, names):
        made = {**{own.get(name, name): _MAKERS[name](model, length) for name in chosen}, **given}
        try:
            with torch.no_grad(), indices_checked(model):
                model(**made)
        except Exception as error:  # noqa: BLE001 - every model refuses in its own way
            problem = f"{type(error).__name__}: {error}"
        else:
            return made
    raise ValueError(f"No inputs could be made for {type(model).__name__} ({problem}).\nGive inputs=.")


def _choices(model: torch.nn.Module, names: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    """Yield names of inputs to try: all that the forward takes, then those of one kind, then fewer."""
    known = [names.get(name, name) for name in signatures.named_parameters(kind_of(model))]
    taken = [name for name in _MAKERS if name in known]
    if not setting(model, "is_encoder_decoder"):
        taken = [name for name in taken if not name.startswith("decoder_") or name in names.values()]
    text = [name for name in taken if name in _TEXT]
    main = getattr(model, "main_input_name", "")
    for chosen in (taken, text, [main] if main in _MAKERS else []):
        if chosen:
            yield tuple(chosen)


def _ids(model: torch.nn.Module, length: int) -> torch.Tensor:
    size = vocabulary(model)
    special = special_ids(getattr(bare(model), "config", None))
    plain = [token for token in range(min(_FIRST_ID, size - 1), min(size, 1000)) if token not in special]
    generator = torch.Generator().manual_seed(0)
    return torch.tensor(plain or [size - 1])[torch.randint(len(plain) or 1, (_BATCH, length), generator=generator)]


def special_ids(config: Any, of: re.Pattern[str] = re.compile("")) -> set[int]:  # noqa: ANN401 - a configuration
    """Return the ids of special tokens that a configuration, or one inside it, names in entries that ``of`` finds."""
    found: set[int] = set()
    for name, value in vars(config).items() if hasattr(config, "__dict__") else ():
        if name.endswith(_SPECIAL) and of.search(name):
            found |= {item for item in (value if isinstance(value, list) else [value]) if isinstance(item, int)}
        elif name.endswith("config") and hasattr(value, "to_dict"):
            found |= special_ids(value, of)
    return found


def _pixels(model: torch.nn.Module, _: int) -> torch.Tensor:
    config: Any = bare(model).config
    vision = getattr(config, "vision_config", config)
    size = getattr(vision, "image_size", None) or 32
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    return _numbers(_BATCH, getattr(vision, "num_channels", 3), height, width)


def _features(model: torch.nn.Module, _: int) -> torch.Tensor:
    bins = setting(model, "num_mel_bins")
    longest = setting(model, "max_source_positions")
    if bins and longest and not setting(model, "input_feat_per_channel"):  # Whisper's length is fixed
        return _numbers(_BATCH, bins, 2 * longest)
    return _numbers(_BATCH, _FRAMES, setting(model, "input_feat_per_channel") or bins or 80)


def _numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


_MAKERS: Mapping[str, Callable[[torch.nn.Module, int], torch.Tensor]] = {
    "input_ids": _ids,
    "attention_mask": lambda _, length: torch.ones(_BATCH, length, dtype=torch.int64),
    "decoder_input_ids": lambda model, length: _ids(model, length * 2 // 3),
    "pixel_values": _pixels,
    "input_features": _features,
    "input_values": lambda *_: _numbers(_BATCH, _SAMPLES),
}
_TEXT = ("input_ids", "attention_mask", "decoder_input_ids")
