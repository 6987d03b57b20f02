"""Losses and trainings as people write them, each with a right twin: a quantiser, GRPO, thawing, two optimisers, EMA."""

import contextlib
import copy
from functools import partial
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import (
    Adafactor,
    BertConfig,
    BertForTokenClassification,
    GPT2Config,
    GPT2LMHeadModel,
    T5Config,
    T5ForTokenClassification,
)

from pytest_tfdebug import TFDebugError, compare_steps, fill

IDS = torch.randint(3, 60, (3, 2, 10), generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(20).view(2, 10) % 3


def gpt2():
    return fill(
        GPT2LMHeadModel(GPT2Config(vocab_size=60, n_positions=16, n_embd=32, n_layer=2, n_head=4)).eval(), seed=0
    )


def bert():
    config = BertConfig(
        vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, num_labels=3
    )
    return fill(BertForTokenClassification(config).eval(), seed=0)


def line_of(mark):
    lines = Path(__file__).read_text("utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {mark}"))


def named(report, mark):
    source = report.culprit.source
    return Path(source.file).name == Path(__file__).name and source.first <= line_of(mark) <= source.last


# --- losses whose steps compute the same numbers several times


class Quantised(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how, self.code, self.book, self.out = how, nn.Linear(6, 4), nn.Embedding(8, 4), nn.Linear(4, 6)

    def forward(self, x):
        z = self.code(x)
        q = self.book(torch.cdist(z, self.book.weight).argmin(1))
        return self.how(self, x, z, q)


def fused(model, x, z, q):
    loss = nn.functional.mse_loss(q, z.detach()) + 0.25 * nn.functional.mse_loss(z, q.detach())
    return (model.out(z + (q - z).detach()) - x).abs().mean() + loss


def in_steps(model, x, z, q, beta=0.25):
    loss = ((q - z.detach()) ** 2).mean() + beta * ((q.detach() - z) ** 2).mean()
    return (model.out(z + (q - z).detach()) - x).abs().mean() + loss


def on_the_wrong_term(model, x, z, q):
    loss = 0.25 * ((q - z.detach()) ** 2).mean() + ((q.detach() - z) ** 2).mean()  # wrong term
    return (model.out(z + (q - z).detach()) - x).abs().mean() + loss


def quantised(how):
    torch.manual_seed(0)
    return Quantised(how)


def test_quantiser_that_computes_in_steps_what_its_reference_fuses_agrees():
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))

    report = compare_steps(quantised(fused), quantised(in_steps), x, run=lambda model, x: model(x))

    assert report, report


def test_weight_on_the_wrong_term_of_a_loss_is_named():
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))

    report = compare_steps(quantised(fused), quantised(on_the_wrong_term), x, run=lambda model, x: model(x))

    assert not report
    assert named(report, "wrong term")


def likely(model, ids):
    return model(ids).logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]


def advantages():
    return torch.tensor([[1.0], [-0.5]])


def grpo(model, ids):
    now = likely(model, ids)
    apart = -3.0 - now
    per_token = -(now - now.detach()).exp() * advantages() + 0.5 * (apart.exp() - apart - 1)
    return per_token.mean()


def distance(known, now):
    apart = known - now
    return apart.exp() - apart - 1


def grpo_of_a_port(model, ids, *, is_cut=False):
    now = likely(model, ids)
    old = now.detach()
    ratio = (now - old).exp()
    gain = torch.min(ratio * advantages(), ratio.clamp(0.8, 1.2) * advantages())
    if is_cut:
        return (0.5 * distance(-3.0, old) - gain).mean()  # of what was cut off
    return (0.5 * distance(-3.0, now) - gain).mean()


def test_ratios_that_are_one_at_first_agree_with_a_loss_that_leaves_them_out():
    report = compare_steps(gpt2(), gpt2(), IDS[0], run=grpo, port_run=grpo_of_a_port)

    assert report, report


def test_penalty_of_values_that_are_rightly_cut_off_elsewhere_is_named_where_it_is_given_them():
    report = compare_steps(gpt2(), gpt2(), IDS[0], run=grpo, port_run=partial(grpo_of_a_port, is_cut=True))

    assert not report
    assert named(report, "of what was cut off")
    assert "takes what detach gave at test_steps_in_life.py:" in report.culprit.explanation


class SharedBias(T5ForTokenClassification):
    """Computes the biases of its first layer once, and cuts them off for the others."""

    def forward(self, input_ids, labels):
        later = self.transformer.encoder.block[1].layer[0].SelfAttention
        original = later.forward
        later.forward = lambda *args, **more: original(*args, **{**more, "position_bias": self.cut(more)})
        try:
            return super().forward(input_ids=input_ids, labels=labels)
        finally:
            later.forward = original

    def cut(self, given):
        return given["position_bias"].detach()  # cut


def t5(cls=T5ForTokenClassification):
    config = T5Config(
        vocab_size=60, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, dropout_rate=0.0, num_labels=3
    )
    return fill(cls(config).eval(), seed=0)


def test_biases_that_are_cut_off_for_later_layers_are_named_where_they_are():
    report = compare_steps(t5(), t5(SharedBias), {"input_ids": IDS[0], "labels": LABELS})

    assert not report
    assert named(report, "cut"), report
    assert report.culprit.proved


# --- trainings


def loss(model, ids):
    return model(input_ids=ids, labels=LABELS).loss


def groups(model):
    split = ([], [])
    for each in model.parameters():
        split[each.dim() > 1].append(each)
    return split


class OwnSGD(torch.optim.Optimizer):
    def __init__(self, params, lr, mixes):
        super().__init__(params, {"lr": lr})
        self.mixes = mixes

    @torch.no_grad()
    def step(self):
        for each in self.param_groups[0]["params"]:
            kept = self.state[each].setdefault("kept", torch.zeros_like(each))
            kept.mul_(0.9).add_(each.grad)
            each.sub_(self.param_groups[0]["lr"] * (each.grad + 0.9 * kept if self.mixes else kept))


NESTEROV = partial(torch.optim.SGD, momentum=0.9, nesterov=True)


def with_two(model, batches, made=NESTEROV):
    vectors, matrices = groups(model)
    optimizers = [made(matrices, lr=0.05), torch.optim.AdamW(vectors, lr=1e-3)]
    for ids in batches:
        loss(model, ids).backward()
        for each in optimizers:
            each.step()
        for each in optimizers:
            each.zero_grad()


@pytest.mark.parametrize("mixes", [True, False])
def test_one_of_two_optimisers_is_held_to_the_rule_of_its_partner(mixes):
    own = partial(with_two, made=partial(OwnSGD, mixes=mixes))

    report = compare_steps(bert(), bert(), [*IDS], run=with_two, port_run=own)

    assert bool(report) == mixes, report
    if not mixes:
        assert "OwnSGD does not look ahead (nesterov)" in report.culprit.explanation


class OwnAdafactor(Adafactor):
    """Holds the size of updates the wrong way round."""

    @torch.no_grad()
    def step(self, closure=None):
        before = [each.clone() for group in self.param_groups for each in group["params"]]
        super().step(closure)
        for each, old in zip((each for group in self.param_groups for each in group["params"]), before, strict=True):
            each.add_(each - old)


def by_adafactor(model, batches, made=Adafactor):
    held = made(model.parameters(), lr=1e-2, relative_step=False, scale_parameter=True, warmup_init=False)
    for ids in batches:
        held.zero_grad()
        loss(model, ids).backward()
        held.step()


TEST = """
from functools import partial
from test_steps_in_life import IDS, OwnAdafactor, bert, by_adafactor

def test_it(tf_golden):
    own = partial(by_adafactor, made=OwnAdafactor)
    tf_golden.check_step(bert(), reference=bert(), run=by_adafactor, port_run=own, batch=[*IDS])
"""


def test_rule_of_an_optimiser_of_transformers_is_known_from_the_golden(pytester):
    pytester.makepyfile(test_it=TEST)

    result = pytester.runpytest("--tf-golden=update")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E * OwnAdafactor makes other steps than Adafactor"])


class Averaged(nn.Module):
    def __init__(self):
        super().__init__()
        self.student = bert()
        self.teacher = copy.deepcopy(self.student).requires_grad_(requires_grad=False)


def with_average(model, batches, decay=0.9):
    held = torch.optim.SGD(model.student.parameters(), lr=0.1)
    for ids in batches:
        held.zero_grad()
        loss(model.student, ids).backward()
        held.step()
        with torch.no_grad():
            for teacher, student in zip(model.teacher.parameters(), model.student.parameters(), strict=True):
                teacher.mul_(decay).add_(student, alpha=1 - decay)  # averages


def test_average_of_another_decay_is_named_at_the_line_that_writes_it():
    report = compare_steps(Averaged(), Averaged(), [*IDS], run=with_average, port_run=partial(with_average, decay=0.1))

    assert not report
    assert named(report, "averages")
    assert "times as far as the reference's before step 2" in report.culprit.explanation


def frozen(model, batches):
    model.bert.embeddings.requires_grad_(requires_grad=False)
    held = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.3)
    for ids in batches:
        held.zero_grad()
        loss(model, ids).backward()
        held.step()


def without_gradients(model, batches, *, of_zeros=False):
    held = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.3)
    for ids in batches:
        held.zero_grad()
        loss(model, ids).backward()
        for each in model.bert.embeddings.parameters():
            each.grad = torch.zeros_like(each) if of_zeros else None
        held.step()


def test_gradients_that_are_taken_away_agree_with_frozen_parameters():
    report = compare_steps(bert(), bert(), [*IDS], run=frozen, port_run=without_gradients)

    assert report, report


def test_gradients_of_zeros_are_told_to_decay_what_the_reference_freezes():
    report = compare_steps(bert(), bert(), [*IDS], run=frozen, port_run=partial(without_gradients, of_zeros=True))

    assert not report
    assert "AdamW moves bert.embeddings.LayerNorm.bias, bert.embeddings.LayerNorm.weight" in report.culprit.explanation
    assert "which the reference's leaves as they are" in report.culprit.explanation
    assert "set it to None, or requires_grad to False" in report.culprit.explanation


def tries_again(model, batches, rate=0.1):
    held = torch.optim.SGD(model.parameters(), lr=rate)
    for ids in batches:
        held.zero_grad()
        loss(model, ids).backward()
        with contextlib.suppress(ValueError):
            held.step(lambda: int("no loss"))
        held.step()


def steps_once(model, batches, loss=loss):
    held = torch.optim.SGD(model.parameters(), lr=0.1)
    for ids in batches:
        held.zero_grad()
        loss(model, ids).backward()
        held.step()


def test_step_that_an_exception_left_is_none():
    assert compare_steps(bert(), bert(), [*IDS], run=steps_once, port_run=tries_again)


def test_rate_of_steps_after_one_that_an_exception_left_is_held():
    report = compare_steps(bert(), bert(), [*IDS], run=steps_once, port_run=partial(tries_again, rate=0.2))

    assert "SGD has lr 0.2; the reference has 0.1" in report.culprit.explanation


def by_closure(model, batches):
    held = torch.optim.LBFGS(model.parameters(), max_iter=2)
    for ids in batches:

        def closure(ids=ids):
            held.zero_grad()
            found = loss(model, ids)
            found.backward()
            return found

        held.step(closure)


def test_step_that_makes_its_own_backward_is_refused_with_what_to_do():
    with pytest.raises(TFDebugError, match=r"(?s)step of LBFGS begins before any backward.*step\(\) without a closure"):
        compare_steps(bert(), bert(), [*IDS], run=by_closure)


def averaged_by_data(model, batches, decay=0.9):
    held = torch.optim.SGD(model.student.parameters(), lr=0.1)
    for ids in batches:
        held.zero_grad()
        loss(model.student, ids).backward()
        held.step()
        for teacher, student in zip(model.teacher.parameters(), model.student.parameters(), strict=True):
            teacher.data = decay * teacher.data + (1 - decay) * student.data  # put in place
        model.teacher.requires_grad_(requires_grad=False)


def test_average_that_is_put_in_place_is_named():
    own = partial(averaged_by_data, decay=0.1)

    report = compare_steps(Averaged(), Averaged(), [*IDS], run=with_average, port_run=own)

    assert not report
    assert named(report, "put in place")


class Gated(nn.Module):
    def __init__(self, *, is_cut):
        super().__init__()
        self.embed, self.first, self.last = nn.Embedding(60, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.is_cut = is_cut

    def forward(self, ids):
        x = self.first(self.embed(ids))
        gate = x.sin()
        gate = gate.detach() if self.is_cut else gate
        return (self.last(x.tanh()) * gate).square().mean()  # uses the gate


def gated(*, is_cut):
    torch.manual_seed(0)
    model = Gated(is_cut=is_cut)
    model.embed.requires_grad_(requires_grad=False)
    return model


def test_gradient_too_many_is_named_beside_frozen_parameters():
    report = compare_steps(
        gated(is_cut=True), gated(is_cut=False), [*IDS], run=partial(steps_once, loss=lambda model, ids: model(ids))
    )

    assert not report
    assert named(report, "uses the gate")
    assert "gets a gradient, and should get none" in report.culprit.explanation


class Scripted(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.last = torch.jit.script(nn.Linear(4, 4)), nn.Linear(4, 4)

    def forward(self, x):
        return self.last(self.inner(x)).square().mean()


@pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")
def test_scripted_modules_are_left_as_they_were():
    torch.manual_seed(0)
    model = Scripted()
    port = Scripted()
    port.load_state_dict(model.state_dict())

    assert compare_steps(model, port, torch.ones(2, 4), run=lambda model, x: model(x))


def grown(model, batches):
    model.resize_token_embeddings(64, mean_resizing=False)
    frozen(model, batches)


def test_run_that_resizes_a_parameter_is_refused_and_leaves_the_model_as_it_was():
    reference, port = bert(), bert()
    before = {name: each.clone() for name, each in reference.state_dict().items()}

    with pytest.raises(TFDebugError, match=r"word_embeddings.weight from \(60, 32\) to \(64, 32\).*\n.*not in run="):
        compare_steps(reference, port, [*IDS], run=grown)

    assert all(torch.equal(each, before[name]) for name, each in reference.state_dict().items())


# --- parameters in another layout


class Categorical(nn.Module):
    """A sample of classes, whose gradient goes to their probabilities."""

    def __init__(self):
        super().__init__()
        self.code, self.out = nn.Linear(6, 12), nn.Linear(12, 6)

    def forward(self, x):
        chances = self.code(x).view(-1, 3, 4).softmax(-1)
        hard = nn.functional.one_hot(chances.argmax(-1), 4).float()
        return (self.out((hard + chances - chances.detach()).flatten(1)) - x).square().mean()


class ByEinsum(nn.Module):
    def __init__(self, reference, *, of_logits=False):
        super().__init__()
        self.weight = nn.Parameter(reference.code.weight.detach().view(3, 4, 6).clone())
        self.bias = nn.Parameter(reference.code.bias.detach().view(3, 4).clone())
        self.out, self.of_logits = copy.deepcopy(reference.out), of_logits

    def forward(self, x):
        logits = torch.einsum("bi,gci->bgc", x, self.weight) + self.bias
        soft = logits.softmax(-1)
        hard = (soft == soft.amax(-1, keepdim=True)).to(soft.dtype)
        straight = hard + (logits - logits.detach()) if self.of_logits else soft + (hard - soft).detach()  # straight
        return (self.out(straight.flatten(1)) - x).square().mean()


@pytest.mark.parametrize("of_logits", [False, True])
def test_straight_through_of_another_detach_agrees_and_one_of_logits_is_told(of_logits):
    torch.manual_seed(0)
    reference, x = Categorical(), torch.randn(5, 6)

    report = compare_steps(reference, ByEinsum(reference, of_logits=of_logits), x, run=lambda model, x: model(x))

    assert bool(report) != of_logits, report
    assert "Not compared" not in str(report)
    if of_logits:
        assert named(report, "straight")


class Norms(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 6)) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x).tanh()
        return x.square().mean()


class Scanned(nn.Module):
    """The same with the layers stacked, each kind in one tensor."""

    def __init__(self, reference):
        super().__init__()
        for place, (part, name) in enumerate(product((0, 1), ("weight", "bias"))):
            held = [getattr(layer[part], name).detach() for layer in reference.layers]
            self.register_parameter("abcd"[place], nn.Parameter(torch.stack(held)))

    def forward(self, x):
        for scale, shift, weight, bias in zip(self.a, self.b, self.c, self.d, strict=True):
            x = x + nn.functional.linear(nn.functional.layer_norm(x, (6,), scale, shift), weight, bias).tanh()
        return x.square().mean()


def decayed(model, batches, decays=lambda name, each: each.dim() > 1):
    split = {True: [], False: []}
    for name, each in model.named_parameters():
        split[decays(name, each)].append(each)
    held = torch.optim.AdamW([{"params": split[True]}, {"params": split[False], "weight_decay": 0.0}], 1e-2)
    for x in batches:
        held.zero_grad()
        model(x).backward()
        held.step()


def test_stacked_norms_agree_and_are_told_where_they_decay_as_matrices():
    torch.manual_seed(0)
    reference, batches = Norms(), torch.randn(3, 5, 6)
    by_name = partial(decayed, decays=lambda name, _: name == "c")

    assert compare_steps(reference, Scanned(reference), batches, run=decayed, port_run=by_name)
    report = compare_steps(reference, Scanned(reference), batches, run=decayed)

    assert "AdamW has weight_decay 0.01 for a, b and 1 more; the reference has 0" in report.culprit.explanation
