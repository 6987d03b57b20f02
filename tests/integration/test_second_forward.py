"""A forward that is made again to explain a failure may skip the test or end the process: the failure stands."""

from __future__ import annotations

import pytest

_TEST = """
    import sys

    import pytest
    import torch

    import pytest_tfdebug

    def ended():
        {ending}

    class Port(torch.nn.Module):
        def __init__(self, scale, calls):
            super().__init__()
            self.embed, self.scale, self.left = torch.nn.Embedding(9, 8), scale, iter(range(calls))

        def forward(self, input_ids, attention_mask=None):
            if next(self.left, None) is None:
                ended()
            hidden = torch.tanh(self.embed(input_ids)) * self.scale
            return hidden + hidden.mean(1, keepdim=True)

    IDS = torch.tensor([[1, 2, 3]])

    def port(scale, calls):
        return pytest_tfdebug.fill(Port(scale, calls).eval(), seed=0)

    def test_golden(tf_golden, pytestconfig):
        is_recorded = pytestconfig.getoption("tf_golden") == "update"
        tf_golden.check(port(1.0, 99) if is_recorded else port(2.0, 1), input_ids=IDS)

    @pytest.mark.parametrize("calls", [1, 3, 5])
    @pytest.mark.padding_invariant
    def test_padding(calls):
        port(1.0, calls)(input_ids=IDS, attention_mask=torch.ones_like(IDS))
"""


@pytest.mark.parametrize(
    ("ending", "told"),
    [
        ('pytest.skip("not here")', "Skipped: not here"),
        ("sys.exit(0)", "SystemExit: 0"),
    ],
)
def test_failure_stands_where_its_second_forward_ends_the_test(
    pytester: pytest.Pytester, ending: str, told: str
) -> None:
    pytester.makepyfile(_TEST.format(ending=ending))
    pytester.runpytest_inprocess("--tf-golden=update", "-k", "golden").assert_outcomes(passed=1)

    result = pytester.runpytest_inprocess("-vv")

    result.assert_outcomes(failed=4)
    result.stdout.fnmatch_lines([f"*A forward made once more raised: {told}*"])
    result.stdout.fnmatch_lines([f"*made again, the forward raised {told}*"])
