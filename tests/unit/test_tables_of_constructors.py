"""Tables that a constructor makes are computed as the first thing of a forward, so that their lines can be wrong."""

import linecache

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaModel

import pytest_tfdebug
from pytest_tfdebug.constructed import arguments_of, noted
from pytest_tfdebug.parity.proof import prove
from pytest_tfdebug.tracing.values.constructors import tables_of

IDS = torch.arange(3, 19).view(2, 8)


@pytest.fixture(autouse=True)
def _as_long_as_it_takes(monkeypatch, one_thread):
    monkeypatch.setattr(prove, "SECONDS", 20.0)


def llama():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=40,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=32,
        use_cache=False,
        initializer_range=0.3,
    )
    return LlamaModel(config).eval()


class Turns(nn.Module):
    def __init__(self, width, base=10000.0):
        super().__init__()
        speed = self.speeds(width, base)
        angle = torch.outer(torch.arange(32).float(), speed)
        angle = torch.cat([angle, angle], dim=-1)
        self.register_buffer("table", torch.stack([angle.cos(), angle.sin()]), persistent=False)

    def speeds(self, width, base):
        exponent = torch.arange(0, width, 2).float() / width
        return 1.0 / base**exponent


class HalfTurns(Turns):
    def speeds(self, width, base):
        exponent = torch.arange(width // 2).float() / width
        return 1.0 / base**exponent


class OfOwnBase(Turns):
    def speeds(self, width, base):
        exponent = torch.arange(0, width, 2).float() / width
        return 1.0 / 5000.0**exponent


class Reads(nn.Module):
    def __init__(self, theirs):
        super().__init__()
        self.q, self.k, self.v, self.o = theirs.q_proj, theirs.k_proj, theirs.v_proj, theirs.o_proj

    def forward(self, x, table):
        q, k, v = (part(x).unflatten(-1, (4, 8)).transpose(1, 2) for part in (self.q, self.k, self.v))
        cos, sin = table[:, : x.shape[1]]
        q, k = (part * cos + torch.cat([-part[..., 4:], part[..., :4]], -1) * sin for part in (q, k))
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        shares = (q @ k.mT * 8**-0.5).masked_fill(later, float("-inf")).softmax(-1)
        return self.o((shares @ v).transpose(1, 2).flatten(2))


class Port(nn.Module):
    """A Llama that makes its rotary table once."""

    def __init__(self, turns, model):
        super().__init__()
        self.turns = turns(8)
        self.words, self.end = model.embed_tokens, model.norm
        self.reads = nn.ModuleList(Reads(each.self_attn) for each in model.layers)
        self.feeds = nn.ModuleList(each.mlp for each in model.layers)
        self.norms = nn.ModuleList(
            nn.ModuleList([each.input_layernorm, each.post_attention_layernorm]) for each in model.layers
        )

    def forward(self, input_ids):
        x = self.words(input_ids)
        for read, feed, (before, between) in zip(self.reads, self.feeds, self.norms, strict=True):
            x = x + read(before(x), self.turns.table)
            x = x + feed(between(x))
        return {"last_hidden_state": self.end(x)}


def report_of(turns, *, is_noted=True):
    if is_noted:
        with noted():
            return report_of(turns, is_noted=False)
    reference = llama()
    port = Port(turns, reference).eval()
    with torch.no_grad():
        return pytest_tfdebug.compare(pytest_tfdebug.trace(reference, IDS), pytest_tfdebug.trace(port, IDS))


def code_of(source):
    return [linecache.getline(source.file, line).strip() for line in range(source.first, source.last + 1)]


def test_a_right_table_agrees():
    assert report_of(Turns)


def test_a_wrong_exponent_is_named_at_its_line_of_the_constructor():
    culprit = report_of(HalfTurns).culprit

    assert code_of(culprit.source) == ["exponent = torch.arange(width // 2).float() / width"]


def test_a_wrong_base_is_proved_at_its_line_of_the_constructor():
    culprit = report_of(OfOwnBase).culprit

    assert code_of(culprit.source) == ["return 1.0 / 5000.0**exponent"]
    assert "with base 5000, as the port has, instead of 10000" in culprit.proved


def test_without_its_arguments_a_table_is_told_where_it_is_made():
    report = report_of(HalfTurns, is_noted=False)

    assert "speed = self.speeds(width, base)" not in code_of(report.culprit.source)
    assert "exponent" not in str(report.culprit.source)


class Takes(nn.Module):
    def __init__(self, first, *rest, named=1, **more):
        first = first + 1
        super().__init__()
        self.given = rest, named, more


class TakesMore(Takes):
    def __init__(self, size):
        super().__init__(size, 2, 3, named=size, other="x")


def test_what_the_outermost_constructor_was_given_is_noted():
    with noted():
        plain, sub = Takes(5, 6, named=7, other=8), TakesMore(9)
    after = Takes(1)

    assert arguments_of(sub) == ((9,), {})
    assert arguments_of(plain)[0][1:] == (6,)
    assert arguments_of(plain)[1] == {"named": 7, "other": 8}
    assert arguments_of(after) is None


@pytest.mark.parametrize("given", [nn.Identity(), torch.zeros(2), [torch.zeros(2)], {"a": nn.Identity()}])
def test_a_module_that_is_given_modules_or_tensors_is_not_kept_alive_by_what_is_noted(given):
    with noted():
        module = Takes(1, given)

    assert arguments_of(module) is None


def test_torch_is_as_it_was_after_an_error():
    before = nn.Module.__init__
    with pytest.raises(ValueError, match="no"), noted():
        raise ValueError("no")

    assert nn.Module.__init__ is before


class Drawn(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.randn(4) * 2)


class Counting(nn.Module):
    made = 0

    def __init__(self, *, is_fit=True):
        super().__init__()
        type(self).made += 1
        if self.made > 1 and not is_fit:
            raise RuntimeError("only once")
        self.register_buffer("table", torch.arange(4) * 2.0)


def test_a_table_that_is_drawn_or_was_changed_since_is_taken_as_it_is():
    torch.manual_seed(3)
    with noted():
        drawn, changed = Drawn(), Turns(8)
    changed.table.mul_(2)

    assert tables_of(drawn) == tables_of(changed) == {}


def test_a_constructor_runs_once_for_its_tables_and_draws_none_of_the_users_random_numbers():
    Counting.made = 0
    with noted():
        model = Counting()
    state = torch.get_rng_state()

    assert len(tables_of(model)) == len(tables_of(model)) == 1
    assert Counting.made == 2
    assert torch.equal(torch.get_rng_state(), state)


def test_a_constructor_that_cannot_run_twice_costs_nothing():
    Counting.made = 0
    with noted():
        model = Counting(is_fit=False)

    assert tables_of(model) == {}


class Both(nn.Module):
    """Makes two tables of one."""

    def __init__(self):
        super().__init__()
        angle = torch.arange(12).float() * 0.3
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, x):
        return x * self.cos + x.flip(-1) * self.sin


def test_what_two_tables_are_made_of_is_one_value():
    with noted():
        model = Both()
    values = pytest_tfdebug.trace(model, torch.randn(2, 12)).again.values()

    assert sum(value.operator == "arange" for value in values.values) == 1
    assert {value.operator for value in values.values} >= {"cos", "sin"}


class Filled(nn.Module):
    def __init__(self):
        super().__init__()
        table = torch.zeros(3, 4)
        table[:, 0::2] = torch.arange(3.0)[:, None].sin()
        table[:, 1::2] = torch.arange(3.0)[:, None].cos()
        self.register_buffer("table", table, persistent=False)

    def forward(self, x):
        return x + self.table


def test_a_table_that_is_written_in_place_is_computed_too():
    with noted():
        model = Filled()
    values = pytest_tfdebug.trace(model, torch.randn(3, 4)).again.values()

    assert len(tables_of(model)) == 1
    assert {value.operator for value in values.values} >= {"cos", "sin", "add"}
