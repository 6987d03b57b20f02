"""A port whose forward agrees and whose backward does not: the line is named, and proved where it can be."""

import functools
import linecache
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.utils.checkpoint
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[2] / "fixtures"))
import llama_port
from pytest_tfdebug import TFDebugError, compare_steps
from pytest_tfdebug.steps import api
from pytest_tfdebug.steps.rows import ParameterPairs, ParameterRows, RowKeys
from pytest_tfdebug.steps.run import TrainedModel

IDS = torch.randint(0, 99, (2, 9), generator=torch.Generator().manual_seed(0))


def load_reference():
    """Return the fixture's Llama with weights that are large enough for every path to have a gradient."""
    reference = llama_port.load_reference()
    with torch.no_grad():
        for parameter in reference.parameters():
            if parameter.dim() > 1:
                parameter.mul_(6)
    return reference


def load_port(reference):
    return llama_port.load_port(reference)


def reference_loss(model, ids):
    return model(input_ids=ids, labels=ids).loss


def port_loss(model, ids):
    logits = model(ids)
    return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


@functools.cache
def reference_backward():
    return TrainedModel(load_reference(), reference_loss, IDS, "reference").made()


def held(port, run=port_loss, reference=None):
    """Return what ``compare_steps`` does; a reference as it is loaded is run once for all tests."""
    if reference is not None:
        return compare_steps(reference, port, IDS, run=reference_loss, port_run=run)
    own = TrainedModel(port, run, IDS, "port")
    return api.held(reference_backward(), own.made(), own.backward)


class Detached(llama_port.Mixer):
    def forward(self, hidden):
        gate = self.gate(hidden)
        wide = self.widen(hidden)
        return self.narrow(nn.functional.silu(gate.detach()) * wide)  # HERE


class OverData(llama_port.Attention):
    def turned(self, part):
        first, second = part.data.chunk(2, -1)  # HERE
        return torch.cat((-second, first), -1)


class WithoutGradient(llama_port.Norm):
    def forward(self, hidden):
        with torch.no_grad():
            inverse = torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + self.eps)  # HERE
        return hidden * inverse * self.scale


class Hooked(llama_port.Norm):
    def forward(self, hidden):
        normed = hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + self.eps)
        normed.register_hook(lambda gradient: gradient * 2)  # HERE
        return normed * self.scale


class Silu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate):
        ctx.save_for_backward(gate)
        return nn.functional.silu(gate)

    @staticmethod
    def backward(ctx, gradient):
        (gate,) = ctx.saved_tensors
        return gradient * torch.sigmoid(gate)


class OwnBackward(llama_port.Mixer):
    def forward(self, hidden):
        gate = self.gate(hidden)
        wide = self.widen(hidden)
        return self.narrow(Silu.apply(gate) * wide)  # HERE


class BehindItsBack(llama_port.Mixer):
    def forward(self, hidden):
        gate = self.gate(hidden)
        wide = self.widen(hidden)
        mixed = self.narrow(nn.functional.silu(gate) * wide)
        gate.data.mul_(0.5)  # HERE
        return mixed


class Boxed(llama_port.Mixer):
    def forward(self, hidden):
        return super().forward(hidden[0])


class Checkpointed(llama_port.Block):
    def forward(self, hidden, cos, sin):
        self.mixer.__class__ = Boxed
        hidden = hidden + self.attention(self.attention_norm(hidden), cos, sin)
        mixed = [self.mixer_norm(hidden)]
        return hidden + torch.utils.checkpoint.checkpoint(self.mixer, mixed, use_reentrant=True)  # HERE


class Frozen(llama_port.Mixer):
    def forward(self, hidden):
        gate = nn.functional.linear(hidden, self.gate.weight.detach())  # HERE
        return self.narrow(nn.functional.silu(gate) * self.widen(hidden))


class Numbers(llama_port.Norm):
    def forward(self, hidden):
        squares = hidden.pow(2).mean(-1, keepdim=True)
        squares = torch.tensor(squares.tolist(), dtype=hidden.dtype)  # HERE
        return hidden * torch.rsqrt(squares + self.eps) * self.scale


class StraightThrough(llama_port.Mixer):
    def forward(self, hidden):
        gate, wide = self.gate(hidden), self.widen(hidden)
        gate = gate + (nn.functional.silu(gate) - gate).detach()  # HERE
        return self.narrow(gate * wide)


class OverNumpy(llama_port.Mixer):
    def forward(self, hidden):
        gate, wide = self.gate(hidden), self.widen(hidden)
        gate = torch.from_numpy(gate.detach().numpy())  # HERE
        return self.narrow(nn.functional.silu(gate) * wide)


class SwitchedOff(llama_port.Mixer):
    def forward(self, hidden):
        self.widen.weight.requires_grad = False  # HERE
        return super().forward(hidden)


class HookedPiece(llama_port.Attention):
    def turned(self, part):
        part.register_hook(torch.zeros_like)  # HERE
        return super().turned(part)


#: A class with the line that spoils a gradient, what it takes the place of, whether a proof is had, and what is said.
BUGS = [
    (Detached, True, "detach leaves the graph here"),
    (OverData, True, ".data leaves the graph here"),
    (WithoutGradient, True, "runs with gradients switched off"),
    (Hooked, True, "a hook changes the gradient here"),
    (OwnBackward, True, "Silu has another backward than its forward"),
    (BehindItsBack, True, "changes a tensor behind autograd's back"),
    (Frozen, True, "detach leaves the graph here"),
    (Checkpointed, False, "runs with gradients switched off"),
    (Numbers, False, "numbers are taken out of torch here"),
    (StraightThrough, True, "detach leaves the graph here"),
    (OverNumpy, False, "detach leaves the graph here"),
    (SwitchedOff, True, "a gradient is switched off here"),
    (HookedPiece, True, "a hook changes the gradient here"),
]


def with_bug(bug, layers=(0, 1, 2)):
    port = load_port(load_reference())
    places = [each for each in port.modules() if isinstance(each, bug.__base__)]
    for number in layers:
        places[number].__class__ = bug
    return port


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")
@pytest.mark.parametrize(("bug", "is_proved", "said"), BUGS, ids=lambda each: getattr(each, "__name__", ""))
def test_backward_bug_is_named_by_its_line(bug, is_proved, said):
    report = held(with_bug(bug))

    culprit = report.culprit
    assert not report
    assert culprit.kind == "gradient"
    assert "# HERE" in linecache.getline(culprit.source.file, culprit.source.first)
    assert said in culprit.wrong
    assert bool(culprit.proved) == is_proved
    assert culprit.certain or not is_proved


def test_backward_bug_of_one_layer_is_named_in_that_layer():
    report = held(with_bug(Detached, layers=(1,)))

    assert report.culprit.path == "blocks.1.mixer"


def test_clean_port_agrees_in_every_gradient():
    reference = load_reference()
    report = held(load_port(reference), reference=reference)

    assert report
    assert str(report).startswith("Parity: the loss, ")
    assert "24 parameters agree" in str(report)


class InPlace(llama_port.Mixer):
    def forward(self, hidden):
        gate, wide = self.gate(hidden), self.widen(hidden)
        wide *= 0.5
        return self.narrow(nn.functional.silu(gate) * wide * 2)


class Offset(llama_port.Norm):
    def forward(self, hidden):
        return hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + self.eps) * (1 + self.scale)


class Reentrant(llama_port.Block):
    def forward(self, hidden, cos, sin):
        forward = super().forward
        return torch.utils.checkpoint.checkpoint(forward, hidden, cos, sin, use_reentrant=True)


def test_port_that_writes_in_place_and_checkpoints_agrees():
    port = load_port(load_reference())
    for each in port.modules():
        own = next((kind for kind in (InPlace, Offset, Reentrant) if type(each) is kind.__base__), type(each))
        each.__class__ = own
        if own is Offset:
            nn.init.zeros_(each.scale)

    report = held(port)

    assert report, report
    assert "Not compared, for no parameter of the reference holds their numbers: blocks.0.attention_norm" in str(report)


def test_parameters_of_zeros_are_all_held_by_their_like():
    weights = {"wide": torch.zeros(8), "first": torch.zeros(4), "second": torch.zeros(4), "table": torch.zeros(2, 4)}
    gradients = {name: torch.arange(1.0, 1 + weight.numel()).reshape(weight.shape) for name, weight in weights.items()}
    gradients["first"] = None
    own, expected = (
        ParameterRows.of({name: weights[name] for name in names}, gradients, RowKeys())
        for names in (("table", "second", "first", "wide"), weights)
    )

    pairs = ParameterPairs(own, expected)

    assert (pairs.missing, pairs.unpaired) == ((), ())
    for name in weights:
        mine, theirs = pairs.beside(name, own, expected)
        assert (mine == theirs).all()


def rows_of(weights, gradients):
    return ParameterRows.of(weights, gradients, RowKeys())


def paired(own, expected, more=()):
    """Hold a port's weights to a reference's, each a pair of weight and gradient."""
    sides = [rows_of(*({name: each[at] for name, each in side.items()} for at in (0, 1))) for side in (own, expected)]
    return ParameterPairs(*sides, more), sides


def test_bias_of_another_shape_and_one_that_is_put_together_are_held_by_their_elements():
    torch.manual_seed(0)
    some = {name: (torch.randn(size), torch.randn(size)) for name, size in (("q", 6), ("k", 4), ("v", 1))}
    own = {
        "table": tuple(each.view(2, 3).t().contiguous() for each in some["q"]),
        "fused": tuple(torch.cat(each) for each in zip(some["k"], some["v"], strict=True)),
    }

    pairs, sides = paired(own, some)

    assert (pairs.missing, pairs.unpaired) == ((), ())
    assert pairs.paired["fused"].others == ("k", "v")
    for name in own:
        mine, theirs = pairs.beside(name, *sides)
        assert np.allclose(mine, theirs)


def test_biases_are_held_together_where_the_reference_fuses_them():
    torch.manual_seed(0)
    own = {name: (torch.randn(size), torch.randn(size)) for name, size in (("q", 5), ("k", 2), ("v", 1))}
    fused = tuple(torch.cat(each) for each in zip(*own.values(), strict=True))

    pairs, sides = paired(own, {"fused": fused})

    assert (pairs.missing, pairs.unpaired) == ((), ())
    for name in own:
        mine, theirs = pairs.beside(name, *sides)
        assert np.allclose(mine, theirs)


def test_stacked_rows_with_the_same_numbers_are_told_by_their_gradients_each_once():
    ones, slopes = torch.ones(4), torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    expected = {f"norms.{number}": (ones, slopes[number]) for number in range(3)}

    pairs, sides = paired({"stack": (torch.ones(2, 4), slopes[[2, 0]]), "last": (ones, torch.zeros(4))}, expected)

    assert pairs.paired["stack"].others == ("norms.2", "norms.0")
    assert pairs.paired["last"].others == ("norms.1",)
    mine, theirs = pairs.beside("stack", *sides)
    assert np.allclose(mine, theirs)


def test_report_of_a_backward_begins_with_the_answer():
    report = held(with_bug(Detached, layers=(1,)))

    assert str(report).splitlines()[0] == (
        f"test_steps_backward.py:{report.culprit.source.first} in blocks.1.mixer (Detached): detach leaves the graph here"
    )
    assert "Proved: without this detach, every gradient agrees." in str(report)
    assert "gets no gradient" in str(report)


def test_loss_that_differs_is_said_before_any_gradient():
    report = held(load_port(load_reference()), run=lambda model, ids: port_loss(model, ids) * 2)

    assert not report
    assert report.culprit.kind != "gradient"


def test_models_are_left_as_they_were():
    reference, port = load_reference(), with_bug(SwitchedOff, layers=(0,))
    port.head.weight.grad = torch.ones_like(port.head.weight)
    before = {name: value.clone() for name, value in port.state_dict().items()}

    held(port, reference=reference)

    assert torch.equal(port.head.weight.grad, torch.ones_like(port.head.weight))
    assert port.norm.scale.grad is None
    assert all(each.requires_grad for each in port.parameters())
    assert all(torch.equal(value, before[name]) for name, value in port.state_dict().items())


def test_run_without_a_loss_is_refused():
    with pytest.raises(TFDebugError, match="run of the port returned a tensor of shape"):
        held(load_port(load_reference()), run=lambda model, ids: model(ids))


def test_model_in_bfloat16_is_held_in_float32():
    reference = load_reference()
    port, frequencies = load_port(reference), reference.model.rotary_emb.inv_freq
    reference.bfloat16().model.rotary_emb.inv_freq = frequencies  # from_pretrained keeps it in float32

    assert held(port.bfloat16(), reference=reference)
    assert port.head.weight.dtype == torch.bfloat16


def test_autocast_of_a_run_does_not_hide_what_agrees():
    before = torch.autocast("cpu", dtype=torch.bfloat16)

    @torch.autocast("cpu", dtype=torch.bfloat16)
    def under_autocast(model, ids):
        with before, torch.autocast("cpu", dtype=torch.bfloat16):
            return port_loss(model, ids)

    assert held(load_port(load_reference()), run=under_autocast)


def test_compiled_port_is_held_as_it_is_written():
    culprit = held(torch.compile(with_bug(Detached, layers=(1,)), backend="eager")).culprit

    assert "# HERE" in linecache.getline(culprit.source.file, culprit.source.first)
    assert culprit.proved


def test_run_that_uses_another_model_is_refused():
    port = load_port(load_reference())

    with pytest.raises(TFDebugError, match="run of the port used no parameter of the model that it was given"):
        held(load_port(load_reference()), run=lambda model, ids: port_loss(port, ids))


def test_hook_that_was_put_on_a_module_before_is_named():
    port = load_port(load_reference())
    port.blocks[1].mixer.register_full_backward_hook(lambda _module, given, _made: tuple(3 * each for each in given))

    culprit = held(port).culprit

    assert culprit.path == "blocks.1.mixer"
    assert culprit.wrong == "a hook on blocks.1.mixer changes the gradient"
    assert "register_full_backward_hook" in linecache.getline(culprit.source.file, culprit.source.first)
    assert culprit.proved


def test_parameter_that_the_reference_ties_and_the_port_does_not_is_told():
    reference = load_reference()
    reference.lm_head.weight = reference.model.embed_tokens.weight
    port = load_port(reference)

    culprit = held(port, reference=reference).culprit

    assert culprit.certain
    assert "head.weight and tokens.weight are one parameter in the reference" in culprit.wrong
