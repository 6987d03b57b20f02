"""A short form of ``utils/harden.py``: no check changes a model, also where its forward raises."""

import warnings
from itertools import product

import pytest
import torch

import pytest_tfdebug
from harden import CHECKS, RAISED, InThread, built, play

#: Weight norm, buffers that are inputs of modules, and random masks of NumPy.
KINDS = ("bert", "wav2vec2")


@pytest.fixture(scope="module", params=KINDS)
def model_and_inputs(request):
    return built(request.param)


@pytest.mark.parametrize("check", CHECKS)
def test_check_leaves_a_model_as_it_was(model_and_inputs, check, tmp_path):
    model, inputs = model_and_inputs

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        changed = [
            problem
            for is_training, raised, is_threaded in product((False, True), (None, RAISED[1]), (False, True))
            for problem in play(
                check, (InThread(model) if is_threaded else model).train(is_training), inputs, tmp_path, raised
            )
        ]

    assert changed == []


@pytest.mark.parametrize("raised", RAISED, ids=lambda kind: kind.__name__)
def test_whatever_a_forward_raises_comes_out(model_and_inputs, raised, tmp_path):
    model, inputs = model_and_inputs

    assert play("golden", InThread(model).train(), inputs, tmp_path, raised) == []


def test_forward_computes_float32_as_float32_and_the_settings_are_put_back():
    class Asks(torch.nn.Module):
        def forward(self, x):
            told.append((torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32))
            return x + 1

    told, before = list[tuple[str, bool]](), torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        pytest_tfdebug.trace(Asks(), torch.ones(2))

        assert told == [("highest", not torch.cuda.is_available())]  # without a GPU nothing reads cuDNN's setting
        assert torch.get_float32_matmul_precision() == "high"
        assert torch.backends.cudnn.allow_tf32
    finally:
        torch.set_float32_matmul_precision(before)
