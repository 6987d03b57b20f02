"""Modules that are one on one side alone: the report says which, and where they are made."""

import copy

import torch
import transformers

import pytest_tfdebug
from golden_files import held

IDS = {"input_ids": torch.tensor([[5, 6, 7, 8], [9, 10, 3, 4]])}
SMALL = {"vocab_size": 64, "n_embd": 32, "n_layer": 3, "n_head": 4, "use_cache": False}


def of_shared_layers():
    """Return a GPT-2 in which the last two layers are one."""
    model = pytest_tfdebug.fill(transformers.GPT2Model(transformers.GPT2Config(**SMALL)).eval(), seed=0)
    model.h[2] = model.h[1]
    return model


def test_module_that_the_reference_has_once_is_told_and_run_as_one(tmp_path):
    reference = of_shared_layers()
    port = copy.deepcopy(reference)
    port.h[2] = copy.deepcopy(reference.h[0])

    report = held(tmp_path, reference, port, IDS)

    wrong = "holds 'h.2' beside 'h.1', and in the reference both are one module"
    assert (report.culprit.path, report.culprit.wrong, report.culprit.certain) == ("GPT2Model", wrong, True)
    assert report.culprit.why == "As one module every output agrees."
    assert port.h[2] is not port.h[1]


def test_module_that_stands_for_two_of_the_references_is_told_as_uncertain(tmp_path):
    reference = pytest_tfdebug.fill(transformers.GPT2Model(transformers.GPT2Config(**SMALL)).eval(), seed=0)
    port = copy.deepcopy(reference)
    port.h[2] = port.h[1]  # ``[block] * 2``

    report = held(tmp_path, reference, port, IDS)

    wrong = "holds one module as 'h.1' and 'h.2', and in the reference these are two"
    assert (report.culprit.path, report.culprit.wrong, report.culprit.certain) == ("GPT2Model", wrong, False)
    assert report.culprit.why == "All that it is given agrees, and what it returns for the second does not."


def test_modules_of_the_same_weights_are_not_blamed_for_being_two(tmp_path):
    reference = of_shared_layers()
    port = copy.deepcopy(reference)
    port.h[2] = copy.deepcopy(port.h[1])
    port.ln_f.eps = 1e-1

    report = held(tmp_path, reference, port, IDS)

    assert report.culprit.path == "ln_f"


class Wraps(torch.nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x):
        return self.block(x)


class Twice(torch.nn.Module):
    def __init__(self, block):
        super().__init__()
        self.steps = torch.nn.ModuleList([Wraps(block) for _ in range(2)])

    def forward(self, x):
        for step in self.steps:
            x = step(x)
        return x


def test_module_that_two_hold_which_one_line_makes_is_told_at_that_line(tmp_path):
    block = transformers.GPT2Model(transformers.GPT2Config(**SMALL)).eval().h[0]
    reference, port = Twice(block), Twice(block)
    reference.steps[1].block = copy.deepcopy(block)
    pytest_tfdebug.fill(reference, seed=0)
    pytest_tfdebug.fill(port, seed=0)

    report = held(tmp_path, reference, port, {"x": torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(1))})

    wrong = "holds one module as 'steps.0.block' and 'steps.1.block', and in the reference these are two"
    assert (report.culprit.path, report.culprit.wrong) == ("Twice", wrong)
