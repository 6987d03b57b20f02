"""The tokens that a port's ``generate`` gives, beside its reference's: caches, the first token and the order of steps.

A forward is held without all of these. Both are asked for the likeliest token each time, without beams and penalties.
One that draws its tokens all the same, or cannot be told how many to give, is not asked.
"""

from __future__ import annotations

import re
from contextlib import suppress
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.errors import TFDebugError, silenced
from pytest_tfdebug.tracing.record.leaves import duplicate, walk
from pytest_tfdebug.tracing.record.masks import is_mask
from pytest_tfdebug.tracing.record.signatures import VARIADIC
from pytest_tfdebug.tracing.record.state import preserved
from pytest_tfdebug.tracing.values.index_range import indices_checked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_tfdebug.tracing.values.rerun import Rerun

#: How many tokens each gives: the second is the first that a cache, or what takes its place, has a part in.
_NEW = 6
#: Forwards of a model after which it is told to end: of an encoder and a decoder for each token, and some more.
_MOST_FORWARDS = 8 * _NEW
#: How many tokens of a row are shown.
_SHOWN = 8
_BATCH_AND_TOKENS = 2
#: Two rows with fewer tokens in common count as the same.
_FEWEST = 2
#: What a parameter is called that says how many tokens to give.
_COUNT = re.compile(r"new|count|num|max|steps|length|^n$")
#: What a model of transformers may do beside choosing the likeliest token.
_PLAIN = {"num_beams": 1, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "min_length": 0, "min_new_tokens": 0}


def told_generated(port: Rerun, reference: Rerun, inputs: Mapping[str, torch.Tensor]) -> Iterator[str]:
    """Yield in a sentence which tokens a port generates where its reference generates others.

    Rounding in half precision decides between tokens that are nearly as likely: nothing is said there.

    Args:
        port: The port and its inputs.
        reference: The reference and its inputs.
        inputs: Inputs of the reference without pads, by name.
    """
    given = {name: each for name, each in inputs.items() if not name.startswith(("decoder_", "label"))}
    if not all(
        callable(getattr(each.model, "generate", None)) and _is_float32(each.model) for each in (port, reference)
    ):
        return
    theirs = _generated(reference, given)
    own = None if theirs is None else _generated(port, given)
    if theirs is None or own is None:
        return
    ends = _ends(reference)
    for number, (row, mine) in enumerate(zip(theirs.tolist(), own.tolist(), strict=False)):
        prompt = _prompt(given, number, row)
        whole, found = _after(prompt, row), _after(prompt, mine)
        # the first token of a decoder may be the one that ends a row
        kept = next((at for at, token in enumerate(whole) if token in ends and (at or prompt)), len(whole))
        if not any(_are_same(whole[:kept], found, left_out) for left_out in (0, 1, -1)):
            yield (
                f"Its generate() gives the tokens {_shown(found)} where its reference's gives {_shown(whole)}, on the "
                "test's inputs without pads, choosing the likeliest token each time."
            )
            return


def _is_float32(model: torch.nn.Module) -> bool:
    return all(each.dtype in (torch.float32, torch.float64) for each in model.parameters())


def _prompt(given: Mapping[str, torch.Tensor], number: int, row: list[int]) -> list[int]:
    """Return the tokens of the inputs with which a row of what was generated begins; none of a decoder of its own."""
    whole = (each for name, each in given.items() if not is_mask(name) and not each.is_floating_point())
    rows = (each[number].tolist() for each in whole if each.dim() == _BATCH_AND_TOKENS)
    return next((each for each in rows if row[: len(each)] == each), [])


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


def _generated(forward: Rerun, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor | None:
    """Return the tokens of each row; None where the model minds, draws them, or gives something else."""
    asked = _asked(forward.model, inputs)
    found = [] if asked is None else [_tokens(forward.model, asked, seed) for seed in range(2)]
    first = found[0] if found else None
    return first if first is not None and found[1] is not None and torch.equal(first, found[1]) else None


def _tokens(model: Any, asked: Mapping[str, Any], seed: int) -> torch.Tensor | None:  # noqa: ANN401 - anyone's
    forwards = 0

    def counted(*_: object) -> None:
        nonlocal forwards
        forwards += 1
        if forwards > _MOST_FORWARDS:
            raise TFDebugError("it goes on for longer than it was asked to")

    hook = model.register_forward_pre_hook(counted)
    try:
        with (
            suppress(Exception),
            silenced(),
            preserved(model),
            torch.no_grad(),
            torch.random.fork_rng(devices=[]),
            indices_checked(model),
        ):
            torch.manual_seed(seed)
            found = walk(model.generate(**duplicate(dict(asked))))
            if found and found[0].tensor.dim() == _BATCH_AND_TOKENS and not found[0].tensor.is_floating_point():
                return found[0].tensor
        return None
    finally:
        hook.remove()


def _asked(model: Any, inputs: Mapping[str, Any]) -> dict[str, Any] | None:  # noqa: ANN401 - anyone's
    """Return what ``generate`` is called with: inputs and numbers under its names, else in their order.

    None where it cannot be told how many tokens to give.
    """
    parameters = signature(model.generate).parameters
    takes_more = any(each.kind is Parameter.VAR_KEYWORD for each in parameters.values())
    plain = _PLAIN if hasattr(model, "generation_config") else {}
    known = {**inputs, "max_new_tokens": _NEW, "do_sample": False, **plain}
    asked = {name: value for name, value in known.items() if takes_more or name in parameters}
    required = (name for name, each in parameters.items() if each.default is Parameter.empty)
    rest = [name for name in required if name not in asked and parameters[name].kind not in VARIADIC]
    if "max_new_tokens" not in asked:
        if not rest or not _COUNT.search(rest[-1]):
            return None
        asked[rest.pop()] = _NEW
    tensors = [value for name, value in inputs.items() if name not in asked and not is_mask(name)]
    asked.update(zip(rest, tensors, strict=False))
    return asked
