"""Know a mask by its name: that of an input, a parameter, a module or a class."""

from __future__ import annotations

import re
from functools import lru_cache

#: A name that ends in mask: ``bert_for_masked_lm`` and ``mask_features`` are no masks.
_MASK = re.compile(r"(attention|attn|padding|causal)_?mask(?![a-z])|(masks?|masking)(?![a-z_]|\d[a-z])", re.IGNORECASE)
#: A name that ends in a bias that is added to attention scores.
_BIAS = re.compile(r"(alibi|(position|attn|attention|relative)\w*bias(es)?)(?![a-z_]|\d[a-z])", re.IGNORECASE)
_POSITION = re.compile(r"\[(\d+)\]")


def input_name(leaf: str, parameters: tuple[str, ...]) -> str:
    """Return an input's leaf path with the parameter's name in place of its number."""
    positional = _POSITION.match(leaf)
    if positional and int(positional[1]) < len(parameters):
        return parameters[int(positional[1])] + leaf[positional.end() :]
    return leaf


@lru_cache(maxsize=16384)
def is_mask(name: str) -> bool:
    """Tell whether a name is one of a mask over positions; a head mask is none."""
    return _MASK.search(name) is not None and "head" not in name


@lru_cache(maxsize=16384)
def is_mask_input(leaf: str, parameters: tuple[str, ...]) -> bool:
    """Tell whether an input is named as a mask or an attention bias; see :func:`input_name`."""
    name = input_name(leaf, parameters)
    return _MASK.search(name) is not None or _BIAS.search(name) is not None


@lru_cache(maxsize=16384)
def is_mask_name(name: str) -> bool:
    """Tell whether the last part of a module path, a class or a parameter is named as a mask or an attention bias."""
    return is_mask_input(name.rpartition(".")[2], ())
