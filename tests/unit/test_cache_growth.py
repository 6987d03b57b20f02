"""A cache in a golden: of each step, what it added."""

import copy

import pytest
import torch
from torch import nn

from models import build
from pytest_tfdebug import Trace, compare, record
from pytest_tfdebug.records import TensorRecord
from pytest_tfdebug.tracing.budget import bounded
from pytest_tfdebug.tracing.cache_growth import CacheGrowth

STEPS = 12


@pytest.fixture(scope="module")
def llama():
    return build("llama")


def generated(model, ids):
    with record(model) as recorded, torch.no_grad():
        model.generate(ids, max_new_tokens=STEPS, min_new_tokens=STEPS, do_sample=False, pad_token_id=0)
    return recorded


@pytest.fixture(scope="module")
def steps(llama):
    return generated(llama[0], llama[1]["input_ids"])


@pytest.fixture(scope="module")
def held(steps, tmp_path_factory):
    path = tmp_path_factory.mktemp("caches") / "steps.safetensors"
    bounded(steps, 1).save(path)
    return Trace.load(path)


def in_cache(trace):
    for call in trace.calls:
        for write in call.writes:
            yield call, write.record


def test_the_elements_of_a_step_are_those_that_it_added(steps, held):
    grown = 0
    for (_, before), (call, kept) in zip(in_cache(steps), in_cache(held), strict=True):
        if kept.digest is not None and kept.digest.added is not None:
            axis, start = kept.digest.added
            part = before.tensor.narrow(axis, start, before.shape[axis] - start)
            assert (axis, part.shape[axis]) == (2, 1)
            assert set(kept.digest.elements.tolist()) <= set(part.flatten().tolist())
            assert call.call > 0
            grown += 1
    assert grown == 2 * 2 * (STEPS - 1)  # keys and values of two layers, after the first step


def test_the_same_steps_agree_with_their_golden(llama, held):
    report = compare(held, generated(*[llama[0], llama[1]["input_ids"]]))

    assert report.ok, str(report)
    assert report.coverage.share == 1.0


def test_a_wrong_element_that_a_step_added_or_one_before_it_is_seen(steps, held):
    for at in (-1, 0):
        changed = copy.deepcopy(steps)
        written = [record_ for _, record_ in in_cache(changed)][-1]
        written.tensor = written.tensor.clone()
        written.tensor[0, 0, at, 3] += 0.5

        found = [leaf for item in compare(held, changed, internal="fail").calls for leaf, _ in item.writes]

        assert sum(leaf.problem == "values" for leaf in found) == 1


def test_what_is_kept_of_a_cache_grows_with_its_steps_and_not_with_their_square(steps, held):
    whole = sum(record_.tensor.numel() for _, record_ in in_cache(steps))
    kept = sum(len(record_.digest.elements) for _, record_ in in_cache(held) if record_.digest is not None)

    assert kept * 4 < whole


@pytest.mark.parametrize(
    ("last", "now", "added"),
    [
        (torch.ones(1, 2, 3), torch.ones(1, 2, 4), (2, 3)),
        (torch.ones(1, 2, 3), torch.ones(1, 5, 3), (1, 2)),
        (torch.ones(1, 2, 3), torch.ones(1, 2, 3), None),
        (torch.ones(1, 2, 3), torch.ones(2, 2, 4), None),
        (torch.ones(1, 2, 3), torch.ones(1, 2, 2), None),
        (torch.ones(1, 2, 3), torch.zeros(1, 2, 4), None),
        (torch.ones(0), torch.ones(1, 2, 4), None),
        (torch.ones(1, 0, 3), torch.ones(1, 2, 3), None),
        (torch.ones(1, 2, 3), torch.ones(1, 2, 4).double(), None),
    ],
)
def test_what_was_added_is_the_end_of_one_axis_after_the_same_elements(last, now, added):
    growth = CacheGrowth()
    records = [
        TensorRecord(f"{cache}.layers[0].keys", tuple(each.shape), "", each)
        for cache, each in (("DynamicCache", last), ("['past_key_values']", now))
    ]

    assert growth.added(records[0], "write") is None
    assert growth.added(records[1], "input") == added


def test_what_is_no_cache_is_not_followed():
    growth, module = CacheGrowth(), nn.Identity()
    for tensor in (torch.ones(2, 3), module(torch.ones(2, 4))):
        assert growth.added(TensorRecord("['hidden']", tuple(tensor.shape), "", tensor), "input") is None
