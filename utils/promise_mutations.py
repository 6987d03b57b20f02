"""Ways in which model classes break their promises, each planted in a class of modules while it is judged.

For example a mask that does not arrive, left pads that are counted, positions that restart
with each step, a buffer that is not saved, a divisor that is 0 in float16. What is changed is a class, as a bug in its
code is, so a model that is loaded has the bug as well.
"""

from __future__ import annotations

import functools
import inspect
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

import torch
from transformers import Cache, PreTrainedModel

from pytest_tfdebug.tracing.record.state import preserved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_tfdebug.conform.subject import Subject

    Given = dict[str, Any]

_CACHES = ("past_key_values", "past_key_value", "layer_past")
_HALF = (torch.float16, torch.bfloat16)
#: How much of its own size is added to a tensor.
_SHARE = 0.2


class Seen(NamedTuple):
    """A class of modules as the plain call uses it."""

    kind: Any  # the class
    given: Given  # the arguments of its first call, by name
    output: torch.Tensor | None  # the first tensor that it returns
    own: Any  # the first module of the class that was called
    model: Any
    inputs: Given  # of the model

    def takes(self, *names: str) -> bool:
        """Tell whether its forward takes one of some arguments."""
        return not set(names).isdisjoint(inspect.signature(self.kind.forward).parameters)

    def is_named(self, *parts: str) -> bool:
        """Tell whether its class has one of some words in its name."""
        return any(part in self.kind.__name__ for part in parts)

    @property
    def runs_along_tokens(self) -> bool:
        """Whether what it returns has a row and a place for each token of the model's input."""
        ids = self.inputs.get("input_ids", self.inputs.get("pixel_values"))
        found = self.output
        if ids is None or found is None or found.dim() != 3 or not found.is_floating_point():  # noqa: PLR2004 - rows, tokens, width
            return False
        return found.shape[:2] == ids.shape if ids.dim() == 2 else len(found) == len(ids)  # noqa: PLR2004 - a table

    @property
    def attends(self) -> bool:
        """Whether it is an attention that knows its implementation."""
        return self.is_named("Attention") and hasattr(getattr(self.own, "config", None), "_attn_implementation")

    @property
    def decodes(self) -> bool:
        """Whether it is an attention that fills a cache, in a model that generates."""
        return self.attends and _cache_of(self.given) is not None and bool(self.model.can_generate())


@dataclass(frozen=True)
class Mutation:
    """One way to break one promise."""

    promise: str
    name: str
    fits: Callable[[Seen], bool]
    before: Callable[[Any, Given], Given] = lambda _, given: given  # what the forward is given instead
    after: Callable[[Any, Given, torch.Tensor], torch.Tensor] = lambda *given: given[2]  # its first tensor instead
    others: Callable[[Seen], Iterator[Any]] = field(default=lambda _: iter(()))  # further patches

    @contextmanager
    def planted(self, seen: Seen) -> Iterator[None]:
        """Give the class the mutation."""
        mutation, forward, signature = self, seen.kind.forward, inspect.signature(seen.kind.forward)

        @functools.wraps(forward)
        def mutated(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - any forward
            given = _named(signature, self, args, kwargs)
            changed = mutation.before(self, given)
            new = {name: value for name, value in changed.items() if given.get(name) is not value}
            names = list(signature.parameters)[1 : 1 + len(args)]
            args = tuple(new.pop(name, value) for name, value in zip(names, args, strict=False)) + args[len(names) :]
            output = forward(self, *args, **kwargs | new)
            return _with_first(output, lambda tensor: mutation.after(self, given, tensor))

        with ExitStack() as stack:
            for other in (patch.object(seen.kind, "forward", mutated), *self.others(seen)):
                stack.enter_context(other)
            yield


def _named(signature: inspect.Signature, module: object, args: tuple[Any, ...], kwargs: Given) -> Given:
    """Return the arguments of a call by name."""
    bound = signature.bind(module, *args, **kwargs).arguments
    kinds = signature.parameters
    flat: Given = {}
    for name, value in list(bound.items())[1:]:
        flat.update(value if kinds[name].kind is inspect.Parameter.VAR_KEYWORD else {name: value})
    return flat


def _first_of(output: Any) -> Any:  # noqa: ANN401 - any output
    """Return the first thing that a forward returns."""
    if isinstance(output, dict):  # a ModelOutput
        return next(iter(output.values()), None)
    return output[0] if isinstance(output, (tuple, list)) and output else output


def _with_first(output: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:  # noqa: ANN401 - any output
    """Return an output with its first tensor changed."""
    first = _first_of(output)
    if not isinstance(first, torch.Tensor):
        return output
    if isinstance(output, dict):
        output[next(iter(output))] = change(first)
        return output
    return type(output)([change(first), *output[1:]]) if first is not output else change(first)


def seen_in(subject: Subject) -> list[Seen]:
    """Return the classes of modules that the plain call of a subject uses."""
    found: dict[type, Seen] = {}
    model, inputs = subject.model, dict(subject.call.inputs)
    signatures: dict[type, inspect.Signature] = {}

    def note(module: Any, args: tuple[Any, ...], kwargs: Given, output: Any) -> None:  # noqa: ANN401 - a hook
        kind = type(module)
        if kind not in found and kind.__module__.startswith("transformers.models."):
            signature = signatures.setdefault(kind, inspect.signature(kind.forward))
            first = _first_of(output)
            own = first if isinstance(first, torch.Tensor) else None
            found[kind] = Seen(kind, _named(signature, module, args, kwargs), own, module, model, inputs)

    hooks = [module.register_forward_hook(note, with_kwargs=True) for module in model.modules()]
    try:
        with preserved(model), torch.no_grad():
            torch.manual_seed(0)
            model(**inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return list(found.values())


def _cache_of(given: Given) -> Any:  # noqa: ANN401 - any cache
    cache = next((given[name] for name in _CACHES if given.get(name) is not None), None)
    return getattr(cache, "self_attention_cache", cache)


def _begun(given: Given) -> int:
    """Return how many tokens the cache held before the call."""
    cache = _cache_of(given)
    return cache.get_seq_length() if isinstance(cache, Cache) else 0


def _without_mask(_: object, given: Given) -> Given:
    return {**given, "attention_mask": None}


def _eager(module: Any) -> bool:  # noqa: ANN401 - an attention
    return bool(module.config._attn_implementation == "eager")  # noqa: SLF001 - where transformers keeps it


def _counted_from_zero(_: object, given: Given) -> Given:
    places = given["position_ids"]
    return {**given, "position_ids": places - places[..., :1]}


def _counted_from(given: Given, start: int) -> Given:
    places = given["position_ids"]
    counted = torch.arange(start, start + places.shape[-1], device=places.device)
    return {**given, "position_ids": counted.expand_as(places)}


def _counts_pads_behind_a_cache(_: object, given: Given) -> Given:
    begun = _begun(given)
    return _counted_from(given, begun) if begun and given.get("position_ids") is not None else given


def _counts_pads(_: object, given: Given) -> Given:
    return given if given.get("position_ids") is None else _counted_from(given, _begun(given))


def _altered_keys(_: object, given: Given, output: torch.Tensor) -> torch.Tensor:
    for layer in getattr(_cache_of(given), "layers", ()):
        if getattr(layer, "keys", None) is not None:
            layer.keys = layer.keys * (1 - _SHARE)
    return output


def _when_filling(_: object, given: Given, output: torch.Tensor) -> torch.Tensor:
    return output if _cache_of(given) is None else output * (1 + _SHARE)


def _writes(_: object, given: Given) -> Given:
    for value in given.values():
        if isinstance(value, torch.Tensor) and value.numel() > 1 and bool(value.ne(value.flatten()[0]).any()):
            value.mul_(1 - _SHARE) if value.is_floating_point() else value.clamp_(max=int(value.max()) - 1)
            break
    return given


def _is_given_inputs(seen: Seen) -> bool:
    first = next((value for value in seen.given.values() if isinstance(value, torch.Tensor)), None)
    return first is not None and any(
        isinstance(value, torch.Tensor) and value.data_ptr() == first.data_ptr() for value in seen.inputs.values()
    )


def _buffer(seen: Seen, *, is_registered: bool) -> Iterator[Any]:
    """Give each new module of the class a random gain that no checkpoint holds."""
    init = seen.kind.__init__

    @functools.wraps(init)
    def made(module: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - any module
        init(module, *args, **kwargs)
        gain = 1 + torch.rand(())
        if is_registered:
            module.register_buffer("mutated_gain", gain, persistent=False)
        else:
            module.mutated_gain = gain

    yield patch.object(seen.kind, "__init__", made)


def _gained(module: Any, _: Given, output: torch.Tensor) -> Any:  # noqa: ANN401 - any module
    return output + module.mutated_gain.to(output)


def _overwrites(seen: Seen) -> Iterator[Any]:
    """Let ``_init_weights`` write into all weights of a module that has a buffer which no checkpoint holds."""
    parts = [part for part in seen.model.modules() if isinstance(part, PreTrainedModel) and seen.own in part.modules()]
    owner = type(parts[-1])
    original = owner._init_weights  # noqa: SLF001 - the method that transformers calls

    @torch.no_grad()
    def init_weights(model: Any, module: torch.nn.Module) -> None:  # noqa: ANN401 - a pretrained model
        original(model, module)
        if isinstance(module, seen.kind):
            for weight in module.parameters():
                weight.data[:1] = 0

    yield patch.object(owner, "_init_weights", init_weights)


def _has_unsaved_buffer(seen: Seen) -> bool:
    return bool(seen.own._non_persistent_buffers_set) and next(seen.own.parameters(), None) is not None  # noqa: SLF001 - torch's own


def _unsaved(seen: Seen) -> Iterator[Any]:
    """Leave the first parameter of a module of the class out of what is saved."""
    own = next(name for name, _ in seen.own.named_parameters(recurse=False))
    path = next(path for path, module in seen.model.named_modules() if module is seen.own)
    kind, left_out = type(seen.model), f"{path}.{own}"
    save = kind.save_pretrained

    def save_pretrained(self: Any, folder: str, **kwargs: Any) -> None:  # noqa: ANN401 - a pretrained model
        kept = {name: value for name, value in self.state_dict().items() if name != left_out}
        save(self, folder, state_dict=kept, **kwargs)

    yield patch.object(kind, "save_pretrained", save_pretrained)


def _holds_parameters(seen: Seen) -> bool:
    """Tell whether its first parameter is saved under its own name alone."""
    first = next(seen.own.parameters(recurse=False), None)
    same = [other for _, other in seen.model.named_parameters(remove_duplicate=False) if other is first]
    return not _is_root(seen) and len(same) == 1


def _ties_its_head(seen: Seen) -> bool:
    return _is_root(seen) and seen.model.get_output_embeddings() is not None and bool(seen.model.all_tied_weights_keys)


def _untied(seen: Seen) -> Iterator[Any]:
    yield patch.object(seen.kind, "_tied_weights_keys", {})


def _in_half(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any, Given, torch.Tensor], torch.Tensor]:
    """Return a change that computes in the dtype of what it is given, and adds nothing where that can hold it."""
    return lambda _module, _given, output: output + change(output).to(output.dtype)


def _widened(_: object, given: Given) -> Given:
    return {
        name: value.float() if isinstance(value, torch.Tensor) and value.dtype in _HALF else value
        for name, value in given.items()
    }


def _infers(seen: Seen) -> Iterator[Any]:
    yield patch.object(seen.kind, "forward", torch.no_grad()(seen.kind.forward))


def _is_inside(seen: Seen) -> bool:
    return seen.runs_along_tokens and seen.own is not seen.model


def _feeds_a_linear(seen: Seen) -> bool:
    first = next(iter(seen.own.children()), None)
    return _is_inside(seen) and isinstance(first, torch.nn.Linear) and seen.is_named("MLP", "FeedForward")


def _is_root(seen: Seen) -> bool:
    return seen.own is seen.model


def _has_learned_positions(seen: Seen) -> bool:
    is_rotary = any("Rotary" in type(module).__name__ for module in seen.model.modules())
    return _is_root(seen) and seen.takes("position_ids") and seen.model.can_generate() and not is_rotary


MUTATIONS = (
    Mutation(
        "padding",
        "the mask does not arrive",
        lambda seen: (
            seen.attends and seen.takes("attention_mask") and "input_ids" in seen.inputs and seen.runs_along_tokens
        ),
        _without_mask,
    ),
    Mutation(
        "padding", "a mean over pads", _is_inside, after=lambda _m, _g, out: out + _SHARE * out.mean(1, keepdim=True)
    ),
    Mutation("padding", "left pads are counted", _has_learned_positions, _counts_pads),
    Mutation(
        "batch", "a row sees the others", _is_inside, after=lambda _m, _g, out: out + _SHARE * out.mean(0, keepdim=True)
    ),
    Mutation(
        "batch",
        "a scale of the whole batch",
        _is_inside,
        after=lambda _m, _g, out: out.clamp(max=float(out.amax()) / 2),
    ),
    Mutation(
        "attention",
        "another scale under eager",
        lambda seen: seen.attends,
        after=lambda module, _, out: out * (1 + _SHARE) if _eager(module) else out,
    ),
    Mutation(
        "attention",
        "no mask under eager",
        lambda seen: seen.decodes and seen.takes("attention_mask"),
        lambda module, given: _without_mask(module, given) if _eager(module) else given,
    ),
    Mutation(
        "cache",
        "positions restart with each step",
        lambda seen: seen.is_named("RotaryEmbedding") and seen.given.get("position_ids") is not None,
        _counted_from_zero,
    ),
    Mutation("cache", "keys are altered in place", lambda seen: seen.decodes, after=_altered_keys),
    Mutation(
        "cache",
        "left pads are counted once there is a cache",
        lambda seen: _is_root(seen) and seen.takes("position_ids") and seen.model.can_generate(),
        _counts_pads_behind_a_cache,
    ),
    Mutation(
        "cache",
        "a chunk lacks the mask",
        lambda seen: seen.decodes and seen.takes("attention_mask"),
        lambda module, given: _without_mask(module, given) if _begun(given) else given,
    ),
    Mutation("use_cache", "another path when it fills a cache", lambda seen: seen.decodes, after=_when_filling),
    Mutation(
        "save_load",
        "a buffer is not saved",
        _is_inside,
        after=_gained,
        others=functools.partial(_buffer, is_registered=True),
    ),
    Mutation(
        "save_load",
        "a tensor is no buffer",
        _is_inside,
        after=_gained,
        others=functools.partial(_buffer, is_registered=False),
    ),
    Mutation("clean_load", "a weight is not saved", _holds_parameters, others=_unsaved),
    Mutation("init", "loaded rows are set to 0", _has_unsaved_buffer, others=_overwrites),
    Mutation("tied", "no keys of tied weights", _ties_its_head, others=_untied),
    Mutation("dtype", "a float32 tensor meets half weights", _feeds_a_linear, _widened),
    Mutation("dtype", "-1e10 becomes -inf", _is_inside, after=_in_half(lambda x: 0 * torch.full_like(x, -1e10))),
    Mutation(
        "dtype",
        "a sum above 65,504",
        _is_inside,
        after=_in_half(lambda x: 0 * torch.full_like(x, 512.0).pow(2).sum(-1, keepdim=True)),
    ),
    Mutation(
        "dtype", "a divisor that is 0 in float16", _is_inside, after=_in_half(lambda x: 0 / torch.full_like(x, 1e-9))
    ),
    Mutation("overflow", "a division by 0", _is_inside, after=lambda _m, _g, out: out / (out - out[..., :1])),
    Mutation("inputs", "writes into its inputs", lambda seen: _is_given_inputs(seen) and not _is_root(seen), _writes),
    Mutation("gradients", "a detached output", _is_inside, after=lambda _m, _g, out: out.detach()),
    Mutation("gradients", "torch.no_grad around a forward", _is_inside, others=_infers),
)
