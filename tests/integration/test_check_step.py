"""``tf_golden.check_step``: a training held to a golden, without its reference."""

import sys
from pathlib import Path

import pytest

FIXTURES = str(Path(__file__).parents[2] / "fixtures")
SUITE = """
import sys
sys.path.insert(0, {fixtures!r})
import torch
from torch import nn
from llama_port import Mixer, load_port, load_reference

IDS = torch.randint(0, 99, (2, 6), generator=torch.Generator().manual_seed(0))

def reference():
    model = load_reference()
    model.model.layers = model.model.layers[:1]
    model.config.num_hidden_layers = 1
    return model

def port():
    return load_port(reference())

def loss(model, ids):
    logits = model(ids)
    logits = logits if isinstance(logits, torch.Tensor) else logits.logits
    return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())

def train(model, ids, decay=0.01):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=decay)
    for _ in range(2):
        optimizer.zero_grad()
        loss(model, ids).backward()
        optimizer.step()

class Detached(Mixer):
    def forward(self, hidden):
        gate = self.gate(hidden)
        return self.narrow(nn.functional.silu(gate.detach()) * self.widen(hidden))

def test_step(tf_golden):
    model = port()
    {change}
    tf_golden.check_step(model, reference={reference}, run={run}, {more}batch=IDS)
"""


@pytest.fixture
def suite(pytester, monkeypatch):
    """Return a function that writes the test and runs it."""
    monkeypatch.setattr(sys, "path", [*sys.path])

    def run(*flags, change="pass", reference="reference", run="loss", more=""):
        source = SUITE.format(fixtures=FIXTURES, change=change, reference=reference, run=run, more=more)
        pytester.makepyfile(test_it=source)
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", *flags)

    return run


def test_golden_of_a_step_is_recorded_and_holds_the_port(suite, pytester):
    suite("--tf-golden=update").assert_outcomes(passed=1)
    files = list((pytester.path / "goldens").rglob("*.safetensors"))

    suite(reference="None").assert_outcomes(passed=1)
    assert len(files) == 1
    assert files[0].stat().st_size < 200_000


def test_backward_bug_is_named_from_the_golden_alone(suite):
    suite("--tf-golden=update")

    result = suite(reference="None", change="model.blocks[0].mixer.__class__ = Detached")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*test_it.py:* in blocks.0.mixer (Detached): detach leaves the graph here",
            "*return self.narrow(nn.functional.silu(gate.detach()) * self.widen(hidden))",
            "*Proved: without this detach, every gradient agrees.",
        ]
    )


def test_training_is_held_to_the_golden_alone(suite):
    suite("--tf-golden=update", run="train").assert_outcomes(passed=1)

    other = "port_run=lambda model, ids: train(model, ids, decay=0.1), "
    result = suite(reference="None", run="train", more=other)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*AdamW has weight_decay 0.1; the reference has 0.01"])


def test_another_batch_than_the_golden_was_recorded_with_is_told(suite):
    suite("--tf-golden=update")

    result = suite(change="IDS.add_(1).remainder_(99)")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*The batch is another than the one that *.safetensors was recorded with, so nothing can be said of the port.",
            "*To record the step of this one, run: pytest *test_it.py::test_step --tf-golden=update",
        ]
    )


def test_same_step_leaves_its_golden_alone(suite, pytester):
    suite("--tf-golden=update")
    (file,) = (pytester.path / "goldens").rglob("*.safetensors")
    before = file.stat().st_mtime_ns

    suite("--tf-golden=update").assert_outcomes(passed=1)

    assert file.stat().st_mtime_ns == before


def test_missing_golden_of_a_step_says_what_to_type(suite):
    result = suite(reference="None")

    result.stdout.fnmatch_lines(["*has no golden yet*", "*--tf-golden=missing*"])


def test_damaged_golden_of_a_step_is_refused(suite, pytester):
    suite("--tf-golden=update")
    (file,) = (pytester.path / "goldens").rglob("*.safetensors")
    held = bytearray(file.read_bytes())
    held[-40] ^= 255
    file.write_bytes(held)

    result = suite(reference="None")

    result.stdout.fnmatch_lines(["*is damaged*", "*Restore it from version control.*"])
