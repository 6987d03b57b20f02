"""The functions that made a port run once more, so that a wrong parameter is told at the line that laid it out."""

import linecache
import sys

import pytest
import torch
from torch import nn

import pytest_tfdebug
from pytest_tfdebug.constructed import makers_of, noted
from pytest_tfdebug.parity.proof import prove
from pytest_tfdebug.tracing.values import constructors
from pytest_tfdebug.tracing.values.conversions import Conversions

X = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(3))


@pytest.fixture(autouse=True)
def _as_long_as_it_takes(monkeypatch, one_thread):
    monkeypatch.setattr(prove, "SECONDS", 20.0)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k, self.v, self.out = (nn.Linear(8, 8) for _ in range(4))
        self.before, self.after = nn.LayerNorm(8), nn.LayerNorm(8)
        for norm in (self.before, self.after):
            nn.init.normal_(norm.weight, 1.0, 0.3)

    def forward(self, x):
        x = self.before(x)
        scores = self.q(x) @ self.k(x).mT / 8**0.5
        return self.after(self.out(scores.softmax(-1) @ self.v(x)))


class Fused(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.ParameterDict(
            {
                "qkv/w": torch.zeros(8, 24),
                "qkv/b": torch.zeros(24),
                "out/w": torch.zeros(8, 8),
                **{f"{name}/{kind}": torch.zeros(8) for name in ("before", "after") for kind in ("w", "b")},
                "out/b": torch.zeros(8),
            }
        )

    def norm(self, x, name):
        return nn.functional.layer_norm(x, (8,), self.w[f"{name}/w"], self.w[f"{name}/b"])

    def forward(self, x):
        x = self.norm(x, "before")
        q, k, v = (x @ self.w["qkv/w"] + self.w["qkv/b"]).chunk(3, -1)
        mixed = (q @ k.mT / 8**0.5).softmax(-1) @ v
        return self.norm(mixed @ self.w["out/w"] + self.w["out/b"], "after")


PARTS = ("q", "k", "v")


def fused(state, order):
    weight = torch.cat([state[f"{part}.weight"] for part in order])
    return {"qkv/w": weight.t(), "qkv/b": torch.cat([state[f"{part}.bias"] for part in order])}


def norm(state, name, source):
    return {f"{name}/w": state[f"{source}.weight"], f"{name}/b": state[f"{source}.bias"]}


def load(new):
    port = Fused()
    with torch.no_grad():
        for name, value in new.items():
            port.w[name].copy_(value)
    return port.eval()


def right(reference):
    state = reference.state_dict()
    out = {"out/w": state["out.weight"].t(), "out/b": state["out.bias"]}
    return load({**fused(state, PARTS), **norm(state, "before", "before"), **norm(state, "after", "after"), **out})


def with_one_norm(reference):
    state = reference.state_dict()
    out = {"out/w": state["out.weight"].t(), "out/b": state["out.bias"]}
    last = norm(state, "after", "before")
    return load({**fused(state, PARTS), **norm(state, "before", "before"), **last, **out})


def with_scaled_bias(reference):
    state = reference.state_dict()
    out = {"out/w": state["out.weight"].t(), "out/b": state["out.bias"]}
    joined = fused(state, PARTS)
    joined["qkv/b"] = joined["qkv/b"] * 2
    return load({**joined, **norm(state, "before", "before"), **norm(state, "after", "after"), **out})


def culprit_of(convert):
    with noted():
        reference = Attention().eval()
        port = convert(reference)
        traces = pytest_tfdebug.trace(reference, X), pytest_tfdebug.trace(port, X)
        return pytest_tfdebug.compare(*traces, rename=None).culprit


def lines_of(source):
    return [linecache.getline(source.file, line).strip() for line in range(source.first, source.last + 1)]


@pytest.mark.parametrize(
    ("convert", "line"),
    [
        (with_one_norm, 'last = norm(state, "after", "before")'),  # the function is right, and called for another
        (with_scaled_bias, 'joined["qkv/b"] = joined["qkv/b"] * 2'),  # one step more than its weight
    ],
)
def test_line_that_made_a_wrong_parameter_is_told(convert, line):
    assert line in lines_of(culprit_of(convert).source)


def test_operators_on_the_way_to_a_parameter_are_known_with_their_lines():
    with noted():
        port = right(Attention())
        steps = Conversions(port)["w.qkv/w"]

    assert [step.operator for step in steps if step.operator in ("t", "cat")] == ["t", "cat"]
    assert {line.function for step in steps for line in step.lines} >= {"fused", "right", "load"}


def test_model_that_is_not_made_alike_again_has_no_lines():
    with noted():
        port = right(Attention())
        with torch.no_grad():
            port.w["out/b"].add_(1.0)

        assert dict(Conversions(port)) == {}


def test_what_is_made_again_says_and_draws_nothing(capsys):
    def loud(reference):
        sys.stdout.write("converting")
        torch.rand(3)
        return right(reference)

    with noted():
        port = loud(Attention())
        capsys.readouterr()
        state = torch.get_rng_state()
        len(Conversions(port))

    assert capsys.readouterr().out == ""
    assert torch.equal(torch.get_rng_state(), state)


def test_tests_and_fixtures_are_not_run_again():
    with noted():
        port = Fused()

        assert makers_of(port) == ()


def test_what_a_function_was_given_is_not_kept_after_the_test():
    with noted():
        port = right(Attention())
        assert [maker.function for maker in makers_of(port)] == [load, right]

    assert makers_of(port) == ()


def test_what_takes_more_than_can_be_kept_is_not_done_again(monkeypatch):
    monkeypatch.setattr(constructors, "_MOST_RAN", 5)
    with noted():
        port = right(Attention())

        assert dict(Conversions(port)) == {}


def test_function_that_calls_the_check_is_not_run_again():
    calls = []

    def held(reference):
        calls.append(right(reference))
        return dict(Conversions(calls[-1]))

    with noted():
        assert "w.qkv/w" in held(Attention())
    assert len(calls) == 1


def test_what_a_function_changes_is_not_changed_twice():
    def spent(reference, seen):
        seen.append(len(seen))
        return right(reference)

    seen = []
    with noted():
        port = spent(Attention(), seen)
        steps = Conversions(port)["w.qkv/w"]

    assert any(line.function == "right" for step in steps for line in step.lines)
    assert seen == [0]


def test_function_that_skips_the_second_time_skips_nothing():
    asked = []

    def once(reference):
        asked.append(1)
        if len(asked) > 1:
            pytest.skip("only once")
        return right(reference)

    with noted():
        port = once(Attention())
        assert len(Conversions(port)) > 0  # of the functions that it called
