"""The tokens that a port's ``generate`` gives, beside its reference's: caches, the first token and the order of steps.

A forward is held without all of these. Both choose the likeliest token each time, where that can be asked for.
"""

from __future__ import annotations

from contextlib import suppress
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.errors import silenced
from pytest_tfdebug.tracing.record.leaves import duplicate, walk
from pytest_tfdebug.tracing.record.signatures import VARIADIC
from pytest_tfdebug.tracing.record.state import preserved
from pytest_tfdebug.tracing.values.index_range import indices_checked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_tfdebug.tracing.values.rerun import Rerun

#: How many tokens each gives: the second is the first that a cache, or what takes its place, has a part in.
_NEW = 6
#: How many tokens of a row are shown.
_SHOWN = 8
_BATCH_AND_TOKENS = 2
#: Of fewer tokens in common nothing is said.
_FEWEST = 2


def told_generated(port: Rerun, reference: Rerun, inputs: Mapping[str, torch.Tensor]) -> Iterator[str]:
    """Yield in a sentence which tokens a port generates where its reference generates others.

    Args:
        port: The port and its inputs.
        reference: The reference and its inputs.
        inputs: Inputs of the reference without pads, by name.
    """
    given = {name: each for name, each in inputs.items() if not name.startswith(("decoder_", "label"))}
    if not all(callable(getattr(each.model, "generate", None)) for each in (port, reference)):
        return
    theirs = _generated(reference, given)
    if theirs is None:
        return
    own, again = _generated(port, given), _generated(port, given, seed=1)
    if own is None or again is None or not torch.equal(own, again):  # it draws its tokens
        return
    prompts = next((each for each in given.values() if not each.is_floating_point()), theirs[:, :0])
    ends = _ends(reference)
    for row, prompt, mine in zip(theirs.tolist(), prompts.tolist(), own.tolist(), strict=False):
        whole, found = _after(prompt, row), _after(prompt, mine)
        kept = next((place for place, token in enumerate(whole) if place and token in ends), len(whole))
        if not any(_are_same(whole[:kept], found, left_out) for left_out in (0, 1, -1)):
            yield (
                f"Its generate() gives the tokens {_shown(found)} where its reference's gives {_shown(whole)}, "
                f"of the test's inputs and with do_sample=False."
            )
            return


def _are_same(theirs: list[int], own: list[int], left_out: int) -> bool:
    """Tell whether both begin with the same tokens, but for the first, which one of them may leave out."""
    one, other = theirs[max(left_out, 0) :], own[max(-left_out, 0) :]
    common = min(len(one), len(other))
    return common < _FEWEST or one[:common] == other[:common]


def _after(prompt: list[int], row: list[int]) -> list[int]:
    return row[len(prompt) :] if row[: len(prompt)] == prompt else row


def _shown(tokens: list[int]) -> str:
    return " ".join(map(str, tokens[:_SHOWN]))


def _ends(reference: Rerun) -> set[int]:
    """Return the tokens behind which a reference gives pads."""
    end = getattr(getattr(reference.model, "generation_config", None), "eos_token_id", None)
    return {end} if isinstance(end, int) else {*(end or ())}


def _generated(forward: Rerun, inputs: Mapping[str, torch.Tensor], seed: int = 0) -> torch.Tensor | None:
    """Return the tokens of each row; None where the model minds, or gives something else."""
    model: Any = forward.model
    with (
        suppress(Exception),
        silenced(),
        preserved(model),
        torch.no_grad(),
        torch.random.fork_rng(devices=[]),
        indices_checked(model),
    ):
        torch.manual_seed(seed)
        found = walk(model.generate(**_asked(model.generate, duplicate(dict(inputs)))))
        if found and found[0].tensor.dim() == _BATCH_AND_TOKENS and not found[0].tensor.is_floating_point():
            return found[0].tensor
    return None


def _asked(generate: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ANN401 - anyone's method
    """Return what a method is called with: inputs and numbers under its names, else in the order of its parameters."""
    parameters = signature(generate).parameters
    takes_more = any(each.kind is Parameter.VAR_KEYWORD for each in parameters.values())
    known = {**inputs, "max_new_tokens": _NEW, "do_sample": False}
    asked = {name: value for name, value in known.items() if takes_more or name in parameters}
    required = (name for name, each in parameters.items() if each.default is Parameter.empty)
    rest = [name for name in required if name not in asked and parameters[name].kind not in VARIADIC]
    tensors = [value for name, value in inputs.items() if name not in asked]
    asked.update(zip(rest, tensors, strict=False))
    if len(rest) > 1 and "max_new_tokens" not in asked:
        asked[rest[-1]] = _NEW
    return asked
