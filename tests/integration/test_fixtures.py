"""The injected bugs do what their rows say, by plain forward hooks: nothing of the package is used here."""

import copy
import dataclasses
import inspect
from collections import defaultdict
from functools import cache

import pytest
import torch

import minilm_port
import models
from bugs import BUGS, SEEN_IN
from minilm_bugs import MINILM_BUGS
from rewriting import rewrite_forward

APPLICABLE = [bug for bug in BUGS if models.IS_V5 or not bug.needs_v5]
#: Those that show in what the modules give, and not first in what a cache holds.
SHOWN = [bug for bug in APPLICABLE if bug.injection != "cache"]


@cache
def clean(architecture):
    return models.build(architecture)


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


@cache
def minilm():
    return minilm_port.load_port(), minilm_port.encode()


def seen(architecture, bug=None):
    model, inputs = clean(architecture)
    if bug is not None:
        model = copy.deepcopy(model)
        bug.inject(model)
    output, calls = forward(model, inputs)
    root = type(model).__name__
    return tensors(output), {path or root: made for path, made in calls.items()}


@cache
def reference(architecture):
    return seen(architecture)


@pytest.mark.parametrize("architecture", models.ARCHITECTURES)
def test_model_is_the_same_in_every_build(architecture):
    first, second = (models.build(architecture) for _ in range(2))

    outputs = [tensors(forward(*built)[0]) for built in (first, second)]

    assert error(*outputs) == 0.0


def test_catalogue_covers_every_architecture_and_injection():
    counts = defaultdict(int)
    for bug in BUGS:
        counts[bug.architecture] += 1
        counts[bug.injection] += 1

    assert len(BUGS) == len({bug.name for bug in BUGS}) >= 44
    assert all(counts[name] >= 2 for name in models.ARCHITECTURES)
    assert sum(bug.number in SEEN_IN for bug in BUGS) >= 44
    assert min(counts[injection] for injection in ("attribute", "weight", "glue")) >= 10


@pytest.mark.parametrize("bug", SHOWN, ids=str)
def test_bug_changes_the_output_of_the_model(bug):
    expected, _ = reference(bug.architecture)
    actual, _ = seen(bug.architecture, bug)

    assert error(expected, actual) > 1e-4


@pytest.mark.parametrize("bug", [bug for bug in APPLICABLE if bug.injection == "cache"], ids=str)
def test_bug_in_a_cache_changes_that_alone(bug):
    model, inputs = clean(bug.architecture)
    port = copy.deepcopy(model)
    bug.inject(port)

    expected, actual = (forward(one, inputs)[0] for one in (model, port))

    assert error(tensors(expected), tensors(actual)) == 0.0
    assert len(cached(expected)) >= 4
    assert error(cached(expected), cached(actual)) > 1e-4


@pytest.mark.parametrize("bug", [bug for bug in SHOWN if bug.kind in {"module", "glue"}], ids=str)
def test_culprit_gets_right_inputs_and_gives_wrong_outputs(bug):
    _, expected = reference(bug.architecture)
    _, actual = seen(bug.architecture, bug)
    calls = [
        (error(one[0], other[0]), error(one[1], other[1]))
        for one, other in zip(expected[bug.culprit], actual[bug.culprit], strict=True)
    ]
    first_wrong = next(outputs for inputs, outputs in calls if inputs == 0.0 and outputs > 0.0)

    assert first_wrong > 1e-4


@pytest.mark.parametrize("bug", [bug for bug in APPLICABLE if bug.kind == "glue"], ids=str)
def test_children_of_a_glue_culprit_are_right(bug):
    model, _ = clean(bug.architecture)
    prefix = "" if bug.culprit == type(model).__name__ else f"{bug.culprit}."
    _, expected = reference(bug.architecture)
    _, actual = seen(bug.architecture, bug)
    inherited = [
        (inputs, outputs)
        for path in actual
        if path.startswith(prefix) and path != bug.culprit
        for one, other in zip(expected[path], actual[path], strict=True)
        if (inputs := error(one[0], other[0])) == 0.0 and (outputs := error(one[1], other[1])) > 0.0
    ]

    assert actual.keys() & {bug.culprit}
    assert inherited == []


@pytest.mark.parametrize("bug", [bug for bug in APPLICABLE if bug.kind in {"not-called", "extra-call"}], ids=str)
def test_call_counts_differ_at_the_culprit(bug):
    _, expected = reference(bug.architecture)
    _, actual = seen(bug.architecture, bug)
    change = len(actual.get(bug.culprit, ())) - len(expected[bug.culprit])

    assert {True: "extra-call", False: "not-called"}[change > 0] == bug.kind
    assert change != 0


@pytest.mark.parametrize("bug", APPLICABLE, ids=str)
def test_marked_lines_are_in_the_source_of_the_culprit(bug):
    model = copy.deepcopy(clean(bug.architecture)[0])
    bug.inject(model)
    culprit = model if bug.culprit == type(model).__name__ else model.get_submodule(bug.culprit)
    source = inspect.getsource(inspect.unwrap(type(culprit).forward))

    assert bug.lines is None or source.count(bug.lines) >= 1
    assert bug.lines is not None or bug.kind != "glue"


def test_rewritten_forward_changes_one_instance_and_shows_its_own_lines():
    model = copy.deepcopy(clean("llama")[0])
    first, second = model.model.layers[0].mlp, model.model.layers[1].mlp

    rewrite_forward(first, "down_proj = self.down_proj(", "down_proj = -self.down_proj(")

    x = torch.ones(1, 1, 64)
    plain = type(second).forward
    assert torch.equal(first(x), -plain(first, x))
    assert "-self.down_proj(" in inspect.getsource(type(first).forward)
    assert "-self.down_proj(" not in inspect.getsource(plain)
    assert type(first).__name__ == type(second).__name__
    assert isinstance(first, type(second))


def test_rewriting_refuses_text_that_is_not_there_once():
    model = copy.deepcopy(clean("llama")[0])

    with pytest.raises(ValueError, match=r"occurs 2 times in LlamaDecoderLayer\.forward, not once"):
        rewrite_forward(model.model.layers[0], "residual + hidden_states", "hidden_states")


def test_rows_of_the_catalogue_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        BUGS[0].culprit = "elsewhere"


def test_minilm_port_equals_the_transformers_model_on_real_sentences():
    port, inputs = minilm()
    with torch.no_grad():
        expected, actual = minilm_port.load_reference()(**inputs), port(**inputs)

    assert error([expected.last_hidden_state, expected.pooler_output], tensors(actual)) < 5e-6


def test_minilm_renames_every_parameter_to_one_of_the_checkpoint():
    port, _ = minilm()
    renamed = {minilm_port.reference_path(name) for name in port.state_dict()}

    assert renamed == set(minilm_port.load_reference().state_dict())


@pytest.mark.parametrize("bug", MINILM_BUGS, ids=str)
def test_minilm_bug_changes_the_output(bug):
    port, inputs = minilm()
    buggy = copy.deepcopy(port)
    bug.inject(buggy)

    outputs = [tensors(forward(model, inputs)[0]) for model in (port, buggy)]

    assert error(*outputs) > 1e-4
