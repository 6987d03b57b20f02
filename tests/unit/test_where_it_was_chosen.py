"""A fault is named where it was chosen: by a caller of a shared function, in a constructor, before numbers are read."""

import inspect
import linecache

import pytest
import torch
from torch import nn

import pytest_tfdebug
from pytest_tfdebug.parity.proof import prove
from pytest_tfdebug.parity.text.handed_on import chooser_of
from pytest_tfdebug.parity.text.text_differences import SourceFile
from pytest_tfdebug.values import Line

X = torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(1))


@pytest.fixture(autouse=True)
def _as_long_as_it_takes(monkeypatch, one_thread):
    monkeypatch.setattr(prove, "SECONDS", 60.0)


def culprit_of(reference, port, *args):
    with torch.no_grad():
        for seed, weight in enumerate(reference.parameters()):
            weight.normal_(generator=torch.Generator().manual_seed(seed)).mul_(0.3)
    port.load_state_dict(reference.state_dict())
    traces = (pytest_tfdebug.trace(model.eval(), *args) for model in (reference, port))
    return pytest_tfdebug.compare(*traces).culprit


def lines_of(culprit):
    source = culprit.source
    return [linecache.getline(source.file, line).strip() for line in range(source.first, source.last + 1)]


def rms(x, gain, eps=1e-6):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * gain


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.behind = nn.Parameter(torch.ones(16)), nn.Parameter(torch.ones(16))
        self.layer, self.eps = nn.Linear(16, 16), 0.3

    def forward(self, x):
        x = self.layer(rms(x, self.before, self.eps))
        return rms(x, self.behind, self.eps)


class NormedByDefault(Normed):
    def forward(self, x):
        x = self.layer(rms(x, self.before))
        return rms(x, self.behind, self.eps)


def test_caller_that_leaves_a_number_to_its_default_is_named():
    culprit = culprit_of(Normed(), NormedByDefault(), X)

    assert lines_of(culprit) == ["x = self.layer(rms(x, self.before))"]
    assert culprit.certain
    assert culprit.proved.startswith("with eps 0.3, as the reference has, instead of 1e-06 at ")


def stack(*texts):
    """Return the lines of this file that begin so, as a stack."""
    file = inspect.getsourcefile(Normed)
    text = linecache.getlines(file)
    places = [next(place for place, line in enumerate(text, 1) if line.strip().startswith(each)) for each in texts]
    return [Line(file, place, name) for place, name in zip(places, ("rms", "forward"), strict=True)]


@pytest.mark.parametrize(
    ("number", "caller", "attributes", "depth"),
    [
        (1e-6, "x = self.layer(rms(x, self.before))", {}, 1),
        (0.3, "x = self.layer(rms(x, self.before, self.eps))", {"eps": "0.3"}, 1),
        (0.5, "x = self.layer(rms(x, self.before, self.eps))", {"eps": "0.3"}, 0),
    ],
)
def test_number_of_a_shared_function_is_followed_to_who_gives_it(number, caller, attributes, depth):
    assert chooser_of(number, stack("return x * torch.rsqrt(", caller), attributes) == depth


def pushed(states, memory):
    return states + memory


class Memories(nn.Module):
    def __init__(self):
        super().__init__()
        self.keys = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))

    def of(self, place):
        return place

    def forward(self, x):
        memories = [torch.tanh(key(x)) for key in self.keys]
        for place, layer in enumerate(self.layers):
            x = pushed(torch.sigmoid(layer(x)), memories[self.of(place)])
        return x


class MemoriesLate(Memories):
    def of(self, place):
        return max(place - 1, 0)


def test_operand_is_chosen_by_who_gives_it_to_a_function():
    culprit = culprit_of(Memories(), MemoriesLate(), X)

    assert lines_of(culprit) == ["return max(place - 1, 0)"]


class Table(nn.Module):
    def __init__(self, base=100.0):
        super().__init__()
        self.layer, self.last = nn.Linear(16, 16), nn.Linear(16, 16)
        speeds = torch.sin(torch.arange(16) / base)
        angles = torch.arange(8)[:, None] * speeds
        self.register_buffer("angles", angles.cos() * angles, persistent=False)

    def forward(self, x):
        return self.last(torch.tanh(self.layer(x) + self.angles))


class OtherTable(Table):
    def __init__(self, _once=None):
        super().__init__(base=90.0)


class OtherTableOnce(OtherTable):
    def __init__(self, _once):
        super().__init__()


def test_number_of_a_table_of_a_constructor_is_proved():
    culprit = culprit_of(Table(), OtherTable(), X)

    assert culprit.proved.startswith("with divisor 100, as the reference has, instead of 90")
    assert lines_of(culprit) == ["super().__init__(base=90.0)"]


def test_table_of_a_constructor_is_proved_by_the_references_and_told_with_the_lines_that_make_it():
    culprit = culprit_of(Table(), OtherTableOnce(1), X)

    assert culprit.proved.startswith("with angles as the reference's mul of line")
    assert culprit.wrong == "holds another table than the reference: angles"
    assert lines_of(culprit) == [
        "speeds = torch.sin(torch.arange(16) / base)",
        "angles = torch.arange(8)[:, None] * speeds",
        'self.register_buffer("angles", angles.cos() * angles, persistent=False)',
    ]
    assert culprit.certain


class Windowed(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(16, 16) for _ in range(3))

    def near(self, ago):
        return ago < 3

    def forward(self, x):
        place = torch.arange(x.shape[1])
        ago = place[:, None] - place
        scores = self.q(x) @ self.k(x).mT
        return scores.masked_fill(~((ago >= 0) & self.near(ago)), -1e30).softmax(-1) @ self.v(x)


class WindowedTooFar(Windowed):
    def near(self, ago):
        return ago <= 3


def test_end_of_a_window_is_proved():
    culprit = culprit_of(Windowed(), WindowedTooFar(), X)

    assert lines_of(culprit) == ["return ago <= 3"]
    assert culprit.proved.startswith(("with lt instead of le at", "with bound 2 instead of 3 at"))


def turned(x, cos, sin):
    return x * cos + x.roll(8, -1) * sin


class Turned(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(16, 16) for _ in range(3))
        angles = torch.arange(8)[:, None] * torch.cat((torch.logspace(0, -2, 8),) * 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", self.signed(angles.sin()), persistent=False)

    def signed(self, sin):
        return torch.cat((-sin[:, :8], sin[:, 8:]), -1)

    def forward(self, x):
        q, k = turned(self.q(x), self.cos, self.sin), turned(self.k(x), self.cos, self.sin)
        return (q @ k.mT).softmax(-1) @ self.v(x)


class TurnedBack(Turned):
    def signed(self, sin):
        return torch.cat((sin[:, :8], -sin[:, 8:]), -1)


def test_change_is_made_at_one_of_several_steps_of_a_line_wherever_that_runs():
    culprit = culprit_of(Turned(), TurnedBack(), X)

    assert "every output agrees" in culprit.proved


class Experts(nn.Module):
    """Sorts tokens by their expert and splits them by numbers that it reads."""

    def __init__(self):
        super().__init__()
        self.embed, self.router = nn.Linear(16, 16), nn.Linear(16, 4)
        self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

    def act(self, x):
        return torch.relu(x)

    def forward(self, x):
        rows = self.act(self.embed(x)).flatten(0, 1)
        choice = self.router(rows).argmax(-1)
        order = choice.argsort(stable=True)
        sizes = torch.bincount(choice, minlength=4).tolist()
        made = torch.cat([expert(part) for expert, part in zip(self.experts, rows[order].split(sizes), strict=True)])
        return torch.zeros_like(rows).index_add(0, order, made)


class ExpertsOfTanh(Experts):
    def act(self, x):
        return torch.tanh(x)


def test_change_before_numbers_are_read_is_tried_in_the_forward_itself():
    culprit = culprit_of(Experts(), ExpertsOfTanh(), X)

    assert lines_of(culprit) == ["return torch.tanh(x)"]
    assert culprit.proved.startswith("with relu instead of tanh at ")


class Quads(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(64, 16, bias=False)

    def forward(self, x):
        parts = [x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        return self.last(torch.cat(parts, -1))


class QuadsByRow(Quads):
    def forward(self, x):
        batch, rows, columns, width = x.shape
        x = x.view(batch, rows // 2, 2, columns // 2, 2, width)
        x = x.permute(0, 1, 3, 2, 4, 5).flatten(3)
        return self.last(x)


def test_order_of_parts_is_told_where_the_port_puts_them_in_order():
    x = torch.randn(2, 4, 4, 16, generator=torch.Generator().manual_seed(1))

    culprit = culprit_of(Quads(), QuadsByRow(), x)

    assert lines_of(culprit) == ["x = x.permute(0, 1, 3, 2, 4, 5).flatten(3)"]


class Scale(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x):
        return x * self.scale


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 16), nn.Linear(16, 16)
        self.scale = Scale(0.7)

    def forward(self, x):
        return self.last(torch.tanh(self.scale(self.first(x))))


class ScaledMore(Scaled):
    def __init__(self):
        super().__init__()
        self.scale.scale = 0.9


def test_attribute_is_told_with_who_gives_it_to_its_constructor():
    culprit = culprit_of(Scaled(), ScaledMore(), X)

    assert lines_of(culprit) == ["return x * self.scale"]
    (given,) = (line for line in inspect.getsource(Scaled).splitlines() if "Scale(0.7)" in line)
    place = 1 + [line.rstrip("\n") for line in linecache.getlines(culprit.source.file)].index(given)
    assert f", which test_where_it_was_chosen.py:{place} gives it." in culprit.why


class OfGroups(nn.Module):
    """Turns queries by hand before it scales them: the turned halves are put together, which chooses nothing."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(16, 16) for _ in range(3))

    def heads(self, x):
        return x.unflatten(-1, (2, 2, 4)).transpose(-3, -2)

    def forward(self, x):
        low, high = self.heads(self.q(x)).chunk(2, -1)
        q = torch.cat((low * 0.5 - high, high * 0.5 + low), -1)
        q = q * 0.3
        k, v = (each(x).unflatten(-1, (2, 2, 4)) for each in (self.k, self.v))
        scores = torch.einsum("btgrh,bsgrh->bgrts", q, k)
        return torch.einsum("bgrts,bsgrh->btgrh", scores.softmax(-1), v).flatten(2)


class OfGroupsAsTheyAre(OfGroups):
    def heads(self, x):
        return x.unflatten(-1, (2, 2, 4))


def test_order_of_axes_is_not_told_where_computed_parts_are_put_together():
    culprit = culprit_of(OfGroups(), OfGroupsAsTheyAre(), X)

    assert lines_of(culprit) != ["q = torch.cat((low * 0.5 - high, high * 0.5 + low), -1)"]


class Patches(nn.Module):
    """Embeds patches by a convolution."""

    def __init__(self):
        super().__init__()
        self.embed, self.last = nn.Conv2d(3, 16, 4, 4), nn.Linear(16, 16)

    def forward(self, x):
        return self.last(torch.tanh(self.embed(x).flatten(2).mT))


class FlatPatches(nn.Module):
    """Embeds patches by a product, with the elements of each in the order of rows, columns and colours."""

    def __init__(self):
        super().__init__()
        self.embed, self.last = nn.Linear(48, 16), nn.Linear(16, 16)

    def forward(self, x):
        batch, colours, height, width = x.shape
        cells = x.view(batch, colours, height // 4, 4, width // 4, 4).permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)
        return self.last(torch.tanh(self.embed(cells)))


@pytest.mark.parametrize("axes", [(0, 2, 3, 1), (0, 3, 2, 1), (0, 1, 2, 3)])
def test_weight_whose_axes_were_put_in_another_order_is_told_with_the_right_one(axes):
    reference, port = Patches().eval(), FlatPatches().eval()
    with torch.no_grad():
        for own, theirs in ((port.embed, reference.embed), (port.last, reference.last)):
            own.weight.copy_(theirs.weight.permute(axes).flatten(1) if theirs is reference.embed else theirs.weight)
            own.bias.copy_(theirs.bias)
    x = torch.randn(2, 3, 8, 12, generator=torch.Generator().manual_seed(1))

    report = pytest_tfdebug.compare(*(pytest_tfdebug.trace(model, x) for model in (reference, port)))

    assert report.ok == (axes == (0, 2, 3, 1))
    if not report.ok:
        assert report.culprit.weights == ("embed.weight",)
        assert "embed.weight as the reference's embed.weight with axes (0, 2, 3, 1)" in report.culprit.proved
        assert report.culprit.why.startswith("'embed.weight' holds the numbers of 'embed.weight', possibly in another ")
        assert not report.culprit.certain


def test_class_that_is_made_of_another_of_its_name_is_no_endless_search():
    file = SourceFile("norms.py", "class Norm(Norm):\n    def forward(self, x):\n        return x\n")

    assert file.made_at("Norm", "eps") is None
    assert file.method("Norm", "extra") == ""


class ScaledByHand(nn.Module):
    """Multiplies by a number that a line before has set, or a helper has returned."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x):
        scale = x.shape[-1] ** -0.5
        return self.last(torch.tanh(self.first(x) * scale))


class ScaledByLength(ScaledByHand):
    def forward(self, x):
        scale = x.shape[1] ** -0.5
        return self.last(torch.tanh(self.first(x) * scale))


def root_of(size):
    if size < 1:
        return 1.0
    return (size + 1) ** -0.5


class ScaledByHelper(ScaledByHand):
    def forward(self, x):
        return self.last(torch.tanh(self.first(x) * root_of(x.shape[-1])))


@pytest.mark.parametrize(
    ("port", "line"),
    [(ScaledByLength, "scale = x.shape[1] ** -0.5"), (ScaledByHelper, "return (size + 1) ** -0.5")],
)
def test_number_is_told_where_a_line_before_sets_it_or_a_helper_returns_it(port, line):
    culprit = culprit_of(ScaledByHand(), port(), X)

    assert lines_of(culprit) == [line]
    assert "factor 0.25" in culprit.proved


class Chained(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
        self.skipped = (1,)

    def forward(self, x):
        for place, step in enumerate(self.steps):
            more = torch.tanh(step(x))
            if place not in self.skipped:
                more = more + x
            x = more
        return x


class ChainedEverywhere(Chained):
    def __init__(self):
        super().__init__()
        self.skipped = ()


def test_step_that_is_right_elsewhere_is_told_with_what_decides_that_it_runs():
    culprit = culprit_of(Chained(), ChainedEverywhere(), X)

    assert lines_of(culprit) == ["if place not in self.skipped:", "more = more + x"]


class Padded(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.conv = nn.Linear(16, 16), nn.Conv1d(8, 8, 4)

    def forward(self, x):
        return torch.tanh(self.conv(nn.functional.pad(self.layer(x), (1, 2))))


class PaddedOtherwise(Padded):
    def forward(self, x):
        margins = (2, 1)
        return torch.tanh(self.conv(nn.functional.pad(self.layer(x), margins)))


def test_margins_of_the_reference_are_tried_as_a_whole():
    culprit = culprit_of(Padded(), PaddedOtherwise(), X)

    assert culprit.proved.startswith("with pad (1, 2), as the reference has, instead of (2, 1) at")
    assert lines_of(culprit) == ["margins = (2, 1)"]
    assert culprit.certain


def norm_of(groups):
    return nn.GroupNorm(groups, 8)


class Grouped(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.norm = nn.Linear(16, 16), nn.GroupNorm(4, 8)

    def forward(self, x):
        return torch.tanh(self.norm(self.layer(x)))


class GroupedByHelper(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 16)
        self.norm = norm_of(2)

    def forward(self, x):
        return torch.tanh(self.norm(self.layer(x)))


def test_module_is_told_where_a_helper_of_the_constructor_makes_it():
    culprit = culprit_of(Grouped(), GroupedByHelper(), X)

    assert "num_groups=4, as the reference has, instead of num_groups=2" in culprit.proved
    assert lines_of(culprit) == ["return nn.GroupNorm(groups, 8)"]


class ScaledInBranches(ScaledByHand):
    def __init__(self):
        super().__init__()
        self.scale = 0.3

    def forward(self, x):
        if self.scale is None:
            factor = x.size(-1) ** -0.5
        else:
            factor = self.scale
            self.used = factor
        return self.last(torch.tanh(self.first(x) * factor))


def test_line_of_a_branch_is_not_taken_for_the_one_that_sets_a_number():
    culprit = culprit_of(ScaledByHand(), ScaledInBranches(), X)

    assert lines_of(culprit) == ["return self.last(torch.tanh(self.first(x) * factor))"]
    assert not culprit.certain
