"""What an update writes and says: sizes, progress, texts, and whether the port agrees with what it has just written."""

import pytest

import pytest_tfdebug.goldens.fixture  # noqa: F401 - loaded once for all runs

MODEL = """
import time
import torch

class Block(torch.nn.Module):
    def __init__(self, scale=1.0):
        super().__init__()
        self.up, self.down, self.scale = torch.nn.Linear(64, 128), torch.nn.Linear(128, 64), scale

    def forward(self, hidden):
        return hidden + self.down(torch.relu(self.up(hidden)) * self.scale)

class Model(torch.nn.Module):
    def __init__(self, scale=1.0):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(), Block(scale)])

    def forward(self, hidden, prompt="", seconds=0.0):
        time.sleep(seconds)
        for block in self.blocks:
            hidden = block(hidden)
        return hidden

def build(scale=1.0):
    torch.manual_seed(0)
    return Model(scale).eval()

HIDDEN = torch.linspace(-1, 1, 4 * 64 * 64).view(4, 64, 64).sin()
"""


@pytest.fixture
def run(pytester):
    def run_pytest(body, *arguments, ini="", marker=""):
        pytester.makepyfile(
            model=MODEL,
            test_it=f"import pytest\nfrom model import *\n\n{marker}\ndef test_port(tf_golden):\n    tf_golden.{body}\n",
        )
        pytester.makeini(f"[pytest]\n{ini}")
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", *arguments)

    return run_pytest


def golden(pytester):
    return pytester.path / "goldens" / "test_it" / "test_port.safetensors"


CHECK = "check(build(), HIDDEN)"


def test_golden_is_small_and_the_run_says_how_large(pytester, run):
    written = run(CHECK, "--tf-golden=update")
    held = run(CHECK)
    wrong = run("check(build(1.001), HIDDEN)")

    written.stdout.fnmatch_lines(["1 new", "  new      goldens/test_it/test_port.safetensors", "           ??? kB"])
    held.assert_outcomes(passed=1)
    wrong.stdout.fnmatch_lines(
        ["*Mismatched elements: about * / 32768 (*), estimated from the * that the golden keeps"]
    )


@pytest.mark.parametrize(
    "how",
    [
        {"body": 'check(build(), HIDDEN, store="full")'},
        {"marker": '@pytest.mark.tf_golden(store="full")'},
        {"ini": "tf_golden_store = full"},
    ],
)
def test_golden_keeps_every_element_when_it_is_asked_to(pytester, run, how):
    settings = {"body": CHECK, **how}

    run(settings.pop("body"), "--tf-golden=update", **settings)

    assert golden(pytester).stat().st_size > 4 * 16384 * 5


@pytest.mark.parametrize(
    ("ini", "told"),
    [
        ("tf_golden_store = all", "tf_golden_store='all' is not one of 'values', 'full'."),
        ("tf_golden_max_size = -1", 'tf_golden_max_size = \'-1\' is not a size such as "1 MB" or "64 kB".'),
    ],
)
def test_ini_value_that_makes_no_sense_is_refused(run, ini, told):
    run(CHECK, ini=ini).stdout.fnmatch_lines([f"*{told}"])


def test_golden_that_would_be_too_large_is_not_written(pytester, run):
    result = run('check(build(), HIDDEN, store="full")', "--tf-golden=update", ini="tf_golden_max_size = 100 kB")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*would take * kB, and tf_golden_max_size is 100 kB.", "*or raise tf_golden_max_size."]
    )
    assert not golden(pytester).exists()


def test_large_golden_is_warned_of(pytester, run):
    result = run(
        'check(torch.nn.Flatten(0), torch.zeros(3_000_000), store="full")', "--tf-golden=update", "-W", "default"
    )

    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*GoldenSizeWarning: goldens/test_it/test_port.safetensors takes 1?.? MB*"])


def test_recording_run_holds_the_port_to_what_it_has_just_written(pytester, run):
    right = run("check(build(), HIDDEN, reference=build)", "--tf-golden=update")
    golden(pytester).unlink()
    wrong = run("check(build(1.01), HIDDEN, reference=build)", "--tf-golden=update")
    again = run("check(build(), HIDDEN, reference=build)", "--tf-golden=update")

    right.assert_outcomes(passed=1)
    right.stdout.fnmatch_lines(["1 new", "1 golden: 7 of 7 calls compared*"])
    wrong.assert_outcomes(failed=1)
    wrong.stdout.fnmatch_lines(["*model.py:10 in blocks.1 (Block): *", "1 new"])
    again.stdout.fnmatch_lines(["1 unchanged"])


def test_cache_that_the_reference_has_filled_is_empty_for_the_port(run):
    body = "check(Keeps(), HIDDEN, reference=Keeps(), kept=[])"
    marker = """
class Keeps(torch.nn.Module):
    def forward(self, hidden, kept):
        kept.append(hidden)
        return hidden * len(kept)

"""
    run(body, "--tf-golden=update", marker=marker).assert_outcomes(passed=1)


def test_text_of_strings_is_told_of(run):
    prompt = "the patient is called Ada"
    plain = run(f"check(build(), HIDDEN, prompt={prompt!r})", "--tf-golden=update")
    held = run(f"check(build(), HIDDEN, prompt={prompt!r})")

    plain.stdout.fnmatch_lines(["           it holds the text of prompt, readable by anyone"])
    held.assert_outcomes(passed=1)


PORT = """
class Half(torch.nn.Module):
    def __init__(self, own, act):
        super().__init__()
        self.first, self.second, self.act = own.up, own.down, act

    def forward(self, x):
        wide = self.act(self.first(x))
        return self.second(wide) + x

class Port(torch.nn.Module):
    def __init__(self, act=torch.relu):
        super().__init__()
        own = build()
        self.one, self.two = Half(own.blocks[0], torch.relu), Half(own.blocks[1], act)

    def forward(self, x):
        return self.two(self.one(x))
"""


def test_port_with_names_of_its_own_is_held_to_a_golden(run):
    run("check(Port(), HIDDEN, reference=build)", "--tf-golden=update", marker=PORT).assert_outcomes(passed=1)
    right = run("check(Port(), HIDDEN, reference=build)", marker=PORT)
    wrong = run("check(Port(torch.nn.functional.gelu), HIDDEN, reference=build)", marker=PORT)

    right.assert_outcomes(passed=1)
    wrong.assert_outcomes(failed=1)
    wrong.stdout.fnmatch_lines(
        [
            "*test_it.py:11 in two (Half): computes a value that the reference never does",
            "*wide = self.act(self.first(x))",
        ]
    )


@pytest.mark.nightly
def test_explanation_that_takes_long_says_where_it_is(run):
    run("check(build(), HIDDEN, seconds=2.1)", "--tf-golden=update")

    long = run("check(build(3.0), HIDDEN, seconds=2.1)")

    long.stdout.fnmatch_lines(["explaining test_it.py::test_port: call * of *"])
