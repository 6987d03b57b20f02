"""The culprit of a difference, on small modules made by hand."""

import copy
import linecache
from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn
from transformers import Qwen3Config, Qwen3ForCausalLM
from transformers.utils import ModelOutput

from pytest_tfdebug import TFDebugError, Trace, compare, trace
from pytest_tfdebug.parity.pair.rename import renamer

X = torch.linspace(-1, 1, 8).view(2, 4)


def seeded(size=4):
    torch.manual_seed(0)
    return nn.Linear(size, size)


class Block(nn.Module):
    """Three children with glue before, between and after them; ``bug`` names the part that is wrong."""

    def __init__(self, bug=""):
        super().__init__()
        self._bug = bug
        self.norm = nn.LayerNorm(4)
        self.up = seeded()
        self.drop = nn.Dropout(0.0)
        self.act = nn.Tanh()
        self.spare = nn.Softplus()

    def forward(self, x, mask=None):
        residual = x
        x = x ** (2 if self._bug == "before first" else 1)
        x = self.norm(x[:1]) if self._bug == "shape" else self.norm(x)
        if self._bug != "no up":
            x = self.up(x)
        if self._bug == "extra":
            x = self.spare(x)
        x = x + (1 if self._bug == "between" else 0)
        if self._bug != "no drop":
            x = self.drop(x)
        if self._bug == "twice":
            x = self.act(x)
        x = self.spare(x) if self._bug == "other act" else self.act(x)
        return x - residual if self._bug == "after last" else x + residual


class Stack(nn.Module):
    def __init__(self, *bugs):
        super().__init__()
        self.layers = nn.ModuleList(Block(bug) for bug in bugs)
        self.head = seeded()

    def forward(self, x, mask=None):
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(x)


def calls_of(model, *inputs):
    """Return a trace that has calls alone: nothing can be run again."""
    return replace(trace(model, *inputs), again=None)


def culprit_of(actual, expected=None, *args, **kwargs):
    inputs = args or (X,)
    reference = calls_of(expected or Stack("", ""), *inputs)
    return compare(reference, calls_of(actual, *inputs), **{"internal": "fail", **kwargs})


def lines(report):
    source = report.culprit.source
    return "".join(linecache.getline(source.file, number) for number in range(source.first, source.last + 1))


def test_equal_forwards_have_no_culprit():
    report = culprit_of(Stack("", ""))

    assert report.ok
    assert report.culprit is None
    assert report.divergences == []
    assert str(report).splitlines() == [
        f"Parity: {report.tensors} tensors of 12 calls agree.",
        "  Outputs: the output element by element.",
    ]


@pytest.mark.parametrize(
    ("bug", "kind", "path", "where", "line"),
    [
        ("before first", "glue", "layers.1", "before its call of 'layers.1.norm'.", '"before first"'),
        ("between", "glue", "layers.1", "between its calls of 'layers.1.up' and 'layers.1.drop'.", '"between"'),
        ("after last", "glue", "layers.1", "after its call of 'layers.1.act'.", '"after last"'),
    ],
)
def test_glue_is_placed_before_between_and_after_the_children(bug, kind, path, where, line):
    report = culprit_of(Stack("", bug))

    assert (report.culprit.kind, report.culprit.path, report.culprit.class_name) == (kind, path, "Block")
    assert report.culprit.explanation.partition(" ")[2] == (
        f"tensors agree before it: the fault is in the lines of Block's forward {where}"
    )
    assert line in lines(report)


def test_module_without_children_is_itself_the_culprit():
    port = Stack("", "")
    port.layers[1].up.weight.data.mul_(1.1)

    culprit = culprit_of(port).culprit

    assert (culprit.kind, culprit.path) == ("module", "layers.1.up")
    assert culprit.explanation == (
        "Its inputs agree and its output does not, and it calls no other module: "
        "the fault is in the code, attributes or parameters of this Linear."
    )
    assert (culprit.divergence.direction, culprit.divergence.leaf) == ("output", "")


def test_first_of_several_faults_is_the_culprit():
    port = Stack("between", "after last")
    port.head.weight.data.zero_()

    assert culprit_of(port).culprit.path == "layers.0"


def test_module_that_is_never_called_is_named_where_it_belongs():
    report = culprit_of(Stack("", "no up"))

    assert (report.culprit.kind, report.culprit.path, report.culprit.class_name) == (
        "not-called",
        "layers.1.up",
        "Linear",
    )
    assert report.culprit.explanation == (
        "The expected forward calls 'layers.1.up' (Linear) between its calls of 'layers.1.norm' and 'layers.1.drop'; "
        "'layers.1.up' exists here and is never called."
    )


def test_call_too_many_is_named_with_its_line():
    report = culprit_of(Stack("", "extra"))

    assert (report.culprit.kind, report.culprit.path) == ("extra-call", "layers.1.spare")
    assert report.culprit.explanation == (
        "This forward calls 'layers.1.spare' (Softplus) between its calls of 'layers.1.up' and 'layers.1.drop'; "
        "the expected one does not."
    )
    assert "self.spare(x)" in lines(report)


def test_module_called_twice_is_a_call_too_many():
    report = culprit_of(Stack("", "twice"))

    assert (report.culprit.kind, report.culprit.path) == ("extra-call", "layers.1.act")


def test_one_module_in_the_place_of_another_is_glue_that_names_both():
    report = culprit_of(Stack("", "other act"))

    assert report.culprit.path in ("layers.1", "layers.1.act", "layers.1.spare")
    assert report.culprit.kind in ("glue", "not-called", "extra-call")
    assert "'layers.1.spare'" in report.culprit.explanation
    assert "'layers.1.act'" in report.culprit.explanation


def test_call_that_changes_nothing_may_be_left_out():
    report = culprit_of(Stack("", "no drop"))

    assert report.ok
    assert report.notes == []


def test_call_that_changes_nothing_is_not_blamed_for_what_stands_beside_it():
    port = Stack("", "no drop")
    port.layers[1].act.forward = lambda x: x.tanh() * 2

    report = culprit_of(port)

    assert (report.culprit.kind, report.culprit.path) == ("module", "layers.1.act")


def test_output_of_another_shape_is_said_so():
    report = culprit_of(Stack("", "shape"))

    assert report.culprit.path == "layers.1"
    assert "Shapes differ: (1, 4), expected (2, 4)" in str(report)


def test_other_inputs_are_the_model_s_own_and_nothing_below_is_blamed():
    report = compare(trace(Stack(""), X, mask=X), trace(Stack("after last"), X + 1, mask=X[:1]))

    assert (report.culprit.kind, report.culprit.path, report.culprit.source) == ("inputs", "Stack", None)
    assert report.culprit.explanation == (
        "The model was given other inputs than the expected forward: [0] (other values), "
        "['mask'] (shape (1, 4) instead of (2, 4)). The inputs differ, so nothing else was compared."
    )


@pytest.mark.parametrize(
    ("given", "expected", "text"),
    [
        ({}, {"mask": X}, "['mask'] (not given)"),
        ({"mask": X}, {}, "['mask'] (not given in the expected forward)"),
        ({"mask": X.double()}, {"mask": X}, "['mask'] (float64 instead of float32)"),
    ],
)
def test_inputs_of_another_form_are_said_to_be(given, expected, text):
    report = compare(trace(Stack(""), X, **expected), trace(Stack(""), X, **given))

    assert report.culprit.kind == "inputs"
    assert text in report.culprit.explanation


def test_input_that_changes_no_output_is_a_note():
    class Masked(Stack):
        def forward(self, x, mask=None):
            return super().forward(x, mask=torch.zeros(2) if mask is None else mask)

    class Other(Stack):
        def forward(self, x, mask=None):
            return super().forward(x, mask=torch.ones(2) if mask is None else mask)

    report = culprit_of(Other(""), Masked(""))

    assert report.ok
    assert report.notes == ["Inputs of 1 calls differ and change no output, the first of 'layers.0'."]


def test_calls_without_a_partner_that_change_no_output_are_notes():
    class Fused(Block):
        def forward(self, x, mask=None):
            self.spare(x)
            return self.act(nn.functional.linear(self.norm(x), self.up.weight, self.up.bias)) + x

    port = Stack("")
    port.layers[0] = Fused()

    report = culprit_of(port, Stack(""))

    assert report.ok
    assert report.notes == [
        "Never called here: 'layers.0.up'.",
        "Called only here: 'layers.0.spare'.",
    ]


def test_glue_in_a_loop_is_the_loop():
    class Scaled(Stack):
        def forward(self, x, mask=None):
            for number, layer in enumerate(self.layers):
                x = layer(x * (1.5 if number == 2 else 1), mask)
            return self.head(x)

    report = culprit_of(Scaled("", "", ""), Stack("", "", ""))

    assert (report.culprit.kind, report.culprit.path) == ("glue", "Scaled")
    assert lines(report).strip().startswith("for number")


class Attention(nn.Module):
    """A projection and another one, in a wrapper of its own or not; ``bug`` names the part that is wrong."""

    def __init__(self, wrapper=None, bug=""):
        super().__init__()
        self._bug = bug
        self.q = seeded()
        self.out = wrapper(seeded(), nn.Dropout(0.0)) if wrapper else seeded()

    def forward(self, x):
        q = self.q(x)
        weights = q.sigmoid() if self._bug == "caller" else q.tanh()
        return self.out(weights)


class Attending(nn.Module):
    def __init__(self, *arguments):
        super().__init__()
        self.attn = Attention(*arguments)

    def forward(self, x):
        return self.attn(x) + x


class Scaling(nn.Sequential):
    def forward(self, x):
        x = x * 2
        return super().forward(x)


class ScalingInPlace(nn.Sequential):
    def forward(self, x):
        return super().forward(x.mul_(2))


@pytest.mark.parametrize(
    ("wrapper", "inner"),
    [(nn.Sequential, "attn.out.0"), (lambda *inner: nn.Sequential(nn.Sequential(*inner)), "attn.out.0.0")],
)
def test_wrapper_that_hands_its_input_on_is_not_blamed_for_its_caller(wrapper, inner):
    rename = renamer({"attn.out": "attn.wrapper", inner: "attn.out"})  # a table would have to name modules

    report = culprit_of(Attending(wrapper, "caller"), Attending(), rename=rename)

    assert (report.culprit.kind, report.culprit.path) == ("glue", "attn")
    assert "forward between its calls of 'attn.q' and 'attn.out'." in report.culprit.explanation
    assert "sigmoid" in lines(report)


@pytest.mark.parametrize("wrapper", [Scaling, ScalingInPlace])
def test_wrapper_that_changes_its_input_is_to_blame(wrapper):
    rename = renamer({"attn.out.0": "attn.out", "attn.out": "attn.wrapper"})

    report = culprit_of(Attending(wrapper), Attending(), rename=rename)

    assert (report.culprit.kind, report.culprit.path) == ("glue", "attn.out")


def test_glue_in_a_helper_method_is_placed_there():
    class Helped(Block):
        def forward(self, x, mask=None):
            return self.finish(self.up(self.norm(x)), x)

        def finish(self, hidden, residual):
            hidden = self.drop(hidden)
            hidden = hidden * 1.5
            return self.act(hidden) + residual

    port = Stack("")
    port.layers[0] = Helped()

    report = culprit_of(port, Stack(""))

    assert (report.culprit.kind, report.culprit.path) == ("glue", "layers.0")
    assert "hidden * 1.5" in lines(report)


def test_tensor_that_a_module_no_longer_returns_is_a_divergence():
    class Out(nn.Module):
        def __init__(self, keys):
            super().__init__()
            self.keys = keys

        def forward(self, x):
            return dict.fromkeys(self.keys, x)

    report = compare(trace(Out("ab"), X), trace(Out("a"), X))

    assert (report.culprit.kind, report.culprit.path) == ("module", "Out")
    assert "The tensor is missing: expected shape (2, 4), float32" in str(report)


@dataclass
class Output(ModelOutput):
    logits: torch.Tensor | None = None
    hidden: torch.Tensor | None = None


class Naming(Stack):
    def __init__(self, pack):
        super().__init__("")
        self.pack = pack

    def forward(self, x):
        hidden = self.layers[0](x)
        return self.pack(hidden, self.head(hidden))


def test_outputs_are_held_to_those_of_their_name_in_whatever_container():
    expected = trace(Naming(lambda hidden, logits: Output(logits=logits, hidden=hidden)), X)

    right = compare(expected, trace(Naming(lambda hidden, logits: {"hidden": hidden, "logits": logits}), X))
    swapped = compare(expected, trace(Naming(lambda hidden, logits: {"logits": hidden, "hidden": logits}), X))

    assert right.ok
    assert (swapped.culprit.kind, swapped.culprit.path) == ("glue", "Naming")


class Shared(nn.Module):
    """One dropout, called after each of three layers, or after some of them."""

    def __init__(self, dropped=(0, 1, 2), act=None):
        super().__init__()
        self.layers = nn.ModuleList(map(seeded, (4, 4, 4)))
        self.drop = nn.Dropout(0.5) if act is None else act
        self.dropped = dropped
        self.eval()

    def forward(self, x):
        for place, layer in enumerate(self.layers):
            x = layer(x).tanh()
            for _ in range(self.dropped.count(place)):
                x = self.drop(x)
        return x


@pytest.mark.parametrize("dropped", [(0, 2), (1, 2), (2,), (0,), (), (0, 0, 1, 2), (0, 1, 2, 2)])
def test_shared_module_that_changes_nothing_may_be_called_more_or_less_often(dropped):
    less, more = Shared(dropped), Shared()

    for expected, actual in ((more, less), (less, more)):
        report = compare(trace(expected, X), trace(actual, X))
        assert report.ok, str(report)
        assert report.tensors > 0


class Upgraded(nn.Module):
    """A layer of two versions: the later one is given no positions and no flag, and calls its helper for each kind."""

    def __init__(self, version, scale=1.0, kinds=(1.0,)):
        super().__init__()
        self.version, self.kinds = version, kinds
        self.helper, self.layer = Helper(), Later(scale) if version > 1 else Earlier(scale)

    def forward(self, x):
        made = {kind: self.helper(x, kind) for kind in self.kinds}
        given = {"flag": None} if self.version > 1 else {"flag": True, "positions": torch.arange(4)}
        return self.layer(made[1.0], **given)


class Helper(nn.Module):
    def forward(self, x, kind):
        return x * kind


class Earlier(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale, self.inner = scale, seeded()

    def forward(self, x, positions=None, flag=None):
        return self.inner(x) * self.scale


class Later(Earlier):
    def forward(self, x, flag=None):
        return super().forward(x)


Later.__name__ = "Earlier"


def test_what_a_later_version_of_a_class_does_without_is_no_evidence():
    expected = trace(Upgraded(1), X)

    assert compare(expected, trace(Upgraded(2), X)).ok
    report = compare(expected, trace(Upgraded(2, 2.0), X))
    assert (report.culprit.kind, report.culprit.path) == ("glue", "layer")


@pytest.mark.parametrize("kinds", [(1.0, 3.0), (3.0, 1.0)])
def test_module_of_a_later_version_may_be_called_more_in_any_order(kinds):
    report = compare(trace(Upgraded(1), X), trace(Upgraded(2, kinds=kinds), X))

    assert report.ok, str(report)


def test_fault_between_calls_of_a_shared_module_is_still_named():
    port = Shared((1, 2))
    port.layers[1].weight.data.mul_(2)

    report = compare(trace(Shared(), X), trace(port, X))

    assert (report.culprit.kind, report.culprit.path) == ("weights", "layers.1")


def test_call_too_many_of_a_shared_module_that_changes_something_is_named():
    report = compare(trace(Shared(act=nn.Tanh()), X), trace(Shared((0, 1, 1, 2), act=nn.Tanh()), X))

    assert (report.culprit.kind, report.culprit.path) == ("glue", "Shared")
    assert "between its calls of 'drop#1' and 'drop#2'" in report.culprit.explanation
    assert "self.dropped.count(place)" in lines(report)


class Opaque:
    """A container that nobody can look into."""

    def __init__(self, *tensors):
        self.tensors = tensors


class Returning(Stack):
    def __init__(self, pack):
        super().__init__("")
        self.pack = pack

    def forward(self, x, mask=None):
        return self.pack(super().forward(x, mask))


class ReturningNone(Returning):
    pass


@pytest.mark.parametrize("kind", [Returning, ReturningNone])
@pytest.mark.parametrize("pack", [lambda x: None, lambda x: (), lambda x: {"logits": None}])
def test_forward_that_forgets_to_return_is_a_divergence(kind, pack):
    report = compare(trace(Returning(lambda x: x), X), trace(kind(pack), X))

    assert (report.culprit.kind, report.culprit.path) == ("glue", kind.__name__)
    assert "forward after its call of 'head'." in report.culprit.explanation
    assert "The tensor is missing: expected shape (2, 4), float32" in str(report)


def test_call_inside_that_returns_nothing_is_a_divergence():
    class Discarding(Stack):
        def forward(self, x, mask=None):
            x = self.layers[0](x)
            self.head(x)
            return nn.functional.linear(x, self.head.weight, self.head.bias)

    port = Discarding("")
    port.head.forward = lambda x: None

    report = compare(trace(Stack(""), X), trace(port, X), internal="fail")

    assert (report.culprit.kind, report.culprit.path) == ("module", "head")


def test_output_that_cannot_be_looked_into_is_a_divergence():
    report = compare(trace(Returning(lambda x: x), X), trace(ReturningNone(Opaque), X))

    assert (report.culprit.kind, report.culprit.path) == ("module", "ReturningNone")
    assert report.culprit.explanation == (
        f"ReturningNone returns <{__name__}.Opaque object at 0xXXXXXXXX>, in which no tensor can be found, so it was not "
        "compared. Return tensors, or a tuple, dict or dataclass of them, or tell how to open it with "
        "torch.utils._pytree.register_pytree_node."
    )
    assert "The tensor is missing: expected shape (2, 4), float32" in str(report)


def test_what_cannot_be_looked_into_on_both_sides_is_mentioned():
    report = compare(trace(Returning(Opaque), X), trace(ReturningNone(Opaque), X))

    assert report.ok
    assert report.notes == [
        (
            "What Returning returns was not compared, for no tensor can be found in it: "
            f"<{__name__}.Opaque object at 0xXXXXXXXX>. Return tensors, or a tuple, dict or dataclass of them, or tell how "
            "to open it with torch.utils._pytree.register_pytree_node."
        )
    ]


def test_object_inside_that_cannot_be_looked_into_may_hold_what_is_missing():
    port = Returning(lambda opaque: opaque.tensors[0])
    port.head.forward = lambda x: Opaque(nn.functional.linear(x, port.head.weight, port.head.bias))

    assert compare(trace(Returning(lambda x: x), X), trace(port, X)).ok


def test_same_inf_and_nan_on_both_sides_are_mentioned():
    class Infinite(nn.Module):
        def forward(self, x):
            return x / 0

    report = compare(trace(Infinite(), X), trace(Infinite(), X))

    assert report.ok
    assert report.notes == [
        *report.unseen,
        "inf or nan in the same places on both sides in 1 outputs, the first of 'Infinite'.",
    ]


def test_nothing_to_compare_is_an_error():
    class Silent(nn.Module):
        def forward(self, number):
            return None

    with pytest.raises(TFDebugError) as caught:
        compare(trace(Silent(), 1), trace(Silent(), 1))
    assert str(caught.value) == (
        "Nothing was compared: no tensors of 1 calls here and 1 expected ones matched by name and shape.\n"
        "Check that both forwards return tensors, and give rename= if the modules have other names."
    )


@pytest.mark.parametrize("side", ["expected", "actual"])
def test_what_is_no_trace_is_refused(side):
    sides = {"expected": trace(Block(), X), "actual": trace(Block(), X), side: Block()}

    with pytest.raises(TFDebugError, match=f"^compare needs traces and got Block as {side}: make one with"):
        compare(**sides)


def test_scaled_query_that_a_norm_takes_back_is_no_layout():
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "head_dim": 8, "vocab_size": 64}
    reference = Qwen3ForCausalLM(Qwen3Config(**sizes, num_hidden_layers=2, num_key_value_heads=2)).eval()
    port, ids = copy.deepcopy(reference), torch.arange(12).view(2, 6)
    port.model.layers[1].self_attn.q_proj.weight.data.mul_(1.5)

    report = compare(trace(reference, ids), trace(port, ids), internal="fail")

    assert report.culprit.path == "model.layers.1.self_attn.q_proj"


class Flagged(nn.Module):
    """A layer of two, and a flag that it hands on to the second, or uses itself."""

    def __init__(self, reach=""):
        super().__init__()
        self.reach, self.first, self.second = reach, Scale(), Scale()

    def forward(self, x, flag=False):  # noqa: FBT002 - as models take their flags
        x = self.second(self.first(x), flag and self.reach == "handed on")
        return x * (3 if flag and self.reach == "used" else 1)


class Scale(nn.Module):
    def __init__(self, by=1.0):
        super().__init__()
        self.by = by

    def forward(self, x, flag=False):  # noqa: FBT002 - as models take their flags
        return x * self.by * (2 if flag else 1)


@pytest.mark.parametrize(("reach", "kind"), [("", "module"), ("handed on", "inputs"), ("used", "inputs")])
def test_flag_is_blamed_only_where_it_can_reach_what_is_wrong(reach, kind):
    reference, port = Flagged(reach), Flagged(reach)
    port.second.by = 1.0 if reach else 5.0

    report = compare(trace(reference, X, flag=False), trace(port, X, flag=True))

    assert (report.culprit.kind, report.culprit.certain) == (kind, True)
    assert "is given flag=True instead of False" in f"{report.culprit.explanation} {report.notes}"
    assert "outputs=" not in str(report)


def test_numbers_of_modules_that_no_output_shows_are_told():
    reference, port = Flagged(), Flagged()
    port.first.by, port.second.by, port.first.drop_rate, reference.first.drop_rate = 1.0000001, 1, 0.5, 0.1

    report = compare(trace(reference, X), trace(port, X))

    assert report.ok
    assert report.unseen == [
        "Modules hold other numbers, and no output shows more than rounding of them: first.by=1.0000001 instead of 1.0."
    ]


def test_golden_tells_other_numbers_too(tmp_path):
    reference, port = Flagged(), Flagged()
    port.second.by = 1.0000001
    trace(reference, X).save(tmp_path / "reference.safetensors")

    report = compare(Trace.load(tmp_path / "reference.safetensors"), trace(port, X))

    assert "second.by=1.0000001 instead of 1.0" in report.unseen[0]


class Shifted(nn.Module):
    """A decoder that counts its positions from the shape of the ids, and may put another id in front."""

    def __init__(self, first):
        super().__init__()
        self._first = first
        self.words, self.positions = nn.Embedding(8, 4), Positions(8, 4)

    def forward(self, ids):
        ids = torch.cat([torch.full_like(ids[:, :1], self._first), ids[:, :-1]], 1)
        return self.words(ids) + self.positions(ids)


class Positions(nn.Embedding):
    def forward(self, ids):
        return super().forward(torch.arange(ids.shape[1]))


def test_ids_of_which_the_shape_alone_was_used_rightly_are_blamed_where_they_are_read():
    torch.manual_seed(0)
    reference, port = Shifted(2), Shifted(1)
    port.load_state_dict(reference.state_dict())
    ids = torch.tensor([[3, 4, 5]])

    culprit = compare(trace(reference, ids), trace(port, ids)).culprit

    assert (culprit.path, culprit.kind) == ("Shifted", "glue")
    assert linecache.getline(culprit.source.file, culprit.source.first).startswith("        ids = torch.cat(")


class Tower(nn.Module):
    """A library's module that returns as much as it is asked for."""

    def __init__(self):
        super().__init__()
        self.layer, self.norm = seeded(), nn.LayerNorm(4)

    def forward(self, x, output_hidden_states=False):  # noqa: FBT002 - as models take their flags
        hidden = self.layer(x)
        last = self.norm(hidden)
        return {"last": last, "hidden": (hidden, last)} if output_hidden_states else {"last": last}


class Folded(nn.Module):
    def __init__(self, *axes, asks=False):
        super().__init__()
        self._axes, self._asks = axes, asks
        self.tower, self.out = Tower(), seeded()

    def forward(self, x):
        last = self.tower(x, output_hidden_states=self._asks)["last"]
        return self.out(last.view(2, 2, 2).permute(self._axes).reshape(2, 4))


def test_output_that_no_caller_takes_may_be_missing_inside():
    expected = trace(Folded(0, 2, 1, asks=True), X)

    right, wrong = (compare(expected, trace(Folded(*axes), X)) for axes in ((0, 2, 1), (0, 1, 2)))

    assert right.ok
    assert right.notes == []
    assert (wrong.culprit.path, wrong.culprit.kind) == ("Folded", "glue")
