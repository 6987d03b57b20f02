"""A model that fill gave its weights keeps its golden when its parameters get other names, or are packed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

TEST = """
import torch
from torch import nn
from torch.nn import functional as F

from pytest_tfdebug import fill


class Old(nn.Module):
    def __init__(self):
        super().__init__()
        self.key, self.query, self.norm_before = nn.Linear(8, 8), nn.Linear(8, 8), nn.LayerNorm(8)
        self.experts = nn.ModuleList(nn.ModuleDict({"w1": nn.Linear(8, 6, bias=False), "w2": nn.Linear(6, 8, bias=False),
            "w3": nn.Linear(8, 6, bias=False)}) for _ in range(2))

    def forward(self, hidden):
        hidden = self.norm_before(hidden)
        hidden = self.key(hidden).sin() * self.query(hidden)
        return sum(one["w2"](F.silu(one["w1"](hidden)) * one["w3"](hidden)) for one in self.experts)


class New(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.q_proj, self.k_proj = nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.experts = nn.Module()
        self.experts.gate_up_proj = nn.Parameter(torch.empty(2, 12, 8))
        self.experts.down_proj = nn.Parameter(torch.empty(2, 8, 6))

    def forward(self, hidden):
        hidden = self.norm(hidden)
        hidden = self.k_proj(hidden).sin() * self.q_proj(hidden)
        gate, up = (hidden[None] @ self.experts.gate_up_proj.mT[:, None]).chunk(2, -1)
        return ((F.silu(gate) * {wrong}up) @ self.experts.down_proj.mT[:, None]).sum(0)


def test_port(tf_golden):
    model = fill({model}().eval())
    before = [parameter.clone() for parameter in model.parameters()]
    try:
        tf_golden.check(model, torch.arange(48.0).view(2, 3, 8).sin())
    finally:
        assert all(map(torch.equal, before, model.parameters()))
"""


def written(model: str, wrong: str = "") -> str:
    return TEST.replace("{model}", model).replace("{wrong}", wrong)


def test_renamed_and_packed_parameters_are_filled_like_the_goldens(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=written("Old"))
    pytester.runpytest_inprocess("--tf-golden=update").assert_outcomes(passed=1)
    pytester.makepyfile(test_it=written("New"))

    result = pytester.runpytest_inprocess()

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["  8 parameters called otherwise, filled like the golden's: * (1 golden)"])


def test_fault_beside_renamed_parameters_still_fails(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=written("Old"))
    pytester.runpytest_inprocess("--tf-golden=update").assert_outcomes(passed=1)
    pytester.makepyfile(test_it=written("New", wrong="2 * "))

    result = pytester.runpytest_inprocess()

    result.assert_outcomes(failed=1)
    result.stdout.no_fnmatch_line("*has other weights*")


def test_parameter_unknown_to_the_golden_is_told_with_what_to_do(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=written("Old"))
    pytester.runpytest_inprocess("--tf-golden=update").assert_outcomes(passed=1)
    pytester.makepyfile(
        test_it=written("New")
        .replace("nn.LayerNorm(8), nn.Linear(8, 8)", "nn.LayerNorm(8), nn.Linear(8, 9)")
        .replace("self.q_proj(hidden)", "self.q_proj(hidden)[..., 1:]")
    )

    result = pytester.runpytest_inprocess("-vv")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*fill gives numbers by name, and 'q_proj.weight', 'q_proj.bias' are no names of the golden*"]
    )
