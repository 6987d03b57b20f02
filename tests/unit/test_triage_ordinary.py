"""Failures that are nobody's but the test's: they get no triage, whatever words their texts use."""

import asyncio
import json
import subprocess
import sys
import unittest

import pytest
import torch
from transformers import BertConfig, BertModel

from pytest_tfdebug.triage.classify import classify
from pytest_tfdebug.triage.failure import Failure


class Port(torch.nn.Module):
    """A model of the user's own, with a bug in each method."""

    def __init__(self, hidden_size):
        super().__init__()
        self.linear = torch.nn.Linear(hidden_size, 2)

    def forward(self, hidden_states):
        return self.linear(hidden_states)


def plain_assertion():
    assert 1 + 1 == 3


def assertion_about_a_cuda_text():
    text = "CUDA out of memory. Tried to allocate 2.00 GiB"
    assert text == "ok"


def assertion_on_a_handled_error():
    try:
        torch.zeros(1).cuda()
    except AssertionError as error:
        assert "another text" in str(error)  # noqa: PT017 - the ordinary failure that this is about


def tensors_not_close():
    torch.testing.assert_close(torch.zeros(2), torch.ones(2))


def key_error_cache():
    return {}["cache"]


def key_error_cuda():
    return {"cpu": 0}["cuda"]


def index_error():
    values = [1, 2]
    return values[5]


def quoted_index_error():
    raise IndexError("index out of range in self")


def user_error_that_mentions_cuda():
    raise RuntimeError("the CUDA error counter of tenant 7 is stale")


def user_error_that_mentions_memory():
    raise RuntimeError("simulated: CUDA out of memory in worker 3")


def user_error_that_mentions_cache():
    raise OSError("cannot find the cache directory of the tenant")


def user_error_that_mentions_a_dtype():
    raise RuntimeError("both columns must have the same dtype")


def user_error_that_mentions_devices():
    raise ValueError("expected all meters to be on the same device")


def timeout():
    asyncio.run(asyncio.wait_for(asyncio.sleep(10), 0.01))


def process_timeout():
    subprocess.run([sys.executable, "-c", "import time; time.sleep(10)"], timeout=0.05, check=True)


def missing_file():
    with open("no-such-fixture.json", encoding="utf-8") as file:  # noqa: PTH123 - as users write it
        return file.read()


def missing_module_of_the_users():
    import no_such_helper_of_mine  # noqa: F401 - that it is missing is the point


def missing_name_of_the_users():
    from json import no_such_name  # noqa: F401 - that it is missing is the point


def bad_json():
    return json.loads("<html>")


def unexpected_argument_of_the_users():
    return Port(4, device="cuda")


def no_attribute_of_the_users():
    return Port(4).generate(torch.zeros(1, 4))


def shapes_do_not_meet():
    return Port(4)(torch.zeros(1, 3))


def sizes_do_not_broadcast():
    return torch.zeros(3) + torch.zeros(4)


def unknown_attribute_of_a_model():
    config = BertConfig(vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1)
    return BertModel(config).no_such_layer


def type_error():
    return len(3)


def assertion_of_unittest():
    unittest.TestCase().assertEqual({"device": "cuda"}, {"device": "cpu"})  # noqa: PT009 - TestCases fail like this


def did_not_raise():
    with pytest.raises(RuntimeError, match="CUDA error: device-side assert triggered"):
        pass


def raised_another():
    with pytest.raises(AssertionError, match="cache"):
        torch.zeros(1).cuda()


def recursion():
    return recursion()


def group_of_ordinary_errors():
    if sys.version_info < (3, 11):
        raise ValueError("no exception groups yet")
    raise ExceptionGroup("two", [KeyError("cache"), ValueError("cuda")])  # noqa: F821 - new in Python 3.11


ORDINARY = [
    plain_assertion,
    assertion_about_a_cuda_text,
    assertion_on_a_handled_error,
    tensors_not_close,
    key_error_cache,
    key_error_cuda,
    index_error,
    quoted_index_error,
    user_error_that_mentions_cuda,
    user_error_that_mentions_memory,
    user_error_that_mentions_cache,
    user_error_that_mentions_a_dtype,
    user_error_that_mentions_devices,
    timeout,
    process_timeout,
    missing_file,
    missing_module_of_the_users,
    missing_name_of_the_users,
    bad_json,
    unexpected_argument_of_the_users,
    no_attribute_of_the_users,
    shapes_do_not_meet,
    sizes_do_not_broadcast,
    unknown_attribute_of_a_model,
    type_error,
    assertion_of_unittest,
    did_not_raise,
    raised_another,
    recursion,
    group_of_ordinary_errors,
]


@pytest.mark.parametrize("fail", ORDINARY, ids=lambda fail: fail.__name__)
def test_ordinary_failure_gets_no_triage(fail):
    error = None
    try:
        fail()
    except BaseException as raised:  # noqa: BLE001 - pytest's own verdicts are no Exceptions
        error = raised

    assert error is not None
    assert classify(Failure.of(error, "tests/test_it.py::test_it", "call")) is None
