"""The rows of the catalogue of bugs are true, by plain forward hooks: nothing of the package is used here."""

import copy
import inspect
from collections import Counter, defaultdict
from functools import cache

import torch

import models
from bugs import BUGS, SEEN_IN

APPLICABLE = [bug for bug in BUGS if models.IS_V5 or not bug.needs_v5]


def tensors(value):
    """A copy of every tensor in nested containers, None for the rest (caches are not looked into)."""
    if isinstance(value, torch.Tensor):
        return [value.clone()]
    if isinstance(value, dict):
        return [tensor for item in value.values() for tensor in tensors(item)]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in tensors(item)]
    return [None]


def cached(output):
    """Every tensor in the cache that a model returns."""
    found, todo = [], [output.get("past_key_values", output.get("cache_params"))]
    while todo:
        item = todo.pop(0)
        if isinstance(item, torch.Tensor):
            found.append(item)
        elif isinstance(item, (list, dict)):
            todo += item.values() if isinstance(item, dict) else item
        elif type(item).__module__ == "transformers.cache_utils":
            todo += vars(item).values()
    return found


def forward(model, inputs):
    """Run the model and return its output and, per module path, the calls as (inputs, outputs)."""
    calls = defaultdict(list)
    hooks = [
        module.register_forward_hook(
            lambda _, args, kwargs, output, path=path: calls[path].append((tensors([args, kwargs]), tensors(output))),
            with_kwargs=True,
        )
        for path, module in model.named_modules()
    ]
    with torch.no_grad():
        output = model(**inputs)
    for hook in hooks:
        hook.remove()
    return output, calls


def error(expected, actual):
    """Greatest relative L2 error between two lists of tensors, inf where one has a tensor that the other lacks."""
    if len(expected) != len(actual):
        return float("inf")
    pairs = [(one, other) for one, other in zip(expected, actual, strict=True) if (one is None) != (other is None)]
    if pairs or any(o.shape != a.shape for o, a in zip(expected, actual, strict=True) if o is not None):
        return float("inf")
    errors = [
        ((one.double() - other.double()).norm() / one.double().norm().clamp(min=1e-30)).item()
        for one, other in zip(expected, actual, strict=True)
        if one is not None
    ]
    return max(errors, default=0.0)


def culprit_of(bug, model):
    return model if bug.culprit == type(model).__name__ else model.get_submodule(bug.culprit)


@cache
def reference(architecture):
    model, inputs = models.build(architecture)
    return model, inputs, *forward(model, inputs)


def untrue(bug):
    """Yield what a row says that is not so."""
    model, inputs, *right = reference(bug.architecture)
    port = copy.deepcopy(model)
    bug.inject(port)
    wrong = forward(port, inputs)

    if not differs(bug, right[0], wrong[0]):
        yield "the output is wrong, or what a cache holds and nothing else"
    path = "" if bug.culprit == type(model).__name__ else bug.culprit
    calls = compared(right[1].get(path, ()), wrong[1].get(path, ()))
    if bug.kind in {"not-called", "extra-call"}:
        more = len(wrong[1].get(path, ())) - len(right[1].get(path, ()))
        if not more or (more > 0) != (bug.kind == "extra-call"):
            yield "the culprit is called too often or too rarely"
    elif bug.injection != "cache" and bug.kind != "weights" and not any(same and off > 1e-4 for same, off in calls):
        yield "the culprit gets right inputs and gives wrong outputs"
    if bug.kind == "glue" and any(same and off for same, off in children(path, right[1], wrong[1])):
        yield "the children of the culprit are right"
    methods = inspect.getmembers(type(culprit_of(bug, port)), inspect.isfunction)
    sources = [inspect.getsource(inspect.unwrap(method)) for _, method in methods]
    if not any((bug.lines or "") in source for source in sources) or (bug.kind == "glue" and bug.lines is None):
        yield "its lines stand in a method of the culprit"


def differs(bug, expected, actual):
    """Tell whether an output is wrong, or where it should be so what its cache holds alone."""
    change = error(tensors(expected), tensors(actual))
    if bug.injection != "cache":
        return change > 1e-4
    return change == 0.0 and error(cached(expected), cached(actual)) > 1e-4


def children(path, expected, actual):
    """Yield what ``compared`` does for every call inside a module."""
    for inner in actual:
        if inner != path and inner.startswith(f"{path}." if path else ""):
            yield from compared(expected.get(inner, ()), actual[inner])


def compared(expected, actual):
    """Yield for each call whether its inputs are right, and the error of its outputs."""
    for one, other in zip(expected, actual, strict=False):
        yield error(one[0], other[0]) == 0.0, error(one[1], other[1])


def test_catalogue_is_true_and_covers_every_architecture_and_injection():
    counts = Counter(kind for bug in BUGS for kind in (bug.architecture, bug.injection))

    assert {bug.name: found for bug in APPLICABLE if (found := list(untrue(bug)))} == {}
    assert len(BUGS) == len({bug.name for bug in BUGS}) >= 44
    assert all(counts[name] >= 2 for name in models.ARCHITECTURES)
    assert sum(bug.number in SEEN_IN for bug in BUGS) >= 44
    assert min(counts[injection] for injection in ("attribute", "weight", "glue")) >= 10
