"""A real Trainer, two steps, and an overflow injected before the second."""

import logging

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

from pytest_tfdebug import OverflowCallback, TFDebugError

LOGGER = "pytest_tfdebug.overflow.callback"
#: A module of torch has no lines of its own: those of LlamaMLP that call it are shown.
HEADLINE = " in model.layers.1.mlp.down_proj (Linear): output has infs"


class Injection(TrainerCallback):
    """Scale a weight out of range before a step."""

    def __init__(self, step):
        self.step = step

    def on_step_begin(self, _args, state, _control, *, model, **_kwargs):
        if state.global_step == self.step:
            with torch.no_grad():
                model.model.layers[1].mlp.up_proj.weight.fill_(1e30)
                model.model.layers[1].mlp.down_proj.weight.fill_(1e30)


def trainer(tmp_path, *callbacks, **arguments):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4
    )
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 64, (16, 8))]
    settings = {
        "output_dir": str(tmp_path),
        "max_steps": 4,
        "per_device_train_batch_size": 2,
        "use_cpu": True,
        "report_to": "none",
        "disable_tqdm": True,
        "save_strategy": "no",
        "logging_strategy": "no",
        "learning_rate": 0.0,
    }
    return Trainer(
        LlamaForCausalLM(config),
        TrainingArguments(**{**settings, **arguments}),
        train_dataset=rows,
        callbacks=list(callbacks),
    )


def hooks_of(model):
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


def logged(caplog, level):
    return [record.getMessage() for record in caplog.records if record.name == LOGGER and record.levelno == level]


def test_training_with_an_overflow_stops_with_the_report_in_the_log(tmp_path, caplog):
    training = trainer(tmp_path, Injection(1), OverflowCallback())

    with caplog.at_level(logging.WARNING, LOGGER):
        training.train()

    (message,) = logged(caplog, logging.ERROR)
    assert training.state.global_step == 2
    assert message.startswith("Overflow in step 2, training stops.\nmodeling_llama.py:")
    assert message.splitlines()[1].endswith(HEADLINE)
    assert "last 40 frames:" in message
    assert hooks_of(training.model) == 0


def test_training_goes_on_after_a_warning_with_one_line_for_the_rest(tmp_path, caplog):
    training = trainer(tmp_path, Injection(1), OverflowCallback(on_overflow="warn"))

    with caplog.at_level(logging.WARNING, LOGGER):
        training.train()
    first, *rest = logged(caplog, logging.WARNING)

    assert training.state.global_step == 4
    assert logged(caplog, logging.ERROR) == []
    assert first.splitlines()[0] == "Overflow in step 2."
    assert first.splitlines()[1].endswith(HEADLINE)
    assert [line.partition(": ")[0] for line in rest] == ["Overflow in step 3", "Overflow in step 4"]
    assert all(  # the optimizer has carried the nans into the weights
        line.endswith(" in model.embed_tokens (Embedding): output has nans") for line in rest
    )


def test_sound_training_is_left_alone(tmp_path, caplog):
    training = trainer(tmp_path, OverflowCallback(gradients=True))

    with caplog.at_level(logging.WARNING, LOGGER):
        training.train()

    assert training.state.global_step == 4
    assert logged(caplog, logging.WARNING) == logged(caplog, logging.ERROR) == []
    assert hooks_of(training.model) == 0


def test_batches_of_an_accumulated_step_are_looked_at_one_by_one(tmp_path, caplog):
    training = trainer(tmp_path, Injection(1), OverflowCallback(), gradient_accumulation_steps=2)

    with caplog.at_level(logging.WARNING, LOGGER):
        training.train()

    assert logged(caplog, logging.ERROR)[0].splitlines()[1].endswith(HEADLINE)


def test_training_that_will_use_data_parallel_is_refused_with_the_way_out(tmp_path):
    training = trainer(tmp_path, OverflowCallback())
    assert training.args.n_gpu <= 1
    training.args._n_gpu = 2

    with pytest.raises(TFDebugError) as caught:
        training.train()

    assert str(caught.value).splitlines()[1] == (
        "Use torch.nn.parallel.DistributedDataParallel, or watch the model without the wrapper."
    )
    assert hooks_of(training.model) == 0


def test_gradient_that_overflows_stops_the_training(tmp_path, caplog):
    training = trainer(tmp_path, OverflowCallback(gradients=True, frames=5))
    training.model.model.layers[0].mlp.act_fn = SquareRoot()

    with caplog.at_level(logging.WARNING, LOGGER):
        training.train()

    (message,) = logged(caplog, logging.ERROR)
    assert training.state.global_step == 1
    assert message.splitlines()[1].endswith(" in model.layers.0.mlp.act_fn (SquareRoot): gradient of input[0] has nans")


class SquareRoot(torch.nn.Module):
    """An activation with an infinite slope at 0."""

    def forward(self, x):
        return (x * 0).abs().sqrt()


def test_hooks_that_a_crashed_training_left_are_removed_by_hand(tmp_path):
    class Crash(TrainerCallback):
        def on_step_end(self, *_args, **_kwargs):
            raise KeyboardInterrupt

    callback = OverflowCallback()
    training = trainer(tmp_path, Crash(), callback)
    with pytest.raises(KeyboardInterrupt):
        training.train()
    assert hooks_of(training.model) > 0

    callback.remove()

    assert hooks_of(training.model) == 0


def test_unknown_reaction_is_refused_with_the_valid_ones():
    with pytest.raises(TFDebugError) as caught:
        OverflowCallback(on_overflow="raise")

    assert str(caught.value) == "OverflowCallback(on_overflow='raise'): on_overflow is one of stop, warn."
