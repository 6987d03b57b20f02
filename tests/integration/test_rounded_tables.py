"""A reference whose tables ``.to(torch.bfloat16)`` has rounded, and ports that make their own in float32."""

import copy

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import pytest_tfdebug
from pytest_tfdebug.tracing.values.tables import as_made

CONFIG = LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, head_dim=16
)
IDS = torch.arange(3, 19).view(2, 8)


class OwnTable(torch.nn.Module):
    def forward(self, x, position_ids):
        speeds = 1.0 / 10000.0 ** (torch.arange(0, 16, 2).float() / 16)
        angles = position_ids[..., None].float() * speeds
        angles = torch.cat((angles, angles), -1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


class KeptTable:
    """Makes cosines and sines for all positions once, which no cast of the model reaches."""

    def __init__(self):
        self.cosines, self.sines = OwnTable()(torch.empty(0), torch.arange(32)[None])

    def __call__(self, x, position_ids):
        length = position_ids.shape[1]
        return self.cosines[:, :length].to(x.dtype), self.sines[:, :length].to(x.dtype)


TABLES = {"own": OwnTable, "kept": KeptTable}


def reference_in_half():
    return pytest_tfdebug.fill(LlamaForCausalLM(CONFIG).eval(), seed=0).to(torch.bfloat16)


def port_in_half(reference, table="own"):
    port = copy.deepcopy(reference)
    del port.model.rotary_emb
    port.model.rotary_emb = TABLES[table]()
    return port.to(torch.bfloat16)


class HeldTable(torch.nn.Module):
    """Holds cosines and sines for all positions as buffers, which a cast of the model rounds."""

    maker = OwnTable

    def __init__(self):
        super().__init__()
        made = self.maker()(torch.empty(0), torch.arange(32)[None])
        for name, table in zip(("cosines", "sines"), made, strict=True):
            self.register_buffer(name, table, persistent=False)

    def forward(self, x, position_ids):
        length = position_ids.shape[1]
        return self.cosines[:, :length].to(x.dtype), self.sines[:, :length].to(x.dtype)


TABLES["held"] = HeldTable
TOLD = (
    "The reference's model.rotary_emb.inv_freq, model.rotary_emb.original_inv_freq are rounded to bfloat16 by .to(). The "
    "port was held to it with what its code makes: building or loading it with dtype= leaves that in float32."
)
CHECKED = """
import torch
from test_rounded_tables import IDS, port_in_half, reference_in_half

def test_it(tf_golden):
    reference = reference_in_half()
    port = port_in_half(reference, {table!r})
    {change}
    tf_golden.check(port, reference=reference, input_ids=IDS)
    assert reference.model.rotary_emb.inv_freq.dtype == torch.bfloat16
"""


@pytest.mark.parametrize("table", ["own", "kept", "held"])
def test_port_that_makes_its_own_table_passes_with_a_warning(pytester, table):
    pytester.makepyfile(test_it=CHECKED.format(table=table, change=""))

    result = pytester.runpytest("--tf-golden=update", "-W", "default")

    result.assert_outcomes(passed=1, warnings=1)
    assert TOLD in " ".join(result.stdout.str().split())


@pytest.mark.parametrize("table", ["own", "kept", "held"])
def test_fault_of_such_a_port_is_named_and_not_its_table(pytester, table):
    change = "port.model.layers[1].mlp.act_fn = torch.nn.GELU()"
    pytester.makepyfile(test_it=CHECKED.format(table=table, change=change))

    result = pytester.runpytest("--tf-golden=update")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *in model.layers.1.mlp.act_fn (GELU): *", f"  Note: {TOLD[:60]}*"])


class Wrong(OwnTable):
    """Turns the last angles by half as much."""

    def forward(self, x, position_ids):
        speeds = 1.0 / 5000.0 ** (torch.arange(0, 16, 2).float() / 16)
        angles = position_ids[..., None].float() * speeds
        angles = torch.cat((angles, angles), -1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


class HoldsWrong(HeldTable):
    maker = Wrong


TABLES["wrong"] = HoldsWrong
HOLDS = """
import torch
from test_rounded_tables import IDS, port_in_half, reference_in_half

def test_it(tf_golden):
    reference = port_in_half(reference_in_half(), "own")
    port = port_in_half(reference_in_half(), {table!r})
    tf_golden.check(port, reference=reference, input_ids=IDS)
"""


def test_a_port_with_a_rounded_table_is_right_where_the_reference_makes_its_own_in_each_forward(pytester):
    pytester.makepyfile(test_it=HOLDS.format(table="held"))

    pytester.runpytest("--tf-golden=update").assert_outcomes(passed=1)


def test_a_wrong_table_that_was_rounded_is_told(pytester):
    pytester.makepyfile(test_it=HOLDS.format(table="wrong"))

    result = pytester.runpytest("--tf-golden=update")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *in model.rotary_emb (HoldsWrong): gives another output for the same inputs"])


def test_two_traces_are_held_in_the_same_way():
    reference = reference_in_half()
    port = port_in_half(reference)
    traces = [pytest_tfdebug.trace(model, input_ids=IDS) for model in (reference, port)]

    report = pytest_tfdebug.compare(*traces)

    assert report.ok
    assert TOLD in report.notes


class Table(torch.nn.Module):
    """Holds what makes its table; ``scale`` is changed after that in some."""

    def __init__(self, size, scale=1.0):
        super().__init__()
        self.size, self.scale = size, scale
        self.register_buffer("table", torch.arange(size) / 3 * scale, persistent=False)


@pytest.mark.parametrize(("scale", "expected"), [(1.0, ["0.table"]), (2.0, [])])
def test_table_counts_as_rounded_if_its_module_makes_it_anew(scale, expected):
    model = torch.nn.Sequential(Table(5)).to(torch.bfloat16)
    model[0].scale = scale
    before = model[0].table

    with as_made(model) as tables:
        assert list(tables) == expected
        assert model[0].table.dtype == (torch.float32 if expected else torch.bfloat16)

    assert model[0].table is before


class GivesATable(torch.nn.Module):
    """Makes the table of a module that it holds, and has parameters."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)
        self.inner.register_buffer("table", torch.arange(3) / 3, persistent=False)


def test_table_that_the_model_makes_for_a_module_of_it_counts_too():
    with as_made(GivesATable().to(torch.bfloat16)) as tables:
        assert list(tables) == ["inner.table"]
