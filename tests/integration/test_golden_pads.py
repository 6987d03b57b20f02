"""A golden check of padded inputs: what differs at pads alone is not named for a difference at real tokens."""

from pathlib import Path

import pytest
import torch  # noqa: F401 - pytester unloads what a run inside this process has loaded

import padded
import pytest_tfdebug.goldens.fixture  # noqa: F401 - loaded once for all runs
from padded import BUG

SUITE = Path(padded.__file__).read_text(encoding="utf-8")
SEARCH = ("-o", "tf_explain_seconds=30")
CHECK = """
from pytest_tfdebug import fill

def test_it(tf_golden):
    reference = fill(Reference().eval(), seed=0)
    tf_golden.check(Port(reference).eval(), IDS, MASK, reference=reference{more})
"""


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
def test_line_of_a_difference_at_real_tokens_is_named_despite_the_pads(run, more):
    result = run(BUG, more=more)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E *test_it.py:* in Port (Port): *",
            f"      return {BUG[1]}",
            "*This is about the rows without padding (1 of 2)*",
        ]
    )
    result.stdout.no_fnmatch_line("*torch.where(keep*")


def test_fault_of_padded_rows_is_told_behind_one_of_the_others(run):
    result = run(BUG, ("& mask.bool()[:, None]", ""), options=SEARCH)

    result.stdout.fnmatch_lines(
        [
            "E *test_it.py:42 in Port (Port): does something else here than the reference",
            "  2 faults: after these 2 changes every output agrees. Behind this one:",
            "    *test_it.py:41 in Port (Port): does something else here than the reference, in rows with padding; *",
            "*This is about the rows without padding (1 of 2)*; the",
            "  others differ still once that is mended.",
        ]
    )


def test_padded_rows_that_agree_once_the_others_are_mended_are_said_to(run):
    result = run(BUG, options=SEARCH)

    result.stdout.fnmatch_lines(["*This is about the rows without padding (1 of 2)*", "*agree once that is mended.*"])
    result.stdout.no_fnmatch_line("* faults*")


def test_rows_that_are_all_padded_are_compared_at_common_real_positions(run):
    result = run(BUG, ("MASK[0, :4] = 0", "MASK[:, :4] = 0"))

    result.stdout.fnmatch_lines(
        [
            f"      return {BUG[1]}",
            "*This is about the positions that no row pads (8 of 12)*",
        ]
    )


def test_difference_at_pads_alone_says_how_to_leave_them_out(run):
    told = run()
    counted = run(more=", positions=MASK")

    told.assert_outcomes(failed=1)
    told.stdout.fnmatch_lines(
        [
            "E *test_it.py:* in Port (Port): differs only at positions that attention_mask hides",
            "  The port differs from its golden. Every other position agrees.",
            "  Next: leave these positions out: positions=attention_mask",
        ]
    )
    counted.assert_outcomes(passed=1)


def test_bug_that_takes_padding_is_named_with_it(run):
    result = run(("& mask.bool()[:, None]", ""))

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *test_it.py:* in Port (Port): *", "*Next: fix the port; do not update the golden."])
    result.stdout.no_fnmatch_line("*Note: This is about*")


def test_port_that_cannot_be_called_without_padding_is_explained_with_it(run):
    result = run(BUG, ("m = self.inner", "m = self.inner; assert not mask.all(), 'no padding'"))

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *test_it.py:* in Port (Port): *"])
    result.stdout.no_fnmatch_line("*no padding*")
