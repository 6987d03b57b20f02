"""An optimiser's rule made again on given gradients, with one change: which change gives the steps that were made."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from inspect import signature
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.steps.rows import real_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_tfdebug.steps.training import OptimizerStep

    #: Hyperparameters of a parameter in each step.
    Settings = Sequence[dict[str, Any]]

#: Share of a step by which the same rule may be off, beside the rounding of the weights.
SAME_STEP = 1e-4
#: The same for a rule that is tried: it must give the very steps.
_PROVES = 1e-5
#: Values that are tried in the place of the reference's, where nothing tells the port's.
_TRIED: dict[str, tuple[float, ...]] = {
    "lr": (1e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2e-3, 1e-2, 0.1),
    "beta1": (0.0, 0.8, 0.9, 0.95, 0.99),
    "beta2": (0.9, 0.95, 0.98, 0.99, 0.999),
    "eps": (0.0, 1e-12, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4),
    "weight_decay": (0.0, 1e-4, 1e-3, 0.01, 0.05, 0.1),
    "momentum": (0.0, 0.8, 0.9, 0.95, 0.99),
}


@dataclass(frozen=True)
class UpdateRule:
    """Adam or SGD with all that an implementation may do otherwise."""

    family: str  # ``adam`` or ``sgd``
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False
    maximize: bool = False
    amsgrad: bool = False
    is_coupled: bool = False  # whether the decay is added to the gradient
    is_corrected: bool = True  # whether the bias of the moments is corrected
    is_eps_inside: bool = False  # whether epsilon is added under the root
    is_decay_bare: bool = False  # whether the decay is not multiplied by lr
    is_second_only: bool = False  # whether the bias of the second moment alone is corrected
    is_first_only: bool = False  # whether the bias of the first moment alone is corrected
    is_whole: bool = False  # whether the first moment gets all of a gradient, and not 1 - beta1 of it
    counted: tuple[int, int] = (1, 1)  # number that the first step has where bias is corrected, and how many each adds

    @property
    def is_adam(self) -> bool:
        """Whether it has moments of both orders."""
        return self.family == "adam"

    def steps(
        self, starts: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor], lrs: Sequence[float]
    ) -> Iterator[torch.Tensor]:
        """Yield by how much a parameter moves in each step, each from where it was."""
        m = v = top = torch.zeros(())
        for number, (start, given, lr) in enumerate(zip(starts, gradients, lrs, strict=True), 1):
            p, g = start.double(), -given.double() if self.maximize else given.double()
            decay = (1.0 if self.is_decay_bare else lr) * self.weight_decay
            g = g + self.weight_decay * p if self.is_coupled else g
            pull = torch.zeros_like(p) if self.is_coupled else -decay * p
            if self.family == "sgd":
                m = g if number == 1 else self.momentum * m + (1 - self.dampening) * g
                way = g + self.momentum * m if self.nesterov else m if self.momentum else g
                yield pull - lr * way
                continue
            m = self.beta1 * m + (1.0 if self.is_whole else 1 - self.beta1) * g
            v = self.beta2 * v + (1 - self.beta2) * g * g
            count = self.counted[0] + (number - 1) * self.counted[1]
            first = 1 - self.beta1**count if self.is_corrected and not self.is_second_only else 1.0
            second = 1 - self.beta2**count if self.is_corrected and not self.is_first_only else 1.0
            top = torch.maximum(top, v) if self.amsgrad else v
            root = (top / second + self.eps).sqrt() if self.is_eps_inside else (top / second).sqrt() + self.eps
            yield pull - lr * (m / first) / root


@dataclass(frozen=True)
class Other:
    """A rule that differs from the reference's in one thing."""

    wrong: str  # what is otherwise, in words
    rule: UpdateRule
    lrs: tuple[float, ...]


def rule_of(name: str, settings: dict[str, Any]) -> UpdateRule | None:
    """Return the rule of an optimiser of torch; None for one of another family."""
    shared = {key: settings[key] for key in ("weight_decay", "maximize") if key in settings}
    if name in {"Adam", "AdamW"}:
        beta1, beta2 = settings["betas"]
        is_coupled = not settings.get("decoupled_weight_decay", name == "AdamW")
        held = {"eps": settings["eps"], "amsgrad": settings.get("amsgrad", False), "is_coupled": is_coupled}
        return UpdateRule("adam", beta1, beta2, **held, **shared)
    if name == "SGD":
        held = {key: settings[key] for key in ("momentum", "dampening", "nesterov")}
        return UpdateRule("sgd", **held, is_coupled=True, **shared)
    return None


#: What a rule may do otherwise, without a number: whether it can, and the fields that differ.
_WAYS: tuple[tuple[str, Callable[[UpdateRule], bool], Callable[[UpdateRule], dict[str, Any]]], ...] = (
    ("does not correct the bias of its moments", lambda rule: rule.is_adam, lambda _: {"is_corrected": False}),
    ("corrects the bias of the second moment alone", lambda rule: rule.is_adam, lambda _: {"is_second_only": True}),
    ("corrects the bias of the first moment alone", lambda rule: rule.is_adam, lambda _: {"is_first_only": True}),
    ("corrects the bias of its first step as of a second", lambda rule: rule.is_adam, lambda _: {"counted": (2, 1)}),
    ("corrects the bias of each step as of two", lambda rule: rule.is_adam, lambda _: {"counted": (2, 2)}),
    ("adds all of a gradient to its first moment", lambda rule: rule.is_adam, lambda _: {"is_whole": True}),
    ("adds epsilon under the root", lambda rule: rule.is_adam, lambda _: {"is_eps_inside": True}),
    ("keeps the greatest second moment (amsgrad)", lambda rule: rule.is_adam, lambda _: {"amsgrad": True}),
    ("keeps no greatest second moment", lambda rule: rule.amsgrad, lambda _: {"amsgrad": False}),
    (
        "adds the weight decay to the gradient (L2) and does not take it off the weights",
        lambda rule: bool(rule.weight_decay) and not rule.is_coupled,
        lambda _: {"is_coupled": True},
    ),
    (
        "takes the weight decay off the weights and does not add it to the gradient",
        lambda rule: bool(rule.weight_decay) and rule.is_coupled,
        lambda _: {"is_coupled": False},
    ),
    (
        "does not multiply the weight decay by lr",
        lambda rule: bool(rule.weight_decay) and not rule.is_coupled,
        lambda _: {"is_decay_bare": True},
    ),
    ("does not decay these weights", lambda rule: bool(rule.weight_decay), lambda _: {"weight_decay": 0.0}),
    ("looks ahead (nesterov)", lambda rule: not rule.is_adam and not rule.nesterov, lambda _: {"nesterov": True}),
    ("does not look ahead (nesterov)", lambda rule: rule.nesterov, lambda _: {"nesterov": False}),
    ("dampens the gradient", lambda rule: bool(rule.momentum), lambda rule: {"dampening": rule.momentum}),
    ("goes up the gradient and not down", lambda _: True, lambda rule: {"maximize": not rule.maximize}),
)
#: Numbers of each family.
_NUMBERS = {"adam": ("lr", "beta1", "beta2", "eps", "weight_decay"), "sgd": ("lr", "momentum", "weight_decay")}


def others(rule: UpdateRule, lrs: Sequence[float]) -> Iterator[Other]:
    """Yield the rules that differ from one in one thing, those that need no number first."""
    given = tuple(lrs)
    for wrong, can, fields in _WAYS:
        if can(rule):
            yield Other(wrong, replace(rule, **fields(rule)), given)
    if len(set(given)) > 1:
        yield Other("has the lr of the next step: its scheduler steps too early", rule, (*given[1:], given[-1]))
        yield Other("has the lr of the step before: its scheduler steps too late", rule, (given[0], *given[:-1]))
    for key in _NUMBERS[rule.family]:
        for number in _TRIED[key]:
            if key == "lr":
                yield Other(f"has lr {number:g}", rule, (number,) * len(given))
            elif number != getattr(rule, key):
                new: dict[str, Any] = {key: number}
                yield Other(f"has {key} {number:g}", replace(rule, **new), given)


def replayed(steps: Sequence[OptimizerStep], name: str, settings: Settings, kind: type) -> list[torch.Tensor]:
    """Return by how much the reference's optimiser moves a parameter of the port on the port's own gradients.

    Each step begins where the port's began, so that nothing adds up.
    """
    lives = [step.live for step in steps if step.live is not None]
    shadow = torch.nn.Parameter(lives[0].before[name].clone())
    group = {"params": [shadow], **settings[0]}
    taken = signature(kind).parameters  # of some, what a group holds beside the defaults contradicts these
    optimizer = kind([group], **{option: value for option, value in settings[0].items() if option in taken})
    moved = []
    for live, known in zip(lives, settings, strict=True):
        optimizer.param_groups[0].update(known)
        with torch.no_grad():
            shadow.copy_(live.before[name])
        gradient = live.gradients[name]
        shadow.grad = None if gradient is None else gradient.clone()
        optimizer.step()
        moved.append(shadow.detach() - live.before[name])
    return moved


def step_error(moved: torch.Tensor, expected: torch.Tensor, before: torch.Tensor) -> float:
    """Return how far a step is from another, as a share of it; what the weights' own rounding explains counts as 0."""
    moved, expected, before = map(real_parts, (moved, expected, before))
    is_known, should_be = moved.isfinite(), expected.isfinite()
    if not torch.equal(is_known, should_be):  # a number that is none is as far off as can be
        return math.inf
    moved, expected = moved.where(is_known, 0), expected.where(is_known, 0)
    apart = float((moved.double() - expected.double()).norm())
    rounding = 4 * torch.finfo(before.dtype).eps * float(before.where(before.isfinite(), 0).double().norm())
    size = max(float(moved.double().norm()), float(expected.double().norm()))
    return 0.0 if apart <= rounding else (apart - rounding) / max(size, 1e-300)


def is_given_by(other: Other, steps: Sequence[OptimizerStep], name: str) -> bool:
    """Tell whether a rule gives the steps that a parameter of the port made."""
    lives = [step.live for step in steps if step.live is not None]
    starts = [live.before[name] for live in lives]
    if any(start.is_complex() for start in starts):  # the rules are of real numbers
        return False
    gradients = [live.gradients[name] for live in lives]
    held = [torch.zeros_like(start) if each is None else each for start, each in zip(starts, gradients, strict=True)]
    made = other.rule.steps(starts, held, other.lrs)
    return all(
        step_error(live.after[name] - live.before[name], moved.to(live.before[name].dtype), live.before[name])
        <= _PROVES
        for live, moved in zip(lives, made, strict=True)
    )
