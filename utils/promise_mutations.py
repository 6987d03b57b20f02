"""Ways in which model classes break their promises, each planted in a class of modules while it is judged.

For example a mask that does not arrive, left pads that are counted, positions that restart
with each step, a buffer that is not saved, a divisor that is 0 in float16. What is changed is a class, as a bug in its
code is, so a model that is loaded has the bug as well.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, cast
from unittest.mock import patch

import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten
from transformers import Cache

from pytest_tfdebug.conform.subject import Subject
from pytest_tfdebug.tracing.record.state import preserved

Given = dict[str, Any]
#: Gets a module, what its forward is given, and the first tensor that it returns.
After = Callable[[Any, Given, torch.Tensor], torch.Tensor]
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


def parts_of(seen: Seen) -> set[str]:
    """Return what a class is in its model, in the words of :data:`MUTATIONS`."""
    kind, given, found, own, model, inputs = cast("tuple[Any, ...]", seen)
    takes, name, is_root = inspect.signature(kind.forward).parameters, kind.__name__, own is model
    ids = inputs.get("input_ids", inputs.get("pixel_values"))
    is_of_tokens = ids is not None and found is not None and found.dim() == 3 and found.is_floating_point()  # noqa: PLR2004 - rows, tokens, width
    if is_of_tokens:  # a row and a place for each token
        is_of_tokens = found.shape[:2] == ids.shape if ids.dim() == 2 else len(found) == len(ids)  # noqa: PLR2004 - a table
    attends = "Attention" in name and hasattr(getattr(own, "config", None), "_attn_implementation")
    decodes = attends and _cache_of(given) is not None and model.can_generate()
    counts = is_root and "position_ids" in takes and model.can_generate()
    parameter, child = next(own.parameters(recurse=False), None), next(iter(own.children()), None)
    same = [each for _, each in model.named_parameters(remove_duplicate=False) if each is parameter]
    first, *_ = (*(value for value in given.values() if isinstance(value, torch.Tensor)), None)
    places = [value.data_ptr() for value in inputs.values() if isinstance(value, torch.Tensor)]
    is_mlp = "MLP" in name or "FeedForward" in name
    parts = {
        "attention": attends,
        "attention, masked": attends and "attention_mask" in takes and "input_ids" in inputs and is_of_tokens,
        "attention, cached": decodes,
        "attention, cached and masked": decodes and "attention_mask" in takes,
        "rotary embedding": "RotaryEmbedding" in name and given.get("position_ids") is not None,
        "model with positions": counts,
        "model with learned positions": counts and not any("Rotary" in type(each).__name__ for each in model.modules()),
        "model with a tied head": is_root and model.all_tied_weights_keys and model.get_output_embeddings() is not None,
        "part along tokens": is_of_tokens and not is_root,
        "part with an MLP": is_of_tokens and not is_root and isinstance(child, torch.nn.Linear) and is_mlp,
        "part with a parameter of one name": not is_root and len(same) == 1,
        "part with an unsaved buffer": own._non_persistent_buffers_set and any(True for _ in own.parameters()),  # noqa: SLF001 - torch's own
        "part that is given inputs": not is_root and first is not None and first.data_ptr() in places,
    }
    return {part for part, holds in parts.items() if holds}


@dataclass(frozen=True)
class Mutation:
    """One way to break one promise."""

    promise: str
    name: str
    part: str  # of a model that can have it
    before: Callable[[Any, Given], Given] = lambda _, given: given  # what the forward is given instead
    after: After = lambda *given: given[2]  # its first tensor instead
    patched: Callable[[Seen], tuple[Any, str, Any] | None] = lambda _: None  # what else takes which place

    @contextmanager
    def planted(self, seen: Seen) -> Iterator[None]:
        """Give the class the mutation."""
        mutation, forward, signature = self, seen.kind.forward, inspect.signature(seen.kind.forward)

        @functools.wraps(forward)
        def mutated(self: Any, *args: Any, **kwargs: Any) -> Any:
            given = _named(signature, self, args, kwargs)
            changed = mutation.before(self, given)
            new = {name: value for name, value in changed.items() if given.get(name) is not value}
            names = list(signature.parameters)[1 : 1 + len(args)]
            args = tuple(new.pop(name, value) for name, value in zip(names, args, strict=False)) + args[len(names) :]
            output = forward(self, *args, **kwargs | new)
            return _with_first(output, lambda tensor: mutation.after(self, given, tensor))

        with ExitStack() as stack:
            for place in ((seen.kind, "forward", mutated), self.patched(seen)):
                if place is not None:
                    stack.enter_context(patch.object(*place))
            yield


def _named(signature: inspect.Signature, module: object, args: tuple[Any, ...], kwargs: Given) -> Given:
    """Return the arguments of a call by name."""
    bound = signature.bind(module, *args, **kwargs).arguments
    kinds = signature.parameters
    flat: Given = {}
    for name, value in list(bound.items())[1:]:
        flat.update(value if kinds[name].kind is inspect.Parameter.VAR_KEYWORD else {name: value})
    return flat


def _with_first(output: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return an output with its first tensor changed, where that comes first."""
    leaves, form = tree_flatten(output)
    if not leaves or not isinstance(leaves[0], torch.Tensor):
        return output
    return tree_unflatten([change(leaves[0]), *leaves[1:]], form)


def seen_in(subject: Subject) -> list[Seen]:
    """Return the classes of modules that the plain call of a subject uses."""
    found: dict[type, Seen] = {}
    model, inputs = subject.model, dict(subject.call.inputs)

    def note(module: Any, args: tuple[Any, ...], kwargs: Given, output: Any) -> None:
        kind = type(module)
        if kind not in found and kind.__module__.startswith("transformers.models."):
            given, leaves = _named(inspect.signature(kind.forward), module, args, kwargs), tree_leaves(output)
            first = leaves[0] if leaves and isinstance(leaves[0], torch.Tensor) else None
            found[kind] = Seen(kind, given, first, module, model, inputs)

    hooks = [module.register_forward_hook(note, with_kwargs=True) for module in model.modules()]
    try:
        with preserved(model), torch.no_grad():
            torch.manual_seed(0)
            model(**inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return list(found.values())


def _cache_of(given: Given) -> Any:
    cache = next((given[name] for name in _CACHES if given.get(name) is not None), None)
    return getattr(cache, "self_attention_cache", cache)


def _begun(given: Given) -> int:
    """Return how many tokens the cache held before the call."""
    cache = _cache_of(given)
    return cache.get_seq_length() if isinstance(cache, Cache) else 0


def _without_mask(_: object, given: Given) -> Given:
    return {**given, "attention_mask": None}


def _eager(module: Any) -> bool:
    return bool(module.config._attn_implementation == "eager")  # noqa: SLF001 - where transformers keeps it


def _counted_from_zero(_: object, given: Given) -> Given:
    places = given["position_ids"]
    return {**given, "position_ids": places - places[..., :1]}


def _counts_pads(_: object, given: Given, *, is_without_cache: bool = True) -> Given:
    places, start = given.get("position_ids"), _begun(given)
    if places is None or not (start or is_without_cache):
        return given
    counted = torch.arange(start, start + places.shape[-1], device=places.device)
    return {**given, "position_ids": counted.expand_as(places)}


def _altered_keys(_: object, given: Given, output: torch.Tensor) -> torch.Tensor:
    for layer in getattr(_cache_of(given), "layers", ()):
        if getattr(layer, "keys", None) is not None:
            layer.keys = layer.keys * (1 - _SHARE)
    return output


def _writes(_: object, given: Given) -> Given:
    for value in given.values():
        if isinstance(value, torch.Tensor) and value.numel() > 1 and bool(value.ne(value.flatten()[0]).any()):
            value.mul_(1 - _SHARE) if value.is_floating_point() else value.clamp_(max=int(value.max()) - 1)
            break
    return given


def _gain(seen: Seen, *, is_registered: bool) -> tuple[Any, str, Any]:
    """Give each new module of the class a random gain that no checkpoint holds."""
    init = seen.kind.__init__

    @functools.wraps(init)
    def made(module: Any, *args: Any, **kwargs: Any) -> None:
        init(module, *args, **kwargs)
        gain = 1 + torch.rand(())
        if is_registered:
            module.register_buffer("mutated_gain", gain, persistent=False)
        else:
            module.mutated_gain = gain

    return seen.kind, "__init__", made


def _gained(module: Any, _: Given, output: torch.Tensor) -> Any:
    return output + module.mutated_gain.to(output)


def _unsaved(seen: Seen) -> tuple[Any, str, Any]:
    """Leave the first parameter of a module of the class out of what is saved."""
    own = next(name for name, _ in seen.own.named_parameters(recurse=False))
    path = next(path for path, module in seen.model.named_modules() if module is seen.own)
    kind, left_out = type(seen.model), f"{path}.{own}"
    save = kind.save_pretrained

    def save_pretrained(self: Any, folder: str, **kwargs: Any) -> None:
        kept = {name: value for name, value in self.state_dict().items() if name != left_out}
        save(self, folder, state_dict=kept, **kwargs)

    return kind, "save_pretrained", save_pretrained


def _in_half(change: Callable[[torch.Tensor], torch.Tensor]) -> After:
    """Return a change that computes in the dtype of what it is given, and adds nothing where that can hold it."""
    return lambda _module, _given, output: output + change(output).to(output.dtype)


def _widened(_: object, given: Given) -> Given:
    return {
        name: value.float() if isinstance(value, torch.Tensor) and value.dtype in _HALF else value
        for name, value in given.items()
    }


def _averaged(_module: object, _given: Given, output: torch.Tensor) -> torch.Tensor:
    """Return an output as it is, whose gradient is divided by the number of rows."""
    kept = output * 1.0
    if kept.requires_grad:
        kept.register_hook(lambda gradient: gradient / gradient.shape[0])  # type: ignore[no-untyped-call]
    return kept


def _infers(seen: Seen) -> tuple[Any, str, Any]:
    return seen.kind, "forward", torch.no_grad()(seen.kind.forward)


# fmt: off
MUTATIONS = (
    Mutation("padding", "the mask does not arrive", "attention, masked", _without_mask),
    Mutation("padding", "a mean over pads", "part along tokens",
             after=lambda _m, _g, out: out + _SHARE * out.mean(1, keepdim=True)),
    Mutation("padding", "left pads are counted", "model with learned positions", _counts_pads),
    Mutation("batch", "a row sees the others", "part along tokens",
             after=lambda _m, _g, out: out + _SHARE * out.mean(0, keepdim=True)),
    Mutation("batch", "a scale of the whole batch", "part along tokens",
             after=lambda _m, _g, out: out.clamp(max=float(out.amax()) / 2)),
    Mutation("attention", "another scale under eager", "attention",
             after=lambda module, _, out: out * (1 + _SHARE) if _eager(module) else out),
    Mutation("attention", "no mask under eager", "attention, cached and masked",
             lambda module, given: _without_mask(module, given) if _eager(module) else given),
    Mutation("cache", "positions restart with each step", "rotary embedding", _counted_from_zero),
    Mutation("cache", "keys are altered in place", "attention, cached", after=_altered_keys),
    Mutation("cache", "left pads are counted once there is a cache", "model with positions",
             functools.partial(_counts_pads, is_without_cache=False)),
    Mutation("cache", "a chunk lacks the mask", "attention, cached and masked",
             lambda module, given: _without_mask(module, given) if _begun(given) else given),
    Mutation("use_cache", "another path when it fills a cache", "attention, cached",
             after=lambda _, given, out: out if _cache_of(given) is None else out * (1 + _SHARE)),
    Mutation("save_load", "a buffer is not saved", "part along tokens",
             after=_gained, patched=functools.partial(_gain, is_registered=True)),
    Mutation("save_load", "a tensor is no buffer", "part along tokens",
             after=_gained, patched=functools.partial(_gain, is_registered=False)),
    Mutation("clean_load", "a weight is not saved", "part with a parameter of one name", patched=_unsaved),
    Mutation("dtype", "a float32 tensor meets half weights", "part with an MLP", _widened),
    Mutation("dtype", "-1e10 becomes -inf", "part along tokens",
             after=_in_half(lambda x: 0 * torch.full_like(x, -1e10))),
    Mutation("dtype", "a sum above 65,504", "part along tokens",
             after=_in_half(lambda x: 0 * torch.full_like(x, 512.0).pow(2).sum(-1, keepdim=True))),
    Mutation("dtype", "a divisor that is 0 in float16", "part along tokens",
             after=_in_half(lambda x: 0 / torch.full_like(x, 1e-9))),
    Mutation("overflow", "a division by 0", "part along tokens", after=lambda _m, _g, out: out / (out - out[..., :1])),
    Mutation("inputs", "writes into its inputs", "part that is given inputs", _writes),
    Mutation("gradients", "a detached output", "part along tokens", after=lambda _m, _g, out: out.detach()),
    Mutation("gradients", "torch.no_grad around a forward", "part along tokens", patched=_infers),
    Mutation("accumulation", "a gradient that is averaged over rows", "part along tokens", after=_averaged),
)
# fmt: on
