"""The reference of a sweep: what its variants give, and how far two answers are apart."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.goldens.port_call import port_call
from pytest_tfdebug.goldens.weights import fill
from pytest_tfdebug.invariance.calls.model_traits import default_inputs
from pytest_tfdebug.parity.tensors.tolerance import DEFAULTS, FLOORS
from pytest_tfdebug.sweeping.fields import Changes, changed
from pytest_tfdebug.tracing.record.leaves import walk
from pytest_tfdebug.tracing.record.selection import NUMBER
from pytest_tfdebug.tracing.values.floors import in_float64

if TYPE_CHECKING:
    from collections.abc import Iterator

Inputs = Mapping[str, Any]
#: Leaf path of an output -> its values.
Answer = dict[str, torch.Tensor]
Forward = Callable[[Any, Inputs], Any]

#: The output by which a port is judged that returns fewer than its reference.
_MAIN = (".logits", ".last_hidden_state")
_OF_CACHES = ("past_key_values", "cache", "_states")
#: Tokens in a row: more than the exact buckets of relative positions, and than the small window of a variant.
_LONG = 24
#: Parameters of the largest model that is run again and again.
LARGEST = 20_000_000


@dataclass(frozen=True)
class Variant:
    """A configuration, and what the reference gives with it."""

    config: Any
    answer: Answer = field(repr=False)
    parts: frozenset[str] = field(repr=False)  # its modules, those of all layers alike: which code it runs
    build: Callable[[], torch.nn.Module] = field(repr=False)


class Reference:
    """A class of models of transformers, and inputs for it.

    Variants with the same names and shapes get the given weights, others those of :func:`pytest_tfdebug.fill`.

    Raises:
        TFDebugError: If the model cannot be built or run with these.
    """

    def __init__(
        self,
        model_class: type,
        config: Any,  # noqa: ANN401 - a configuration of transformers
        inputs: Inputs | None = None,
        weights: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        self._class, self._weights = model_class, weights
        if getattr(config, "_attn_implementation", "") is None:
            config = changed(config, {})  # eager attention reads fields that fused kernels cannot
            config._attn_implementation = "eager"  # noqa: SLF001 - transformers has no other name for it
        self.config = config
        self.name = str(getattr(config, "model_type", "") or model_class.__name__)
        try:
            model = self.model(config)
            self.inputs = dict(inputs) if inputs is not None else _plain_inputs(model)
            self.base = self._run(config, model)
        except Exception as error:
            raise TFDebugError(
                f"{model_class.__name__} cannot be run with this configuration and these inputs: "
                f"{type(error).__name__}: {error}"
            ) from error
        self._known: dict[str, Variant | None] = {}
        #: Distance below which an answer is the same: what arithmetic explains, or the noise that a golden allows.
        self.bound = max(FLOORS * self._floor(model), DEFAULTS["float32"].noise)

    def model(self, config: Any) -> torch.nn.Module:  # noqa: ANN401
        """Return a model of a configuration, with weights that follow from their names and shapes."""
        model: torch.nn.Module = self._class(config).float().eval()
        own, given = model.state_dict(), self._weights
        if given is None or own.keys() != given.keys() or any(own[name].shape != given[name].shape for name in own):
            return fill(model, seed=0)
        model.load_state_dict(dict(given))
        return model

    def variant(self, changes: Changes, without: tuple[str, ...] = ()) -> Variant | None:
        """Return what the reference gives with some fields changed; None where it raises, or gives no number."""
        try:
            config = changed(self.config, changes, without)
            key = repr(config.to_dict())  # several ways lead to one configuration
            if key not in self._known:
                self._known[key] = None
                found = self._run(config, self.model(config))
                is_usable = all(it.isfinite().any() and not it.isnan().any() for it in found.answer.values())
                self._known[key] = found if is_usable else None
        except Exception:  # noqa: BLE001 - every architecture refuses in its own way
            return None
        return self._known[key]

    def _run(self, config: Any, model: torch.nn.Module) -> Variant:  # noqa: ANN401
        parts = frozenset(NUMBER.sub("*", name) for name, _ in model.named_modules())
        return Variant(config, answer(model, self.inputs), parts, lambda: self.model(config))

    def is_derived(self, name: str, value: object) -> bool:
        """Tell whether the configuration's class gives a field this value where it is left out."""
        try:
            return bool(changed(self.config, {}, (name,)).to_dict().get(name) == value)
        except Exception:  # noqa: BLE001 - every configuration refuses in its own way
            return False

    def _floor(self, model: torch.nn.Module) -> float:
        """Return how far the answer is from that in float64; 0 where the model cannot be run so."""
        try:
            with in_float64(model, ((), self.inputs)) as (wide, (_, widened)):
                return apart(self.base.answer, answer(wide, widened))
        except Exception:  # noqa: BLE001 - the noise of float32 is then all that is allowed
            return 0.0


def is_small(model: torch.nn.Module) -> bool:
    """Tell whether a model is small enough to be run again and again."""
    return sum(parameter.numel() for parameter in model.parameters()) <= LARGEST


def _plain_inputs(model: torch.nn.Module) -> dict[str, Any]:
    """Return seeded inputs, long where the model has positions for them, without a mask, which would mask nothing."""
    try:
        made = default_inputs(model, _LONG)
    except ValueError:
        made = default_inputs(model)
    return {name: value for name, value in made.items() if name != "attention_mask"}


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
        return math.inf
    return max(_distance(expected[path], actual[path]) for path in expected)


def _distance(expected: torch.Tensor, actual: torch.Tensor) -> float:
    finite = torch.isfinite(expected)
    if expected.shape != actual.shape or not torch.equal(finite, torch.isfinite(actual)):
        return math.inf
    off = torch.linalg.vector_norm((expected - actual)[finite])
    return float(off / torch.linalg.vector_norm(expected[finite]).clamp_min(1e-30))


def is_equal(expected: Answer, actual: Answer) -> bool:
    """Tell whether a golden of one answer passes with the other: every element is within the tolerance of float32."""
    rtol, atol, *_ = DEFAULTS["float32"]
    return expected.keys() == actual.keys() and all(
        expected[path].shape == actual[path].shape and torch.allclose(actual[path], expected[path], rtol, atol)
        for path in expected
    )
