"""``--tf-patch`` collects the diffs that mend failed checks, and writes nothing else."""

import subprocess

MODEL = """
import torch
from torch import nn


class Mean(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.layer, self.last = nn.Embedding(50, 16), nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, ids):
        return self.last(torch.{function}(self.layer(self.embedding(ids)))).mean(1)
"""

TEST = """
import torch
import port, reference

def test_port(tf_golden):
    torch.manual_seed(0)
    right, own = reference.Mean().eval(), port.Mean().eval()
    own.load_state_dict(right.state_dict())
    tf_golden.check(own, torch.arange(3, 23).view(2, 10), reference=right)
"""


def test_patch_mends_the_port_and_is_not_applied(pytester):
    pytester.makeini("[pytest]\ntf_explain_seconds = 60")
    pytester.makepyfile(test_it=TEST, reference=MODEL.format(function="relu"), port=MODEL.format(function="tanh"))
    pytester.runpytest("--tf-golden=update").assert_outcomes(failed=1)

    result = pytester.runpytest("--tf-patch=mend.patch")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["tfdebug patch: 1 diff in *mend.patch"])
    assert "torch.tanh" in (pytester.path / "port.py").read_text()
    subprocess.run(["git", "apply", "mend.patch"], cwd=pytester.path, check=True)  # noqa: S607
    assert "torch.relu" in (pytester.path / "port.py").read_text()
