"""Which weights of a state dict do not fit a model, read from the message of torch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_tfdebug.triage import text
from pytest_tfdebug.triage.rule import Facts

if TYPE_CHECKING:
    from pytest_tfdebug.triage.failure import Failure, Link

_SHAPES = re.compile(
    r"size mismatch for (\S+): copying a param with shape torch\.Size\((.*?)\) from checkpoint, "
    r"the shape in current model is torch\.Size\((.*?)\)"
)
_KEYS = {
    "missing": re.compile(r"Missing key\(s\) in state_dict: ([^\n]*)"),
    "unexpected": re.compile(r"Unexpected key\(s\) in state_dict: ([^\n]*)"),
}


def read_state_dict(_failure: Failure, link: Link, _matched: re.Match[str]) -> Facts:
    """Count and list the weights of another shape, those that are missing, and those that are unexpected."""
    shapes = [f"{key} (checkpoint {theirs}, model {ours})" for key, theirs, ours in _SHAPES.findall(link.message)]
    found = {"of other shapes": shapes} if shapes else {}
    for kind, pattern in _KEYS.items():
        listed = pattern.search(link.message)
        if listed is not None:
            found[kind] = re.findall(r'"([^"]+)"', listed[1])
    misfit = ", ".join(f"{len(keys)} {kind}" for kind, keys in found.items())
    return Facts({"misfit": misfit}, tuple(f"{kind}: {text.listing(keys, 4)}" for kind, keys in found.items()))
