"""The variants of a sweep's reference: what each gives, how far two answers are apart, and which fields matter.

For each field that is the value that moves the reference most clearly; some fields hide at their own value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from pytest_tfdebug.data.sweep import BlindSpot
from pytest_tfdebug.errors import TFDebugError, silenced
from pytest_tfdebug.goldens.port_call import port_call
from pytest_tfdebug.goldens.weights import fill
from pytest_tfdebug.invariance.calls.model_traits import default_inputs
from pytest_tfdebug.module_path import starred
from pytest_tfdebug.parity.tensors.tolerance import DEFAULTS, FLOORS
from pytest_tfdebug.sweeping.fields import Changes, Field, changed, fields, plain
from pytest_tfdebug.tracing.record.leaves import walk
from pytest_tfdebug.tracing.values.index_range import indices_checked
from pytest_tfdebug.tracing.values.precision import in_float64

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


Inputs = Mapping[str, Any]
#: Leaf path of an output -> its values.
Answer = dict[str, torch.Tensor]
Forward = Callable[[Any, Inputs], Any]

_OF_CACHES = ("past_key_values", "cache", "_states")
#: Tokens in a row: more than the exact buckets of relative positions, and than the small window of a variant.
_LONG = 24
#: Parameters of the largest model that is run again and again.
LARGEST = 20_000_000


@dataclass(frozen=True)
class Variant:
    """A configuration, and what the reference gives with it."""

    config: Any
    answer: Answer
    parts: frozenset[str]  # its modules, those of all layers alike: which code it runs
    build: Callable[[], torch.nn.Module]


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
        parts = frozenset(starred(name) for name, _ in model.named_modules())
        return Variant(config, answer(model, self.inputs), parts, lambda: self.model(config))

    def is_derived(self, name: str, value: object) -> bool:
        """Tell whether the configuration's class gives a field this value where it is left out."""
        with suppress(Exception):  # every configuration refuses in its own way
            return bool(changed(self.config, {}, (name,)).to_dict().get(name) == value)
        return False

    def _floor(self, model: torch.nn.Module) -> float:
        """Return how far the answer is from that in float64; 0 where the model cannot be run so."""
        try:
            with in_float64(model, ((), self.inputs)) as (_, widened):
                return apart(self.base.answer, answer(model, widened))
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
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with silenced(), torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(0)
            yield
    finally:
        torch.set_num_threads(threads)


def called(model: Any, inputs: Inputs) -> Any:  # noqa: ANN401 - a model of any runtime, and what it gives
    """Call a model like its reference; a module whose forward names its inputs otherwise, by their order."""
    if not isinstance(model, torch.nn.Module):
        return model(**inputs)
    call = port_call(model, (), dict(inputs))
    with indices_checked(model):
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


def apart(expected: Answer, actual: Answer) -> float:
    """Return the greatest distance of two outputs, relative to the expected one; inf where the shapes differ."""
    if expected.keys() != actual.keys():
        return math.inf
    distances = []
    for path, tensor in expected.items():
        other, finite = actual[path], torch.isfinite(tensor)
        if tensor.shape != other.shape or not torch.equal(finite, torch.isfinite(other)):
            return math.inf
        off = torch.linalg.vector_norm((tensor - other)[finite])
        distances.append(float(off / torch.linalg.vector_norm(tensor[finite]).clamp_min(1e-30)))
    return max(distances)


def is_equal(expected: Answer, actual: Answer) -> bool:
    """Tell whether a golden of one answer passes with the other: every element is within the tolerance of float32."""
    rtol, atol, *_ = DEFAULTS["float32"]
    return expected.keys() == actual.keys() and all(
        expected[path].shape == actual[path].shape and torch.allclose(actual[path], expected[path], rtol, atol)
        for path in expected
    )


#: A value whose effect is this many times what is allowed is telling enough; the next ones are not tried.
_CLEARLY = 100.0


class _Context(NamedTuple):
    """What is changed on both sides before a field moves: it brings out what is hidden otherwise."""

    changes: Changes
    brings_out: str = ""  # what the path of a field contains that may be hidden
    derives: bool = False  # whether the class derives anew what it can


_OF_WINDOWS = "window|attention|layer|pattern|chunk|local|global|bidirectional"
_OF_LAYERS = "window|layer|full_attention|sliding_attention|chunked_attention"
_POSITIONS, _OF_POSITIONS = "^max_position_embeddings$", "rope|rotary|position"
_PLAIN = _Context({})


@dataclass(frozen=True)
class Move:
    """A field at another value."""

    field: Field
    value: Any
    base: Variant  # what the reference gives with the field as it is
    variant: Variant  # what it gives with the value
    changes: Changes  # what else is changed on both sides
    distance: float  # how far the two answers are apart

    @property
    def beside(self) -> dict[str, Any]:
        """What else differs from the configuration, on both sides, by name."""
        return {path[-1]: plain(value) for path, value in self.changes.items() if path != self.field.path}


class FieldSearch:
    """Moves the fields of a configuration, one at a time."""

    def __init__(self, reference: Reference) -> None:
        self.reference = reference
        self.fields = list(fields(reference.config.to_dict()))
        self._found: dict[Field, list[Move]] = {}
        self._bringing_parts: list[_Context] = []

    def move_all(self, shown: Callable[[Sequence[Field]], Iterable[Field]]) -> None:
        """Move every field.

        Those that do not move are moved again beside each change that brought modules in: experts, another attention.
        """
        for field in shown(self.fields):
            self.moves(field)
        for field in shown([field for field in self.fields if not self._found[field]]):
            self._found[field] = self._in(self._bringing_parts, field)

    def moves(self, field: Field) -> list[Move]:
        """Return variants in which a field moves the reference: all kinds of rotary embeddings, else the clearest."""
        if field not in self._found:
            path = ".".join(field.path)
            contexts = [context for context in self._contexts if re.search(context.brings_out, path)]
            self._found[field] = self._in([_PLAIN, *contexts], field)
        return self._found[field]

    def blind_spot(self, field: Field) -> BlindSpot | None:
        """Return why a model passes that does not read a field; None where it does not pass, or nothing moves it."""
        for other in field.left_out():
            variant = self._variant(field, other, _PLAIN)
            if variant is not None and is_equal(self.reference.base.answer, variant.answer):
                for move in self.moves(field):
                    beside = [each for each in self.fields if each.path in move.changes and each is not field]
                    if not any(each.value in (None, False) or each.is_rope for each in beside):  # it asks for them
                        return BlindSpot(field.name, plain(field.value), plain(move.value), move.beside, other)
        return None

    def _in(self, contexts: Sequence[_Context], field: Field) -> list[Move]:
        """Return the clearest move in the first context that brings a field out; of a rotary embedding every kind."""
        values = field.values()
        found = []
        for options in [[value] for value in values] if field.is_rope else [values]:
            moves = next(filter(None, (self._moves(field, options, context) for context in contexts)), [])
            found += sorted(moves, key=lambda move: -min(move.distance, 1.0))[:1]
        return found

    def _moves(self, field: Field, options: Sequence[Any], context: _Context) -> list[Move]:
        found: list[Move] = []
        bound, base = self.reference.bound, self._variant(field, field.value, context)
        for value in options[:1] if context.brings_out else options:  # the most telling value tells in every context
            variant = self._variant(field, value, context)
            if base is None or variant is None:
                continue
            if variant.parts - self.reference.base.parts and context == _PLAIN:
                self._bringing_parts.append(_Context({field.path: value}))
            distance = apart(base.answer, variant.answer)
            if distance > bound:
                found.append(Move(field, value, base, variant, context.changes, distance))
            if distance > _CLEARLY * bound:
                break
        return found

    def _variant(self, field: Field, value: Any, context: _Context) -> Variant | None:  # noqa: ANN401
        """Return the reference with a field moved, and with it what the class derives from that field."""
        changes = {**context.changes, field.path: value}
        derived = tuple(name for name in self._derived if (name,) not in changes)
        found = self.reference.variant(changes, derived if context.derives else ())
        return found or self.reference.variant({**field.keeping_shapes(value), **changes}, derived)

    @cached_property
    def _derived(self) -> tuple[str, ...]:
        """Names of fields that the class derives from others: one for each layer, or the same once it is left out."""
        own = [field for field in self.fields if len(field.path) == 1 and field.value is not None and not field.is_rope]
        layers = [n for f in own[:1] for name, n in f.beside.items() if re.search(r"layers?$", name) and type(n) is int]
        by_layer = [f for f in own if isinstance(f.value, (list, tuple)) and len(f.value) in layers]
        return tuple(f.path[0] for f in own if f in by_layer or self.reference.is_derived(f.path[0], f.value))

    @cached_property
    def _contexts(self) -> list[_Context]:
        """Changes that bring out other fields: a window is in use, layers are of several kinds, positions are few."""
        few = self._most_telling(_POSITIONS)
        ropes = [field for field in self.fields if field.is_rope][:1]
        found = [
            _Context({}, derives=True),
            _Context(self._most_telling("window(?!_pattern)|attention_chunk_size"), _OF_WINDOWS, derives=True),
            _Context(self._most_telling("layer_types|layers_block_type"), _OF_LAYERS),
            _Context(few, _OF_POSITIONS),
            *(_Context({**few, rope.path: value}, _OF_POSITIONS) for rope in ropes for value in rope.values()),
        ]
        return [context for context in found if context.changes or context.derives]

    def _most_telling(self, names: str) -> Changes:
        """Return the first value of each of some fields, but for those that are switched on."""
        named = [field for field in self.fields if re.search(names, field.path[-1]) and field.value is not True]
        return {field.path: values[0] for field in named if (values := field.values())}
