"""What a model returns for some inputs, and how far two answers are apart."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.goldens.check.port_call import port_call
from pytest_tfdebug.parity.tensors.tolerance import DEFAULTS
from pytest_tfdebug.tracing.record.leaves import walk

if TYPE_CHECKING:
    from collections.abc import Iterator

Inputs = Mapping[str, Any]
#: Leaf path of an output -> its values.
Answer = dict[str, torch.Tensor]
Forward = Callable[[Any, Inputs], Any]

#: The output by which a port is judged that returns fewer than its reference.
_MAIN = (".logits", ".last_hidden_state")
_OF_CACHES = ("past_key_values", "cache", "_states")


@contextmanager
def quiet() -> Iterator[None]:
    """Run a block in which libraries neither warn nor log, since a variant is no mistake of the user's.

    It uses one thread: that is faster for small models, and much faster beside other processes.
    """
    disabled, threads = logging.root.manager.disable, torch.get_num_threads()
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            yield
    finally:
        logging.disable(disabled)
        torch.set_num_threads(threads)


def called(model: Any, inputs: Inputs) -> Any:  # noqa: ANN401 - a model of any runtime, and what it gives
    """Call a model like its reference; a module whose forward names its inputs otherwise, by their order."""
    if not isinstance(model, torch.nn.Module):
        return model(**inputs)
    call = port_call(model, (), dict(inputs))
    return model(*call.args, **call.kwargs)


def answer(model: Any, inputs: Inputs, forward: Forward = called) -> Answer:  # noqa: ANN401
    """Return what a model gives, as float32; without the caches, which its outputs follow from."""
    given = forward(model, inputs)
    if not walk(given) and hasattr(given, "__array__"):
        given = torch.as_tensor(given.__array__())
    found = {
        path: tensor.detach().float()
        for path, tensor in walk(given, into_caches=False)
        if tensor.is_floating_point() and not any(word in path for word in _OF_CACHES)
    }
    if not found:
        raise TFDebugError(f"{type(model).__name__} returns no floating-point tensor: give forward=.")
    return found


def shared(expected: Answer, actual: Answer) -> tuple[Answer, Answer]:
    """Return two answers by the outputs that both have: by path, else the main output of each."""
    if _main(expected) not in actual:
        return {"": expected[_main(expected)]}, {"": actual[_main(actual)]}
    paths = expected.keys() & actual.keys()
    return {path: expected[path] for path in paths}, {path: actual[path] for path in paths}


def _main(given: Answer) -> str:
    return next((path for path in _MAIN if path in given), next(iter(given)))


def apart(expected: Answer, actual: Answer) -> float:
    """Return the greatest distance of two outputs, relative to the expected one; inf where the shapes differ."""
    if expected.keys() != actual.keys():
        return float("inf")
    return max(_distance(expected[path], actual[path]) for path in expected)


def _distance(expected: torch.Tensor, actual: torch.Tensor) -> float:
    finite = torch.isfinite(expected)
    if expected.shape != actual.shape or not torch.equal(finite, torch.isfinite(actual)):
        return float("inf")
    off = torch.linalg.vector_norm((expected - actual)[finite])
    return float(off / torch.linalg.vector_norm(expected[finite]).clamp_min(1e-30))


def is_equal(expected: Answer, actual: Answer) -> bool:
    """Tell whether a golden of one answer passes with the other: every element is within the tolerance of float32."""
    rtol, atol, *_ = DEFAULTS["float32"]
    return expected.keys() == actual.keys() and all(
        expected[path].shape == actual[path].shape and torch.allclose(actual[path], expected[path], rtol, atol)
        for path in expected
    )
