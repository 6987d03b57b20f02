"""A recorded forward that is run again gives what the forward gives: with writes in place, through views, of any form."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from models import ARCHITECTURES, build
from pytest_tfdebug.parity.proof.forward import Replay, Run
from pytest_tfdebug.tracing.values.rerun import Rerun
from pytest_tfdebug.tracing.values.tape import NotTriedError, Tape, results_of


def taped(model, *args, **kwargs):
    """Return the table and the tape of a forward."""
    tape = Tape()
    values = Rerun(model, args, kwargs).values(tape=tape)
    assert values is not None
    return values, tape


def output_with(model, old, new):
    """Return the output of a replay of a forward on one input, begun with another."""
    values, tape = taped(model, old)
    (_, given_index), *_ = values.inputs[values.calls[0].index]
    with torch.no_grad():
        changed = Replay(tape).run({}, {given_index: new})
    (_, output), *_ = values.results
    return changed.get(output, tape.tensors[output])


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_operator_of_a_model_gives_again_what_it_gave(name):
    model, inputs = build(name)
    values, tape = taped(model, **inputs)

    with torch.no_grad():
        for step in tape.steps:
            args, kwargs = Run(tape, {}).given(step)
            for index, result in zip(step.outs, results_of(step.run(*args, **kwargs)), strict=False):
                if index is not None:
                    torch.testing.assert_close(result, tape.tensors[index], equal_nan=True)
    assert {index for _, index in values.results} <= tape.tensors.keys()


@pytest.mark.parametrize("name", ["llama", "t5", "mamba", "bert"])
def test_replay_with_another_weight_is_the_forward_of_that_model(name):
    model, inputs = build(name)
    values, tape = taped(model, **inputs)
    weights = [value for value in values.values if value.origin == "parameter" and len(value.shape) == 1]
    chosen = weights[len(weights) // 2]
    other = torch.linspace(0.5, 1.5, chosen.shape[0])
    with torch.no_grad():
        changed = Replay(tape).run({}, {chosen.index: other})
        model.get_parameter(chosen.name).copy_(other)

    again, fresh = taped(model, **inputs)

    for (_, before), (_, after) in zip(values.results, again.results, strict=True):
        torch.testing.assert_close(changed.get(before, tape.tensors[before]), fresh.tensors[after])


class Writing(nn.Module):
    """Writes in place, as a list of steps says: through views, over other views, into a buffer."""

    def __init__(self, steps):
        super().__init__()
        self.steps = steps

    def forward(self, x):
        base = x * 1.5
        view = base[1:3]
        across = base.t()
        buffer = torch.zeros(8, 4)
        for step in self.steps:
            if step == "view":
                view.mul_(2).add_(across[0, :4].sum())
            elif step == "base":
                base += view.sum()
            elif step == "across":
                across[1:3] = across[0:2] * 3
            elif step == "buffer":
                buffer[2:6, :] = base
            elif step == "read":
                base = base + buffer[2:6].tanh()
                view, across = base[1:3], base.t()
            elif step == "split":
                one, other = base.split(2)
                one.copy_(other.sigmoid())
            else:
                base.unsqueeze_(0)
                base = base.squeeze(0) - view.mean()
                view, across = base[1:3], base.t()
        return base + view.mean() + across.t().sin() + buffer[2:6]


@given(
    st.lists(st.sampled_from(["view", "base", "across", "buffer", "read", "split", "shape"]), max_size=6),
    st.integers(0, 1000),
)
def test_replay_begun_with_another_input_is_the_forward_on_that_input(steps, seed):
    generator = torch.Generator().manual_seed(seed)
    old, new = (torch.randn(4, 4, generator=generator) for _ in range(2))
    model = Writing(steps)

    found = output_with(model, old, new)

    torch.testing.assert_close(found, model(new), equal_nan=True)


def test_what_draws_random_numbers_is_not_drawn_anew():
    class Noisy(nn.Module):
        def forward(self, x):
            return x + torch.rand_like(x)

    x = torch.zeros(3, 4)
    values, tape = taped(Noisy(), x)
    noise = next(value for value in values.values if value.is_random)

    with torch.no_grad():
        changed = Replay(tape).run({}, {values.inputs[values.calls[0].index][0][1]: x + 1})

    torch.testing.assert_close(changed[values.results[0][1]], tape.tensors[noise.index] + 1)


def test_model_that_needs_more_than_is_kept_is_not_kept(monkeypatch):
    monkeypatch.setattr("pytest_tfdebug.tracing.values.tape._MOST", 100)

    _, tape = taped(nn.Linear(8, 8), torch.randn(4, 8))

    assert tape.is_full
    assert not tape.steps
    assert not tape.tensors


class Normed(nn.Module):
    """A weight that is normed along an axis, by an operator of torch that checks nothing."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.direction, self.size = nn.Parameter(torch.randn(32, 8, 16)), nn.Parameter(torch.rand(1, 1, 16))

    def forward(self, states):
        return torch._weight_norm_interface(self.direction, self.size, 2)[0].sum((1, 2)) * states


def test_layer_of_an_lstm_runs_on_no_other_sizes():
    _, tape = taped(nn.LSTM(16, 8, batch_first=True), torch.randn(2, 6, 16))
    layers = [step for step in tape.steps if step.operator == "mkldnn_rnn_layer"]  # some builds of torch have none

    for step in layers:
        args, kwargs = Run(tape, {}).given(step)
        sizes = [place for place, each in enumerate(args) if type(each) is int and each == 8]
        assert sizes
        with pytest.raises(ValueError, match="checks nothing of what it is given"):  # a size of 0 ends the process
            step.run(*args[: sizes[0]], 4, *args[sizes[0] + 1 :], **kwargs)


def test_operator_that_checks_nothing_runs_only_on_what_was_recorded():
    _, tape = taped(Normed(), torch.ones(32))
    step = next(step for step in tape.steps if step.operator == "_weight_norm_interface")
    (direction, size, axis), kwargs = Run(tape, {}).given(step)

    again = step.run(direction * 2, size * 2, axis, **kwargs)[0]

    torch.testing.assert_close(again, 2 * tape.tensors[step.outs[0]])
    for wrong in ((direction, size, 1), (direction, size.mT, axis), (direction.double(), size, axis)):
        with pytest.raises(ValueError, match="checks nothing of what it is given"):
            step.run(*wrong, **kwargs)


@pytest.mark.parametrize(("place", "given"), [(5, False), (1, torch.ones(2))])
def test_batch_norm_is_not_run_on_statistics_that_are_not_there(place, given):
    norm = nn.BatchNorm1d(3, track_running_stats=False)
    _, tape = taped(norm, torch.arange(12.0).view(4, 3))
    step = next(step for step in tape.steps if "batch_norm" in step.operator)
    args, kwargs = Run(tape, {}).given(step)

    with pytest.raises(NotTriedError, match="a batch norm runs only with the statistics that it uses"):
        step.run(*args[:place], given, *args[place + 1 :], **kwargs)
