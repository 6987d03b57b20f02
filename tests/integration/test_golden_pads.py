"""A golden check of padded inputs: what differs at pads alone is not named for a difference at real tokens."""

import pytest
import torch  # noqa: F401 - pytester unloads what a run inside this process has loaded

import pytest_tfdebug.goldens.fixture  # noqa: F401 - loaded once for all runs

#: A decoder, and a port of other names that fills hidden scores with another number: rows without any key differ.
SUITE = """
import torch
from pytest_tfdebug import fill
from torch import nn

LAST = torch.finfo(torch.float32).min

class Reference(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Embedding(40, 16), nn.LayerNorm(16)
        self.q, self.k, self.v, self.o = (nn.Linear(16, 16) for _ in range(4))
        self.head = nn.Linear(16, 40)

    def forward(self, input_ids, attention_mask=None):
        x = self.embed(input_ids)
        y = self.norm(x)
        hidden = torch.ones(2 * (y.shape[1],), dtype=torch.bool).triu(1) | (attention_mask == 0)[:, None]
        scores = self.q(y) @ self.k(y).mT / 4
        probs = scores.masked_fill(hidden, LAST).softmax(-1).masked_fill(hidden, 0)
        return self.head(x + self.o(probs @ self.v(y)))

class Port(nn.Module):
    def __init__(self, reference):
        super().__init__()
        self.inner = nn.ModuleDict(dict(reference.named_children()))

    def forward(self, ids, mask):
        m = self.inner
        x = m["embed"](ids)
        y = m["norm"](x)
        keep = torch.ones(2 * (y.shape[1],), dtype=torch.bool).tril() & mask.bool()[:, None]
        scores = torch.where(keep, m["q"](y) @ m["k"](y).mT / 4, -1e9)
        mixed = scores.softmax(-1) @ m["v"](y)
        return m["head"](x + m["o"](mixed))

IDS = torch.arange(3, 27).reshape(2, 12)
MASK = torch.ones_like(IDS)
MASK[0, :4] = 0
"""
CHECK = """
def test_it(tf_golden):
    reference = fill(Reference().eval(), seed=0)
    tf_golden.check(Port(reference).eval(), IDS, MASK, reference=reference{more})
"""
#: The port mixes what it should add: the only difference at real tokens.
BUG = 'm["head"](x + m["o"](mixed))', 'm["head"](y + m["o"](mixed))'


@pytest.fixture
def run(pytester):
    """Record a golden, and hold the port to it after some replacements in the file."""

    def run_pytest(*replacements, more="", options=()):
        text = SUITE + CHECK.format(more=more)
        for old, new in replacements:
            assert old in text
            text = text.replace(old, new)
        pytester.makepyfile(test_it=text)
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", "--tf-golden=update", *options)

    return run_pytest


@pytest.mark.parametrize("more", ["", ", positions=MASK"])
def test_the_line_of_a_difference_at_real_tokens_is_named_whatever_differs_at_pads(run, more):
    result = run(BUG, more=more)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E *test_it.py:* in Port (Port): *",
            f"      return {BUG[1]}",
            "*Note: This is about the rows without padding (1 of 2), which differ as well.",
        ]
    )
    result.stdout.no_fnmatch_line("*torch.where(keep*")


def test_of_rows_that_are_all_padded_the_common_real_positions_are_looked_at(run):
    result = run(BUG, ("MASK[0, :4] = 0", "MASK[:, :4] = 0"))

    result.stdout.fnmatch_lines(
        [
            f"      return {BUG[1]}",
            "*Note: This is about the positions that no row pads (8 of 12), which differ as well.",
        ]
    )


def test_a_difference_at_pads_alone_says_how_to_leave_them_out(run):
    told = run()
    counted = run(more=", positions=MASK")

    told.assert_outcomes(failed=1)
    told.stdout.fnmatch_lines(
        [
            "E *Port (Port): differs only at positions that attention_mask hides",
            "  The port differs from its golden. Every other position agrees.",
            "  Next: leave these positions out: positions=attention_mask",
        ]
    )
    counted.assert_outcomes(passed=1)


def test_a_bug_that_takes_padding_is_named_with_it(run):
    result = run(("& mask.bool()[:, None]", ""))

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *test_it.py:* in Port (Port): *", "*Next: fix the port; do not update the golden."])
    result.stdout.no_fnmatch_line("*Note: This is about*")


def test_a_port_that_cannot_be_called_without_padding_is_explained_with_it(run):
    result = run(BUG, ("m = self.inner", "m = self.inner; assert not mask.all(), 'no padding'"))

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *test_it.py:* in Port (Port): *"])
    result.stdout.no_fnmatch_line("*no padding*")
