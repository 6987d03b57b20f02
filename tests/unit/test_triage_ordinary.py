"""Failures that are nobody's but the test's: they get no triage, whatever words their texts use."""

import asyncio
import ctypes
import json
import os
import pickle
import socket
import subprocess
import sys
import unittest
from unittest.mock import Mock

import pytest
import torch
from transformers import BertConfig, BertModel

from pytest_tfdebug.triage.plugin import classify
from pytest_tfdebug.triage.rules import Failure


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
    except (AssertionError, RuntimeError) as error:  # what torch raises depends on its build
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
    return torch.zeros(1, 3) @ Port(4).linear.weight


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
    with pytest.raises((AssertionError, RuntimeError), match="cache"):  # what torch raises depends on its build
        torch.zeros(1).cuda()


def recursion():
    return recursion()


def group_of_ordinary_errors():
    if sys.version_info < (3, 11):
        raise ValueError("no exception groups yet")
    raise ExceptionGroup("two", [KeyError("cache"), ValueError("cuda")])  # noqa: F821 - new in Python 3.11


def model_of_the_users_raises():
    def forward(*_args):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")

    port = Port(4)
    port.forward = forward
    port(torch.zeros(1, 4))


def mocked_download():
    load = Mock(side_effect=OSError("We couldn't connect to 'https://huggingface.co' to load the files"))
    load("org/tiny")


def other_service_is_down():
    answer("503 Server Error: Service Unavailable for url: https://build.example.org/cache")


def other_service_limits():
    answer("429 Client Error: Too Many Requests for url: https://build.example.org/token")


def answer(text):
    """Raise as requests does for any server: an OSError, from no file of the user's."""
    exec("raise HTTPError(text)", {"HTTPError": type("HTTPError", (OSError,), {}), "text": text})  # noqa: S102


def connection_refused():
    socket.create_connection(("127.0.0.1", 9), timeout=1)


def library_of_the_users():
    ctypes.CDLL("libmine_cuda.so")


def shard_that_no_index_names():
    open("cache/model-00001-of-00002.safetensors", encoding="utf-8").read()  # noqa: SIM115, PTH123 - as users write it


def no_checkpoint_in_torch_load():
    torch.load("no-such-file.pt")


def stop_iteration():
    next(iter([]))


def missing_environment_variable():
    os.environ["HF_TOKEN_OF_MINE"]


def permission():
    raise PermissionError(13, "Permission denied", "/root/.cache/huggingface/token")


def attribute_of_the_users_cache():
    class Cache(dict):
        pass

    Cache().get_cuda()


def argument_of_the_users_trainer():
    class Trainer:
        def __init__(self, model):
            self.model = model

    Trainer(1, tokenizer=2)


def pickle_of_the_users():
    pickle.loads(b"\x80\x04junk")  # noqa: S301 - it fails to load


def config_without_the_attribute():
    BertConfig().cache_size  # noqa: B018 - that it is missing is the point


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
    unknown_attribute_of_a_model,
    type_error,
    assertion_of_unittest,
    did_not_raise,
    raised_another,
    recursion,
    model_of_the_users_raises,
    mocked_download,
    other_service_is_down,
    other_service_limits,
    connection_refused,
    library_of_the_users,
    shard_that_no_index_names,
    no_checkpoint_in_torch_load,
    stop_iteration,
    missing_environment_variable,
    permission,
    attribute_of_the_users_cache,
    argument_of_the_users_trainer,
    pickle_of_the_users,
    config_without_the_attribute,
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


#: What libraries say, each in the type that they raise: a test that raises the text itself only quotes it.
QUOTED = [
    OSError(
        "We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the cached files."
    ),
    OSError("my-model is not a local folder and is not a valid model identifier"),
    OSError("v2 is not a valid git identifier (branch name, tag name or commit id)"),
    OSError("You are trying to access a gated repo."),
    OSError("org/tiny does not appear to have a file named config.json. Checkout"),
    OSError("It looks like the config file at 'settings.json' is not a valid JSON file."),
    OSError("Can't load configuration for 'me'"),
    OSError("PermissionError at /cache when downloading org/tiny"),
    OSError("libcudart.so.12: cannot open shared object file: No such file or directory"),
    ValueError("Repo id must be in the form 'name': 'x'"),
    ValueError("Unrecognized configuration class <class 'x.Foo'> for this kind of AutoModel: AutoModelForCausalLM"),
    ValueError("has model type `x` but Transformers does not recognize this architecture"),
    KeyError("Unknown task deploy, available tasks are ['build']"),
    FileNotFoundError(2, "No such file or directory", "cache/model-00001-of-00002.safetensors"),
    ModuleNotFoundError("No module named 'einops'"),
    ImportError("my plugin requires the foo library but it was not found in your environment"),
    ImportError("numpy>=9 is required for a normal functioning of this module, but found numpy==1"),
    TypeError("BertModel.__init__() got an unexpected keyword argument 'tokens'"),
    RuntimeError("CUDA error: device-side assert triggered"),
    RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB"),
    RuntimeError("No CUDA GPUs are available"),
    RuntimeError("operator torchvision::nms does not exist"),
    RuntimeError("FlashAttention only supports Ampere GPUs or newer."),
    RuntimeError("You set `ignore_mismatched_sizes` to `False`"),
]


@pytest.mark.parametrize("error", QUOTED, ids=lambda error: str(error)[:30])
def test_text_of_a_library_that_a_test_raises_itself_gets_no_triage(triage_of, error):
    def fail():
        raise error

    assert triage_of(fail) is None
