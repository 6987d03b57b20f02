"""``--tf-certify``: how many changes of a port its test catches."""

import json

import pytest
import torch

PORT = """
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(size, size) for _ in range(3))
        self.norm, self.drop = nn.LayerNorm(size, eps=1e-6), nn.Dropout(0.0)

    def forward(self, hidden):
        normed = self.norm(hidden)
        scores = self.query(normed) @ self.key(normed).transpose(-1, -2)
        scores = scores / hidden.shape[-1] ** 0.5
        places = torch.arange(hidden.shape[1])
        distance = places[:, None] - places
        hidden_ones = (distance < 0) | (distance > 64)
        scores = scores.masked_fill(hidden_ones, float("-inf"))
        return hidden + self.drop(scores.softmax(-1) @ self.value(normed))


class Port(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.body, self.head = nn.Embedding(50, 16), Attention(16), nn.Linear(16, 50)

    def forward(self, ids):
        return self.head(self.body(self.embed(ids)))
"""
TEST = """
import pytest_tfdebug
import torch
from windowed import Port

def test_it(tf_golden):
    tf_golden.check(pytest_tfdebug.fill(Port().eval()), torch.arange(LENGTH * 2).view(2, LENGTH) % 50)
"""
DROPOUT, WINDOW = 9, 17


@pytest.fixture
def certified(pytester):
    """Return a function that certifies a test of a port with a window, on inputs of a length."""

    def certify(length, *arguments):
        pytester.makepyfile(windowed=PORT, test_windowed=TEST.replace("LENGTH", str(length)))
        pytester.syspathinsert()
        pytester.runpytest_inprocess("-p", "no:cacheprovider", "--tf-golden=update").assert_outcomes(passed=1)
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", "--tf-certify=60", *arguments)

    return certify


def kills(pytester):
    checks = json.loads((pytester.path / "checks.json").read_text())["checks"]
    return next(check["kills"] for check in checks if check["check"] == "certify")


def test_window_that_no_input_reaches_is_named_and_shaded(certified, pytester):
    result = certified(10, "--tf-json=checks.json", "--tf-html=pages")

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            (
                "test_windowed.py::test_it: * of * changes of windowed.py are caught by this test; * not: line 9 (training mode "
                "shows it), line 17 (an input of 300 tokens shows it)*"
            ),
            "    line 17: hidden_ones = (distance < 0) | (distance > 64)  ->  *(an input of 300 tokens shows it)",
            "    * changes tried; * raise, and say nothing.",
        ]
    )
    found = kills(pytester)
    shown = [each for each in found["survivors"] if each["shown_by"]]
    assert {(each["line"], each["shown_by"]) for each in shown} == {
        (DROPOUT, "training mode"),
        (WINDOW, "an input of 300 tokens"),
    }
    assert found["caught"] > 5
    assert found["tried"] == found["caught"] + found["raised"] + len(found["survivors"]) <= 60
    by_line = {row["line"]: row for row in found["lines"]}
    assert by_line[WINDOW]["missed"] >= 1
    assert sum(row["caught"] for row in found["lines"]) == found["caught"]
    assert [source["text"][WINDOW - 1].strip() for source in found["sources"]] == [
        "hidden_ones = (distance < 0) | (distance > 64)"
    ]
    (page,) = (pytester.path / "pages" / "checks").glob("*certify*.html")
    shaded = page.read_text()
    assert f'<tr class="missed" title="{by_line[WINDOW]["caught"]} caught, {by_line[WINDOW]["missed"]} missed' in shaded
    assert '<tr class="caught"' in shaded
    assert "an input of 300 tokens shows it" in shaded


def test_input_beyond_the_window_catches_them(certified, pytester):
    certified(80, "--tf-json=checks.json").assert_outcomes(passed=1)

    assert {each["line"] for each in kills(pytester)["survivors"] if each["shown_by"]} == {DROPOUT}


def test_certified_port_and_its_golden_are_as_they_were(pytester):
    own = "pytest_tfdebug.fill(Port().eval())"
    pytester.makepyfile(
        windowed=PORT,
        test_windowed=TEST.replace("LENGTH", "10").replace(f"{own}, ", f"{own}, reference=lambda: {own}, ids="),
    )
    pytester.syspathinsert()
    plain = ("-p", "no:cacheprovider")

    result = pytester.runpytest_inprocess(
        *plain, "--tf-golden=update", "--tf-certify=20", "--tf-repro", "--tf-json=checks.json"
    )

    import windowed

    result.assert_outcomes(passed=1)
    assert kills(pytester)["caught"] > 5
    assert windowed.Attention.forward.__code__.co_firstlineno == 11
    assert windowed.Port().eval()(torch.arange(4)[None]).shape == (1, 4, 50)
    assert not (pytester.path / "tfdebug-repro").exists()
    pytester.runpytest_inprocess(*plain).assert_outcomes(passed=1)


def test_time_for_a_test_is_bounded(certified):
    result = certified(10, "-o", "tf_certify_seconds=0")

    result.stdout.fnmatch_lines(["*No change of windowed.py says anything of this test: 0 of 0 raise."])


@pytest.mark.parametrize("number", ["many", "0"])
def test_what_is_no_number_is_refused(certified, number):
    result = certified(10, f"--tf-certify={number}")

    result.stderr.fnmatch_lines(
        [f"*--tf-certify={number} is no whole number from 1 on: --tf-certify=200 tries 200 changes of each port."]
    )
