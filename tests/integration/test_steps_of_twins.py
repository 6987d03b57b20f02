"""Trainings that come to the same by other ways, each beside one that does not: scalers, sums by hand, masks, averages."""

import copy
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from pytest_tfdebug import TFDebugError, compare_steps

DATA = torch.randn(6, 5, 6, generator=torch.Generator().manual_seed(1))
RATE, DECAY = 0.05, 0.2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 6)

    def forward(self, x):
        hidden = self.first(x)  # uses the first
        return self.last(self.norm(hidden).tanh())


def net():
    torch.manual_seed(0)
    return Net()


def loss(model, x):
    return (model(x) - x).square().mean()


def held(run, port_run, made=net):
    return compare_steps(made(), made(), DATA, run=run, port_run=port_run)


def line_of(mark):
    lines = Path(__file__).read_text("utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {mark}"))


def is_named(report, mark):
    source = report.culprit.source
    return Path(source.file).name == Path(__file__).name and source.first <= line_of(mark) <= source.last


SGD = partial(torch.optim.SGD, lr=RATE, momentum=0.9)


def plain(model, data, made=SGD):
    optimizer = made(model.parameters())
    for x in data:
        optimizer.zero_grad()
        loss(model, x).backward()
        optimizer.step()


# --- scales of the loss


def clipped(model, data):
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for x in data:
        optimizer.zero_grad()
        loss(model, x).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()


def scaled(model, data, *, unscales=True, clip=0.1):
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=RATE), torch.amp.GradScaler("cpu", init_scale=1024.0)
    for x in data:
        optimizer.zero_grad()
        scaler.scale(loss(model, x)).backward()
        if unscales:
            scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        scaler.step(optimizer)  # steps by the scaler
        scaler.update()


def test_scaled_loss_agrees_where_its_scale_is_undone():
    report = held(clipped, scaled)

    assert report, report
    assert "of SGD" in report.agreement


def test_clipping_of_scaled_gradients_is_told_with_both_factors():
    report = held(clipped, partial(scaled, unscales=False))

    assert is_named(report, "steps by the scaler")
    assert "clips or scales the gradients otherwise" in report.culprit.explanation
    assert "The backwards leave 1024 times the reference's gradients" in " ".join(str(report).split())


def doubled(model, data):
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for x in data:
        optimizer.zero_grad()
        (2 * loss(model, x)).backward()  # twice the loss
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()


def test_scale_of_a_loss_that_only_clipping_hides_is_told():
    report = held(clipped, doubled)

    assert is_named(report, "twice the loss")
    assert "gives 2 times the gradient" in report.culprit.explanation


def with_a_constant(model, data):
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    for x in data:
        optimizer.zero_grad()
        (loss(model, x) + 3.0).backward()
        optimizer.step()


def test_loss_that_differs_by_a_constant_is_said_and_not_called_wrong():
    report = held(plain, with_a_constant)

    assert report, report
    assert "what is trained is the same" in str(report.notes)


# --- gradients that are summed


def in_batches(model, data):
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    for start in (0, 2, 4):
        optimizer.zero_grad()
        for x in data[start : start + 2]:
            (loss(model, x) / 2).backward()
        optimizer.step()


def divided_later(model, data, count=2):
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    for number, x in enumerate(data, 1):
        loss(model, x).backward()
        if number % 2 == 0:
            for each in model.parameters():
                each.grad.div_(count)  # divides
            optimizer.step()
            optimizer.zero_grad()


def by_grad(model, data, *, sums=True):
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    for number, x in enumerate(data, 1):
        found = torch.autograd.grad(loss(model, x), [*model.parameters()])
        for each, gradient in zip(model.parameters(), found, strict=True):
            kept = each.grad if sums and each.grad is not None else 0
            each.grad = kept + gradient / 2  # puts gradients
        if number % 2 == 0:
            optimizer.step()
            optimizer.zero_grad()


@pytest.mark.parametrize("run", [divided_later, by_grad])
def test_sums_of_gradients_by_another_way_agree(run):
    report = held(in_batches, run)

    assert report, report


def test_sum_of_gradients_that_is_divided_otherwise_is_told():
    report = held(in_batches, partial(divided_later, count=3))

    assert is_named(report, "divides")
    assert "clips or scales the gradients otherwise" in report.culprit.explanation


def test_gradients_that_are_put_and_not_summed_are_told_where_they_are_put():
    report = held(in_batches, partial(by_grad, sums=False))

    assert is_named(report, "puts gradients")
    assert "changes the gradients before the step" in report.culprit.explanation


def by_hand_with_grad(model, data, rate=RATE):
    for x in data:
        found = torch.autograd.grad(loss(model, x), [*model.parameters()])
        with torch.no_grad():
            for each, gradient in zip(model.parameters(), found, strict=True):
                each -= rate * gradient  # goes down  # noqa: PLW2901 - in place


def test_loop_that_asks_for_gradients_and_has_no_optimiser_is_held_by_where_it_leads():
    by_sgd = partial(plain, made=partial(torch.optim.SGD, lr=RATE))

    assert held(by_sgd, by_hand_with_grad)
    report = held(by_sgd, partial(by_hand_with_grad, rate=2 * RATE))

    assert not report
    assert "own code has lr 0.1" in report.culprit.explanation


def zeroed_too_often(model, data):
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    for number, x in enumerate(data, 1):
        optimizer.zero_grad()  # too often
        (loss(model, x) / 2).backward()
        if number % 2 == 0:
            optimizer.step()


def test_gradients_that_are_zeroed_between_batches_are_told_where_they_are():
    report = held(in_batches, zeroed_too_often)

    assert is_named(report, "too often")
    assert "zeroes the gradients between two batches of a step" in report.culprit.explanation


# --- optimisers


def by_two(model, data, *, shares=False):
    halves = [*model.first.parameters(), *model.norm.parameters()], [*model.last.parameters()]
    halves = (halves[0], [*halves[1], *halves[0][:1]]) if shares else halves
    optimizers = [torch.optim.SGD(half, lr=RATE, momentum=0.9) for half in halves]  # two halves
    for x in data:
        model.zero_grad()
        loss(model, x).backward()
        for each in optimizers:
            each.step()


def test_two_optimisers_in_place_of_one_agree():
    report = held(plain, by_two)

    assert report, report
    assert "So do 6 steps of SGD." in report.agreement


def test_parameter_of_two_optimisers_is_told():
    report = held(plain, partial(by_two, shares=True))

    assert is_named(report, "two halves")
    assert "SGD has 1 parameter twice: first.weight" in report.culprit.explanation


class OwnAdam:
    """No optimiser of torch."""

    def __init__(self, parameters, *, corrects=True):
        self.parameters, self.corrects, self.count = [*parameters], corrects, 0
        self.moments = [(torch.zeros_like(each), torch.zeros_like(each)) for each in self.parameters]

    def zero_grad(self):
        for each in self.parameters:
            each.grad = None

    @torch.no_grad()
    def step(self):
        self.count += 1
        second = 1 - 0.999**self.count if self.corrects else 1
        for each, (m, v) in zip(self.parameters, self.moments, strict=True):
            m.mul_(0.9).add_(each.grad, alpha=0.1)
            v.mul_(0.999).addcmul_(each.grad, each.grad, value=0.001)
            each.sub_(RATE * m / (1 - 0.9**self.count) / ((v / second).sqrt() + 1e-8))  # moves them


@pytest.mark.parametrize("corrects", [True, False])
def test_own_class_that_is_no_optimiser_of_torch_is_held_to_the_rule_of_one(corrects):
    by_adam = partial(plain, made=partial(torch.optim.Adam, lr=RATE))

    report = held(by_adam, partial(plain, made=partial(OwnAdam, corrects=corrects)))

    assert bool(report) == corrects, report
    if not corrects:
        assert is_named(report, "moves them")
        assert "own code corrects the bias of the first moment alone" in report.culprit.explanation
        assert report.culprit.certain


class Blended(torch.optim.Optimizer):
    """Moves by the sign of a blend, in a method of its own."""

    def __init__(self, parameters, *, is_late=False):
        super().__init__(parameters, {"lr": RATE})
        self.is_late = is_late

    @torch.no_grad()
    def step(self):
        for each in self.param_groups[0]["params"]:
            self.move(each, self.state[each].setdefault("m", torch.zeros_like(each)))

    def move(self, each, m):
        if self.is_late:
            m.lerp_(each.grad, 0.01)  # blends before
        each.sub_(RATE * (0.9 * m + 0.1 * each.grad).sign())
        if not self.is_late:
            m.lerp_(each.grad, 0.01)


class Known(Blended):
    pass


def test_method_that_moves_parameters_is_named_where_a_class_makes_other_steps():
    report = held(partial(plain, made=Known), partial(plain, made=partial(Blended, is_late=True)))

    assert is_named(report, "blends before")
    assert "Blended makes other steps than Known" in report.culprit.explanation
    assert not report.culprit.certain


def falling(model, data, each=2):
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=3)
    for number, x in enumerate(data, 1):
        (loss(model, x) / 2).backward()
        if number % each == 0:
            schedule.step()
        if number % 2 == 0:
            optimizer.step()  # after the schedule
            optimizer.zero_grad()


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
def test_rate_that_was_changed_since_the_optimiser_was_made_is_told_at_the_step():
    report = held(falling, partial(falling, each=1))

    assert is_named(report, "after the schedule")
    assert "AdamW has lr 0.02; the reference has 0.035" in report.culprit.explanation


# --- parameters that stay, and averages


def restored(model, data, *, restores=True):
    weight = model.first.weight
    before, optimizer = weight.detach().clone(), torch.optim.AdamW([weight], lr=RATE, weight_decay=DECAY)
    for x in data:
        optimizer.zero_grad()
        loss(model, x).backward()
        optimizer.step()
        if restores:
            with torch.no_grad():
                weight[1:] = before[1:]


def masked(model, data, decay=0.0, by_hand=DECAY):
    weight, mask = model.first.weight, torch.zeros(8, 1)
    mask[0] = 1
    weight.register_hook(lambda gradient: gradient * mask)
    optimizer = torch.optim.AdamW([weight], lr=RATE, weight_decay=decay)
    for x in data:
        optimizer.zero_grad()
        loss(model, x).backward()
        weight.data[0] *= 1 - RATE * by_hand
        optimizer.step()  # decays them


def test_masked_gradients_agree_with_rows_that_are_restored():
    report = held(restored, masked)

    assert report, report


def test_rows_that_decay_though_the_reference_restores_them_are_told():
    report = held(restored, partial(masked, decay=DECAY, by_hand=0.0))

    assert is_named(report, "decays them")
    assert "AdamW moves rows of first.weight, which the reference's leaves as they are" in report.culprit.explanation


@pytest.mark.parametrize("run", [partial(restored, restores=False), partial(masked, by_hand=0.0)])
def test_rows_that_come_elsewhere_than_the_reference_brings_them_are_told(run):
    report = held(restored, run)

    assert report.culprit.kind == "step", report


def test_hook_that_the_reference_has_and_the_port_lacks_is_told():
    report = held(masked, partial(restored, restores=False))

    assert is_named(report, "uses the first")
    assert "the reference puts a hook on the gradient of what is used here" in report.culprit.explanation
    assert not report.culprit.certain


class Averaged(nn.Module):
    def __init__(self, *, is_cut=False):
        super().__init__()
        self.student = net()
        self.teacher, self.is_cut = copy.deepcopy(self.student).requires_grad_(requires_grad=False), is_cut

    def forward(self, x):
        hidden = self.student.first(x)
        hidden = hidden.detach() if self.is_cut else hidden
        return self.student.last(self.student.norm(hidden).tanh())


def average(model):
    with torch.no_grad():
        for teacher, student in zip(model.teacher.parameters(), model.student.parameters(), strict=True):
            teacher.data.lerp_(student, 0.2)  # averages


def averaged(model, data, when="after"):
    optimizer = torch.optim.SGD(model.student.parameters(), lr=RATE, momentum=0.9)
    if when == "in a hook":
        optimizer.register_step_post_hook(lambda *_: average(model))
    for x in data:
        optimizer.zero_grad()
        loss(model, x).backward()
        if when == "before":
            average(model)
        optimizer.step()
        if when == "after":
            average(model)


def test_average_in_a_hook_agrees_with_one_after_the_step():
    report = held(averaged, partial(averaged, when="in a hook"), Averaged)

    assert report, report


def test_average_that_lags_a_step_is_told_where_it_is_made():
    report = held(averaged, partial(averaged, when="before"), Averaged)

    assert is_named(report, "averages")
    assert "is not moved before step 2" in report.culprit.explanation


def test_weights_without_a_gradient_do_not_pass_for_their_average():
    made = partial(Averaged, is_cut=True)

    report = compare_steps(Averaged(), made(), DATA, run=averaged)

    assert report.culprit.kind == "gradient", report


# --- biases that the reference fuses


class Fused(nn.Module):
    def __init__(self):
        super().__init__()
        self.both, self.out = nn.Linear(6, 7), nn.Linear(7, 6)

    def forward(self, x):
        return self.out(self.both(x).tanh())


class Split(nn.Module):
    def __init__(self, reference, *, is_cut=False):
        super().__init__()
        weight, bias = (each.detach().clone() for each in reference.both.parameters())
        self.q, self.k = nn.Parameter(weight[:4]), nn.Parameter(weight[4:])
        self.q_bias, self.k_bias = nn.Parameter(bias[:4].clone()), nn.Parameter(bias[4:].clone())
        self.out, self.is_cut = copy.deepcopy(reference.out), is_cut

    def forward(self, x):
        bias = self.k_bias.detach() if self.is_cut else self.k_bias
        q, k = nn.functional.linear(x, self.q, self.q_bias), nn.functional.linear(x, self.k, bias)
        return self.out(torch.cat([q, k], -1).tanh())


@pytest.mark.parametrize("is_cut", [False, True])
def test_biases_of_other_lengths_are_held_together(is_cut):
    torch.manual_seed(0)
    reference = Fused()

    report = compare_steps(reference, Split(reference, is_cut=is_cut), DATA, run=plain)

    assert bool(report) != is_cut, report
    assert "Not compared" not in str(report)


# --- what no optimiser of a step sees, and what nothing was compared of


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.made, self.judge = nn.Linear(6, 6), nn.Linear(6, 1)


def both():
    torch.manual_seed(0)
    return Both()


def against(model, data, *, cuts=True, zeroes=True):
    optimizers = [torch.optim.SGD(each.parameters(), lr=RATE) for each in (model.judge, model.made)]
    for x in data:
        model.zero_grad()
        made = model.made(x).detach() if cuts else model.made(x)
        (model.judge(made) - model.judge(x)).mean().backward()
        optimizers[0].step()
        if zeroes:
            model.zero_grad()
        model.judge(model.made(x)).square().mean().backward()
        optimizers[1].step()


def test_gradients_of_parameters_that_no_optimiser_of_the_step_holds_do_not_count():
    assert held(against, partial(against, cuts=False), both)
    report = held(against, partial(against, cuts=False, zeroes=False), both)

    assert report.culprit.kind == "step", report


class Flat(nn.Module):
    """All parameters in one."""

    def __init__(self, reference):
        super().__init__()
        held = [*reference.parameters()]
        self.flat = nn.Parameter(torch.cat([each.detach().flatten() for each in held]))
        self.shapes = [each.shape for each in held]

    def forward(self, x):
        parts = self.flat.split([shape.numel() for shape in self.shapes])
        first, shift, scale, bias, last, end = (part.view(to) for part, to in zip(parts, self.shapes, strict=True))
        hidden = nn.functional.layer_norm(nn.functional.linear(x, first, shift), (8,), scale, bias)
        return nn.functional.linear(hidden.tanh(), last, end)


def test_one_flat_parameter_is_held_to_all_that_it_is_made_of():
    report = compare_steps(net(), Flat(net()), DATA, run=plain)

    assert report, report
    assert "Not compared" not in str(report)
    by_other = partial(plain, made=partial(torch.optim.SGD, lr=RATE, momentum=0.5))
    assert not compare_steps(net(), Flat(net()), DATA, run=plain, port_run=by_other)


def test_port_with_other_weights_is_refused():
    port = net()
    with torch.no_grad():
        for each in port.parameters():
            each.add_(torch.randn(each.shape))

    with pytest.raises(TFDebugError, match=r"(?s)No parameter of the port holds.*Load the reference's weights"):
        compare_steps(net(), port, DATA, run=plain)


def penalised(model, x):
    x = x.flatten(0, 1).requires_grad_()
    (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    return loss(model, x) + slope.square().mean()


def penalised_by_vmap(model, x, share=1.0):
    x = x.flatten(0, 1)
    slope = torch.func.vmap(torch.func.grad(lambda row: model(row).sum()))(x)
    return loss(model, x) + share * slope.square().mean()


def test_gradients_inside_a_transform_of_torch_func_are_those_of_autograd():
    assert held(penalised, penalised_by_vmap)
    assert not held(penalised, partial(penalised_by_vmap, share=0.5))


class Looked(nn.Module):
    def __init__(self, sparse):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.last = nn.Embedding(12, 6, sparse=sparse), nn.Linear(6, 6)

    def forward(self, x):
        return self.last(self.table((x[..., 0] * 4).long().clamp(0, 11)))


def looked_up(model, x, times=1.0):
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE * times)
    for _ in range(2):
        optimizer.zero_grad()
        loss(model, x).backward()
        optimizer.step()


def test_sparse_gradients_are_held_to_dense_ones():
    held_to = partial(compare_steps, Looked(sparse=False), batch=DATA, run=looked_up)

    assert held_to(Looked(sparse=True))
    assert not held_to(Looked(sparse=True), port_run=partial(looked_up, times=2))


def decayed(model, x):
    trained(torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY), model, x)


def decayed_by_hand(model, x, *, but=()):
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    for _ in range(2):
        optimizer.zero_grad()
        loss(model, x).backward()
        with torch.no_grad():
            for name, weight in model.named_parameters():
                weight.mul_(1 if name in but else 1 - RATE * DECAY)
        optimizer.step()


def trained(optimizer, model, x):
    for _ in range(2):
        optimizer.zero_grad()
        loss(model, x).backward()
        optimizer.step()


def resting():
    model = net()
    nn.init.zeros_(model.norm.bias)
    return model


def test_decay_by_hand_makes_up_for_that_of_an_optimiser_also_of_weights_that_are_zero():
    assert held(decayed, decayed_by_hand, resting)
    assert not held(decayed, partial(decayed_by_hand, but=("first.weight",)), resting)


def in_parts(model, x, shares=(2, 4)):
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    optimizer.zero_grad()
    for part, share in zip(x.split([2, 4]), shares, strict=True):
        (loss(model, part) * share / 6).backward()  # ADDS
    optimizer.step()


def at_once(model, x):
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    optimizer.zero_grad()
    loss(model, x).backward()
    optimizer.step()


def test_parts_of_a_batch_that_weigh_too_much_are_told_at_their_backward_and_not_for_certain():
    assert held(at_once, in_parts)

    culprit = held(at_once, partial(in_parts, shares=(3, 3))).culprit

    assert culprit.wrong == "makes 2 backwards before step 1; the reference makes 1 backward"
    assert culprit.source.first == line_of("ADDS")
    assert not culprit.certain


def with_gradient(model, x, *, step=None):
    """Train; in one step a gradient is no number."""
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for number in range(3):
        optimizer.zero_grad()
        loss(model, x).backward()
        if number == step:
            model.last.weight.grad[0, 0] = float("nan")
        optimizer.step()


@pytest.mark.parametrize("step", [0, 1, 2])
def test_gradient_that_is_no_number_does_not_pass(step):
    report = held(with_gradient, partial(with_gradient, step=step))

    assert not report
    assert report.culprit.wrong == "changes the gradients before the step"


def in_two(model, x, *, last=3, rate=1e-3):
    optimizers = [torch.optim.SGD(part.parameters(), lr=rate) for part in (model.first, model.norm, model.last)]
    for number in range(3):
        model.zero_grad()
        loss(model, x).backward()
        for optimizer in optimizers if number < last else optimizers[:2]:
            optimizer.step()


def test_parameters_that_are_not_stepped_in_one_step_are_told():
    assert held(in_two, in_two)

    culprit = held(in_two, partial(in_two, last=2)).culprit

    assert culprit.wrong == "last.weight is not moved after step 3"


class Around(torch.optim.Optimizer):
    """Has another optimiser make its step."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})
        self.inner = torch.optim.SGD(self.param_groups, lr=lr)

    def step(self):
        self.inner.step()


def in_another(model, x, times=1):
    trained(Around(list(model.parameters()), lr=RATE * times), model, x)


def by_sgd(model, x):
    trained(torch.optim.SGD(model.parameters(), lr=RATE), model, x)


def test_optimiser_that_has_another_make_its_step_has_no_parameter_twice():
    assert held(by_sgd, in_another)
    assert not held(by_sgd, partial(in_another, times=2))


class Averaging(Net):
    def __init__(self, share=0.5):
        super().__init__()
        self.share = share
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x):
        hidden = self.first(x)
        self.averaged(hidden.detach().mean((0, 1)))
        return self.last(self.norm(hidden).tanh())

    def averaged(self, new):
        self.mean.mul_(self.share).add_(new, alpha=1 - self.share)


class Assigning(Averaging):
    def averaged(self, new):
        self.mean = self.share * self.mean + (1 - self.share) * new


def of(kind, *given):
    torch.manual_seed(0)
    return kind(*given)


def test_buffer_that_is_assigned_anew_is_followed():
    assert compare_steps(of(Averaging), of(Assigning), DATA, run=by_sgd)
    assert not compare_steps(of(Averaging), of(Assigning, 0.9), DATA, run=by_sgd)
