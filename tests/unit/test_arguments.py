"""What a call is given that is no tensor counts as what it is given."""

import pytest
import torch
from torch import nn

from pytest_tfdebug import compare, trace
from pytest_tfdebug.parity.calls.call_tree import arguments, other_arguments
from pytest_tfdebug.records import Call, CallComparison

X = torch.linspace(-1, 1, 8).view(2, 4)
AT_SCALE = "The first value that differs is computed at test_arguments.py:22."


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 4)

    def forward(self, x, power=1, scale=None, options=None):
        x = self.linear(x) * (1.0 if scale is None else scale)
        return x**power


class Model(nn.Module):
    def __init__(self, *args, **kwargs):
        super().__init__()
        self.first, self.second = Scaled(), Scaled()
        self.args, self.kwargs = args, kwargs

    def forward(self, x, flag=0):
        x = self.first(x, options={"flag": flag})
        return self.second(x, *self.args, **self.kwargs)


@pytest.mark.parametrize(
    ("port", "held", "told"),
    [
        (Model(3, scale=2.0), "has args (3,); the reference has (2,). 8 ", "power=3 instead of 2."),
        (Model(2, scale=2.5), "", f"scale=2.5 instead of 2.0. {AT_SCALE}"),
        (Model(2, scale=2.5, options=None), "", f"scale=2.5 instead of 2.0. {AT_SCALE}"),
    ],
)
def test_who_gives_another_number_is_blamed(port, held, told):
    report = compare(trace(Model(2, scale=2.0), X), trace(port, X))

    assert (report.culprit.kind, report.culprit.path) == ("glue", "Model")
    assert report.culprit.explanation.partition(" ")[2] == (
        f"{held}tensors agree before it: the fault is in the lines of Model's forward between its calls of 'first' and "
        f"'second'. 'second' is given {told}"
    )
    assert report.culprit.divergence.path == "second"


def test_none_that_a_wrapper_hands_on_is_as_good_as_nothing():
    model = Scaled()

    assert not compare(trace(model, X), trace(model, X, scale=None, options=None)).notes
    assert "scale=1.0 instead of nothing" in " ".join(compare(trace(model, X), trace(model, X, scale=1.0)).notes)


def test_what_computes_with_another_number_is_proved_and_not_blamed(monkeypatch):
    monkeypatch.setattr("pytest_tfdebug.parity.proof.prove.SECONDS", 60)

    culprit = compare(trace(Model(2, scale=2.0), X), trace(Model(3, scale=2.0), X)).culprit

    assert (culprit.kind, culprit.path) == ("glue", "Model")
    assert culprit.proved.startswith("with exponent 2 instead of 3 at test_arguments.py:23 every output agrees")


def test_number_that_is_the_same_after_rounding_blames_nobody_else():
    port = Model(2, scale=2.0 + 1e-8)
    port.second.linear.weight.data *= 2

    assert compare(trace(Model(2, scale=2.0), X), trace(port, X)).culprit.path == "second.linear"


def test_what_changes_no_output_elsewhere_is_no_evidence():
    class Flagged(Model):
        def forward(self, x):
            return self.second(self.first(x, options=self.args), options=self.args)

    Flagged.__name__ = "Model"
    port = Flagged(1, 2)
    port.second.linear.weight.data *= 2

    assert compare(trace(Flagged(3, 4), X), trace(port, X)).culprit.path == "second.linear"


def test_what_the_model_itself_is_given_is_mentioned():
    port = Model()
    port.first.linear.weight.data *= 2

    report = compare(trace(Model(), X), trace(port, X, flag=1))

    assert report.culprit.path == "first.linear"
    assert report.notes == ["'Model' is given flag=1 instead of nothing."]
    assert "  Note: 'Model' is given flag=1 instead of nothing." in str(report).splitlines()


def test_arguments_go_by_the_names_of_parameters_and_the_places_within_them():
    call = trace(Model(2, scale=2.0), X)["second"]

    assert arguments(call) == {"x": "a tensor", "power": "2", "scale": "2.0"}


def bare(*args, **kwargs):
    call = Call(0, "layer", "Layer", 0, None, 0, parameters=("x", "cache", "use_cache", "sizes", "options", "scale"))
    call.skeleton = {"args": list(args), "kwargs": {"items": kwargs}}
    return call


@pytest.mark.parametrize(
    ("own", "expected", "differing"),
    [
        ({"cache": "DynamicCache(layers=[])"}, {"cache": "DynamicCache(layers=[DynamicLayer])"}, {}),
        ({"cache": "None"}, {"cache": "DynamicCache()"}, {"cache": ("None", "an object")}),
        ({}, {"cache": "DynamicCache()"}, {"cache": ("nothing", "an object")}),
        ({}, {"own_cache": "DynamicCache()"}, {}),  # which its forward does not take any more
        ({"use_cache": "False"}, {"use_cache": "None"}, {}),
        ({"use_cache": "True"}, {"use_cache": "False"}, {"use_cache": ("True", "False")}),
        ({"use_cache": "True"}, {}, {}),  # may be left to its default
        ({"verbose": "True"}, {"verbose": "False"}, {}),  # is handed on
        ({"scale": "'small'"}, {"scale": "'large'"}, {"scale": ("'small'", "'large'")}),
        ({"mask": {"leaf": 0}}, {"mask": "None"}, {}),  # is compared as a tensor
        ({"sizes": ["1", ["2", "3"]]}, {"sizes": ["1", ["2", "4"]]}, {"sizes[1][1]": ("3", "4")}),
        ({"options": {"items": {"a": "1"}}}, {"options": {"items": {"a": "2"}}}, {"options['a']": ("1", "2")}),
        ({"scale": "nan"}, {"scale": "1.0"}, {"scale": ("nan", "1.0")}),
    ],
)
def test_arguments_differ_in_numbers_and_in_whether_there_is_an_object(own, expected, differing):
    assert other_arguments(CallComparison(bare(**own), bare(**expected))) == differing


def test_positional_arguments_beyond_the_known_parameters_go_by_their_place():
    call = bare({"leaf": 0}, "1", "2")
    call.parameters = ("x",)

    assert arguments(call) == {"x": "a tensor", "[1]": "1", "[2]": "2"}


def test_every_difference_counts_where_it_is_only_told_of():
    item = CallComparison(bare(verbose="True", use_cache="False"), bare(use_cache="None", scale="1.0"))

    assert other_arguments(item) == {}
    assert other_arguments(item, is_strict=True) == {
        "verbose": ("True", "nothing"),
        "use_cache": ("False", "None"),
        "scale": ("nothing", "1.0"),
    }


def test_another_class_may_be_given_other_arguments():
    other = bare(scale="1.0")
    other.class_name = "Other"

    assert other_arguments(CallComparison(bare(scale="2.0"), other)) == {}


class Positions(nn.Module):
    """Embeds positions, which are broadcast over the batch by whoever takes them."""

    def __init__(self, shape=(1, 4), bias=0.0):
        super().__init__()
        torch.manual_seed(0)
        self.shape, self.bias = shape, bias
        self.embed, self.shift, self.norm, self.tiny = nn.Embedding(4, 4), Shift(), nn.LayerNorm(4), Tiny()

    def forward(self, x):
        positions = torch.arange(4).view(self.shape)
        x = self.norm(self.shift(x, positions) + self.embed(positions).sum(-1))
        x = x + self.bias
        return x + self.tiny(x)


class Shift(nn.Module):
    """Gives the same whether its positions have a batch dimension or not."""

    def forward(self, x, positions):
        return x + positions


class Tiny(nn.Module):
    """Gives so little that what goes wrong inside of it is within tolerance."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(4, 4)

    def forward(self, x):
        return self.up(x) * 1e-9


def test_input_of_another_form_is_evidence_where_the_output_is_too():
    report = compare(trace(Positions(), X), trace(Positions(shape=4), X), internal="fail")

    assert (report.culprit.kind, report.culprit.path) == ("glue", "Positions")
    assert "Shapes differ: (4,), expected (1, 4)" in str(report)


def test_call_within_tolerance_around_a_wrong_one_clears_no_input():
    report = compare(trace(Positions(), X), trace(Positions(bias=1.0), X))

    assert (report.culprit.kind, report.culprit.path) == ("glue", "Positions")
    assert "between its calls of 'norm' and 'tiny'" in report.culprit.explanation
