"""Inputs that a model takes, made from its configuration and the names of its forward's parameters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.invariance.calls import model_traits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_BATCH, _LENGTH, _SAMPLES, _FRAMES = 2, 9, 1200, 40
#: Ids below this are left out if the vocabulary is large enough: they are often special tokens.
_FIRST_ID = 5
#: Endings of configuration entries that hold the ids of special tokens.
_SPECIAL = ("_token_id", "_token_index", "_token_ids")


def default_inputs(model: torch.nn.Module, length: int = _LENGTH) -> dict[str, Any]:
    """Return inputs of a seeded batch of two: as many of those that the model takes as it runs with.

    Text has ``length`` tokens in a row.

    Raises:
        ValueError: If the model names none of the inputs that are known here, or runs with none of these.
    """
    problem = "its forward takes none of " + ", ".join(_MAKERS)
    for names in _choices(model):
        made = {name: _MAKERS[name](model, length) for name in names}
        try:
            with torch.no_grad():
                model(**made)
        except Exception as error:  # noqa: BLE001 - every model refuses in its own way
            problem = f"{type(error).__name__}: {error}"
        else:
            return made
    raise ValueError(f"No inputs could be made for {type(model).__name__} ({problem}).\nGive inputs=.")


def _choices(model: torch.nn.Module) -> Iterator[tuple[str, ...]]:
    """Yield names of inputs to try: all that the forward takes, then those of one kind, then fewer."""
    taken = [name for name in _MAKERS if name in model_traits.parameters(model)]
    if not model_traits.setting(model, "is_encoder_decoder"):
        taken = [name for name in taken if not name.startswith("decoder_")]
    text = [name for name in taken if name in _TEXT]
    main = getattr(model, "main_input_name", "")
    for names in (taken, text, [main] if main in _MAKERS else []):
        if names:
            yield tuple(names)


def _ids(model: torch.nn.Module, length: int) -> torch.Tensor:
    size = model_traits.vocabulary(model)
    special = special_ids(getattr(model_traits.unwrapped(model), "config", None))
    plain = [token for token in range(min(_FIRST_ID, size - 1), min(size, 1000)) if token not in special]
    return torch.tensor(plain or [size - 1])[torch.randint(len(plain) or 1, (_BATCH, length), generator=_generator())]


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
    config: Any = model_traits.unwrapped(model).config
    vision = getattr(config, "vision_config", config)
    size = getattr(vision, "image_size", None) or 32
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    return _numbers(_BATCH, getattr(vision, "num_channels", 3), height, width)


def _features(model: torch.nn.Module, _: int) -> torch.Tensor:
    bins = model_traits.setting(model, "num_mel_bins")
    longest = model_traits.setting(model, "max_source_positions")
    if bins and longest and not model_traits.setting(model, "input_feat_per_channel"):  # Whisper's length is fixed
        return _numbers(_BATCH, bins, 2 * longest)
    return _numbers(_BATCH, _FRAMES, model_traits.setting(model, "input_feat_per_channel") or bins or 80)


def _numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=_generator())


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


_MAKERS: Mapping[str, Callable[[torch.nn.Module, int], torch.Tensor]] = {
    "input_ids": _ids,
    "attention_mask": lambda _, length: torch.ones(_BATCH, length, dtype=torch.int64),
    "decoder_input_ids": lambda model, length: _ids(model, length * 2 // 3),
    "pixel_values": _pixels,
    "input_features": _features,
    "input_values": lambda *_: _numbers(_BATCH, _SAMPLES),
}
_TEXT = ("input_ids", "attention_mask", "decoder_input_ids")
