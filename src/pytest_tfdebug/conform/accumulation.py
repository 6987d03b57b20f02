"""The promise about gradient accumulation: two micro-batches give the gradients of the whole batch.

The model's own loss is taken where it makes one of labels, and a weighted sum of its outputs elsewhere. Every row has
the same number of labels, so that a loss that counts the tokens of its batch keeps the promise. What is computed of a
batch as a whole (a contrastive loss, the balance of experts, BatchNorm) does not keep it by nature.
"""

from __future__ import annotations

import copy
import random
import warnings
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from pytest_tfdebug.conform.micro_batches import WatchedCalls, culprit_of, joined, others
from pytest_tfdebug.conform.subject import broken
from pytest_tfdebug.errors import listed
from pytest_tfdebug.invariance.calls.repetition import rows_of
from pytest_tfdebug.invariance.calls.sequences import main_input
from pytest_tfdebug.invariance.checks.base import Outcome
from pytest_tfdebug.tensors import IGNORED_LABEL
from pytest_tfdebug.tracing.record.leaves import duplicate, replaced, walk
from pytest_tfdebug.tracing.record.state import random_state_kept

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_tfdebug.conform.micro_batches import Tensors
    from pytest_tfdebug.conform.subject import Subject

#: Share of its size by which a loss may differ: rounding of a sum in float32.
_SAME_LOSS = 1e-4
#: What the gradients of two micro-batches count: where a loss is a mean over rows, and where it is a sum.
_SHARES = (0.5, 1.0)
_OTHERWISE = "a hand-written backward that counts what is in the batch, or a hook that changes gradients."
_WRITTEN = "a gradient is written or emptied where it should be added: .grad = ..., zero_grad() in a forward."
_STATE = "a call leaves state to the next one: let what a forward gives depend on its inputs alone."
_COUNT = "the loss is divided by something else than the labels of its batch."


def applies(subject: Subject) -> str:
    """Return why the rows of a model are not trained by themselves; empty if they are."""
    main = main_input(subject.call)
    if main is None or main[1].shape[0] < 2:  # noqa: PLR2004 - a micro-batch has one row or more
        return "its call has no batch of two rows"
    for path, module in subject.model.named_modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):  # noqa: SLF001 - their common base
            return f"{type(module).__name__} ({path}) normalises over the rows of a batch"
    return ""


class _Accumulated(NamedTuple):
    """What forwards and backwards of one model gave, one of each for each batch, gradients added up."""

    losses: list[float]
    outputs: list[Tensors]  # of each batch, by leaf path
    calls: list[WatchedCalls]
    gradients: Tensors  # by parameter


@dataclass(frozen=True)
class _Trainee:
    """A model in float32, and how its steps are made."""

    model: torch.nn.Module
    training: bool  # mode of the model

    def step(self, *batches: Mapping[str, Any], seed: int = 0, splits: bool = False) -> _Accumulated:
        """Make a forward and a backward of each batch, without a step of an optimiser between them."""
        model = copy.deepcopy(self.model).train(self.training)
        made = _Accumulated([], [], [], {})
        with random_state_kept(), torch.enable_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for batch in batches:
                torch.manual_seed(seed)
                random.seed(seed)
                with WatchedCalls(model, splits=splits) as calls:
                    output = model(**duplicate(dict(batch)))
                    loss = _loss(output)
                    if loss is None:
                        loss = _weighted(output, rows=next(v.shape[0] for v in batch.values() if _is_batch(v)))
                    loss.backward()  # type: ignore[no-untyped-call]
                made.losses.append(float(loss.detach()))
                made.outputs.append({leaf.path: leaf.tensor.detach() for leaf in walk(output)})
                made.calls.append(calls)
        made.gradients.update({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
        return made

    def is_random(self, batch: Mapping[str, Any]) -> bool:
        """Tell whether other random numbers give something else."""
        one, other = (self.step(batch, seed=seed) for seed in (0, 1))
        return bool(others(one.outputs[0], other.outputs[0]) or others(one.gradients, other.gradients))


def is_the_same(subject: Subject) -> Outcome:
    """Make a step of a whole batch and the same in two micro-batches, and compare loss and gradients."""
    model = copy.deepcopy(subject.model).float()
    name, main = main_input(subject.call) or ("", torch.empty(0))
    half = main.shape[0] // 2
    pick = partial(rows_of, batch=main.shape[0])
    given = replaced(subject.call.inputs, lambda it: it.float() if it.is_floating_point() else it)
    given |= {"use_cache": False} if "use_cache" in subject.call.parameters else {}
    given = {name: given[name], **given, **_labels(subject, model, given)}
    outcome = Outcome(skipped=["it returns no floating-point tensor that has a gradient"])
    for with_shares in (False, True):
        parts = [
            pick(given, [*rows], with_shares=with_shares)
            for rows in (range(2 * half), range(half), range(half, 2 * half))
        ]
        outcome = _held(subject, _Trainee(model, training=_can_train(model, parts[0])), parts)
        if outcome.repeats:
            break
    return outcome


class _HeldMicroBatches(NamedTuple):
    """A step of a whole batch, the same in two micro-batches, and what became of it."""

    whole: _Accumulated
    micro: _Accumulated
    share: float | None  # what a gradient of a micro-batch counts; None where the losses do not say it
    wrong: list[str]  # parameters with another gradient


def _held(subject: Subject, trainee: _Trainee, parts: list[dict[str, Any]]) -> Outcome:
    whole, micro = trainee.step(parts[0]), trainee.step(*parts[1:])
    if not whole.gradients:
        return Outcome(skipped=["it has no parameter with a gradient"])
    share = _share(whole.losses[0], micro.losses)
    wrong = others(whole.gradients, {name: each * (share or 1) for name, each in micro.gradients.items()})
    is_kept = share is not None and not wrong
    return Outcome(1) if is_kept else _not_kept(subject, trainee, parts, _HeldMicroBatches(whole, micro, share, wrong))


def _not_kept(subject: Subject, trainee: _Trainee, parts: list[dict[str, Any]], held: _HeldMicroBatches) -> Outcome:
    """Say what is wrong, unless the model cannot keep the promise by nature."""
    whole, micro, share, wrong = held
    if trainee.is_random(parts[0]):
        return Outcome(skipped=["it draws random numbers"])
    alone = [trainee.step(part) for part in parts[1:]]
    if others(alone[1].outputs[0], micro.outputs[1]):
        return broken(f"{subject.name} gives another answer to a micro-batch after another one than alone.", [], _STATE)
    nature = _by_nature(whole.outputs[0], micro)
    if nature:
        return Outcome(skipped=[nature])
    if share is None:
        told = " and ".join(f"{each:.6g}" for each in micro.losses)
        text = f"{subject.name} has a loss of {whole.losses[0]:.6g} for a batch, and of {told} for its halves."
        return broken(text, ["It is neither their mean nor their sum; all other outputs agree."], _COUNT)
    total = len(whole.gradients)
    text = f"{subject.name} gets other gradients from two micro-batches than from the whole: {len(wrong)} of {total}."
    added = {name: each + alone[1].gradients.get(name, 0) for name, each in alone[0].gradients.items()}
    if others(added, micro.gradients):
        details = [listed(wrong), "The gradients of each micro-batch alone add up to something else."]
        return broken(text, details, _WRITTEN)
    with_views = trainee.step(parts[0], splits=True), trainee.step(*parts[1:], splits=True)
    calls = [each.calls for each in with_views]
    culprit = culprit_of(trainee.model, *calls, wrong=wrong, share=share, why=_OTHERWISE)
    at = "" if culprit is None or culprit.source is None else f", {culprit.source}"
    first = [] if culprit is None else [f"first in {culprit.path} ({culprit.class_name}){at}"]
    return broken(text, [*first, listed(wrong)], _OTHERWISE, culprit)


def _share(loss: float, parts: list[float]) -> float | None:
    """Return by how much the gradients of micro-batches count: their losses make that of the whole."""
    size = max(map(abs, (loss, *parts)), default=0.0)
    return next((each for each in _SHARES if abs(loss - each * sum(parts)) <= _SAME_LOSS * size), None)


def _by_nature(expected: Tensors, micro: _Accumulated) -> str:
    """Return why micro-batches cannot give what the whole gives; empty where no output says so."""
    first, second = micro.outputs
    for path, tensor in expected.items():
        if path not in first or path not in second or path in _OWN_LOSS:
            continue
        if tensor.dim() == 0:
            if others({path: tensor}, {path: first[path] * 0.5 + second[path] * 0.5}):
                return f"its output {path} is of the batch as a whole, and enters its loss"
            continue
        made = joined(tensor, first[path], second[path])
        if made is None and first[path].shape != tensor.shape:
            shapes = f"{tuple(tensor.shape)} against {tuple(first[path].shape)}"
            return f"its output {path} is of the batch as a whole: {shapes}"
        if made is not None and tensor.is_floating_point() and others({path: tensor}, {path: made}):
            return f"a row's answer depends on the rows beside it ({path}), which is what the promise batch asks"
    return ""


#: Paths of the loss that is trained.
_OWN_LOSS = (".loss", "['loss']")


def _can_train(model: torch.nn.Module, batch: Mapping[str, Any]) -> bool:
    """Tell whether a model in training mode runs, and draws no random numbers."""
    try:
        return not _Trainee(model, training=True).is_random(batch)
    except (AssertionError, NotImplementedError):  # some want another configuration for training
        return False


def _labels(subject: Subject, model: torch.nn.Module, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return labels of which a model makes a loss, as many for each row; nothing where none are known that do."""
    for labels in _choices(subject, given):
        try:
            with torch.no_grad(), random_state_kept(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                loss = _loss(copy.deepcopy(model)(**duplicate({**given, **labels})))
        except Exception:  # noqa: BLE001, S112 - every model refuses in its own way
            continue
        if loss is not None and bool(loss.isfinite()):
            return labels
    return {}


def _choices(subject: Subject, given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    own = {name: value for name, value in given.items() if isinstance(value, torch.Tensor) and name.endswith("labels")}
    if own:
        yield {name: value.where(value != IGNORED_LABEL, torch.zeros_like(value)) for name, value in own.items()}
    if own or "labels" not in subject.call.parameters:
        return
    classes = getattr(getattr(subject.model, "config", None), "num_labels", 2)
    for name in ("decoder_input_ids", "input_ids"):
        if isinstance(given.get(name), torch.Tensor):
            yield {"labels": given[name].clone()}
            yield {"labels": given[name] % classes}
    main = main_input(subject.call)
    if main is not None:
        yield {"labels": torch.arange(main[1].shape[0], device=main[1].device) % classes}


def _loss(output: Any) -> torch.Tensor | None:  # noqa: ANN401 - whatever a model returns
    loss = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    return loss if isinstance(loss, torch.Tensor) and loss.numel() == 1 else None


def _weighted(output: object, rows: int) -> torch.Tensor:
    """Return a sum over what the outputs hold of each row, ``(rows, ...)``, weighted alike in each."""
    found = torch.zeros((), requires_grad=True) + 0.0
    for leaf in walk(output):
        tensor = leaf.tensor
        if tensor.is_floating_point() and tensor.requires_grad and tensor.dim() and tensor.shape[0] == rows:
            weights = torch.rand(tensor.shape[1:], generator=torch.Generator().manual_seed(0)).to(tensor)
            found = found + (tensor * weights).sum()
    return found


def _is_batch(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() > 0
